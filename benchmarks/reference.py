"""Ours beside the original, where a checkout of it is given."""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.timing import Row, seconds_in_turns
from mtm.config import preset

STEPS = {"cpu": 50, "paper": 6}
ASKED = {"cpu": "at least 1.6", "paper": "at least 1.3"}

ITS_DROPOUT = 0.1
"""In the original's settings."""


def measure(path: Path) -> list[Row]:
    """Segments per second of both at the sizes of two presets, and how they compare.

    The original has the same width, layers and batch, and its own dropout; where the preset has
    another one, the original is measured with that as well. Its loop has a process for its data
    where these take a share of the time worth one. It draws a mask per batch, ours one per sample.
    """
    return [row for name in STEPS for row in _measure(path, name)]


def _measure(path: Path, name: str) -> list[Row]:
    config = preset(name)
    batch, dropout, is_small = config.batch_size, config.model.dropout, name == "cpu"
    size = [f"--width={config.model.width}", f"--batch={batch}"]
    its_loop = "loop with a loader" if is_small else "loop"

    def original(what: str, dropout: float) -> list[object]:
        return ["reference_process", path, *size, f"--dropout={dropout}", f"--what={what}"]

    with tempfile.TemporaryDirectory() as folder:
        ours = ["one_training", Path(folder) / "run", f"--preset={name}", "--in-turns"]
        programs: dict[str, list[object]] = {
            "its step": original("step", ITS_DROPOUT),
            "its whole loop": original(its_loop, ITS_DROPOUT),
            "our whole loop": [*ours, f"--steps={10 * STEPS[name]}"],
        }
        if dropout != ITS_DROPOUT:
            programs[f"its whole loop, dropout {dropout:g}"] = original(its_loop, dropout)
        seconds = seconds_in_turns(programs, STEPS[name])
    rows = [
        Row(f"original, {name}", what, batch / each, "segments/s") for what, each in seconds.items()
    ]
    for what, each in seconds.items():
        if what.startswith("its whole loop"):
            ratio = each / seconds["our whole loop"]
            asked = ASKED[name] if what == "its whole loop" else ""
            rows.append(Row(f"original, {name}", f"ours / {what}", ratio, "times", asked))
    return rows
