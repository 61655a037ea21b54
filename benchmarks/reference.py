"""Ours beside the original, where a checkout of it is given."""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.timing import Row, seconds_in_turns
from mtm.core.config import preset

STEPS = {"cpu": 60, "paper": 7}
WARMUP = {"cpu": 20, "paper": 7}
ASKED = {"cpu": "at least 1.6", "paper": "at least 1.3"}

ITS_DROPOUT = 0.1
"""In the original's settings."""


def measure(path: Path) -> list[Row]:
    """Segments per second of both at the sizes of two presets, and how they compare.

    The original has the same width, layers and batch, and its own dropout; where the preset has
    another one, the original is measured with that as well. Its loop has a process for its data
    where these take a share of the time worth one. It draws a mask per batch, ours at `cpu` one per
    sample.
    """
    return [row for name in STEPS for row in _measure(path, name)]


def _measure(path: Path, name: str) -> list[Row]:
    config = preset(name)
    batch, dropout, is_small = config.batch_size, config.model.dropout, name == "cpu"
    size = [f"--width={config.model.width}", f"--batch={batch}", f"--workers={int(is_small)}"]

    def original(dropout: float) -> list[object]:
        return ["reference_process", path, *size, f"--dropout={dropout}"]

    with tempfile.TemporaryDirectory() as folder:
        ours = ["one_training", Path(folder) / "run", f"--preset={name}", "--in-turns"]
        programs: dict[str, list[object]] = {
            "its": original(ITS_DROPOUT),
            "our": [*ours, f"--steps={10 * STEPS[name]}"],
        }
        if dropout != ITS_DROPOUT:
            programs[f"dropout {dropout:g}, its"] = original(dropout)
        turns = seconds_in_turns(programs, STEPS[name], WARMUP[name])
    part = f"original, {name}"
    rows = [
        Row(part, f"{whose} {what}", batch / seconds, "segments/s")
        for whose, turn in turns.items()
        for what, seconds in (("step", turn.step), ("whole loop", turn.whole))
    ]
    for whose, turn in turns.items():
        if whose != "our":
            asked = ASKED[name] if whose == "its" else ""
            ratio = turn.whole / turns["our"].whole
            rows.append(Row(part, f"our whole loop / {whose} own", ratio, "times", asked))
    return rows
