"""Ours beside the original, where a checkout of it is given."""

from __future__ import annotations

from pathlib import Path

from benchmarks import one_training
from benchmarks.timing import Row, result_of
from mtm.config import TrainConfig, preset

STEPS = {"cpu": 50, "paper": 4}
ASKED = {"cpu": "at least 1.6", "paper": "at least 1.3"}

ITS_DROPOUT = 0.1
"""In the original's settings."""


def measure(path: Path) -> list[Row]:
    """Segments per second of both at the sizes of two presets, and how they compare.

    The original has the same width, layers and batch, and its own dropout; where the preset has
    another one, the original is measured with that as well. It draws a mask per batch, ours one
    per sample.
    """
    rows = []
    for name, steps in STEPS.items():
        config = preset(name)
        part, batch, dropout = f"original, {name}", config.batch_size, config.model.dropout
        step, loop = _original(path, config, steps, ITS_DROPOUT)
        ours = one_training.measured(name, steps)["seconds"]
        rows += [
            Row(part, "its step", batch / step, "segments/s"),
            Row(part, "its whole loop", batch / loop, "segments/s"),
            Row(part, "our whole loop", batch / ours, "segments/s"),
            Row(part, "ours / its", loop / ours, "times", ASKED[name]),
        ]
        if dropout != ITS_DROPOUT:
            _, loop = _original(path, config, steps, dropout)
            rows.append(Row(part, f"ours / its with dropout {dropout:g}", loop / ours, "times"))
    return rows


def _original(path: Path, config: TrainConfig, steps: int, dropout: float) -> tuple[float, float]:
    """Seconds of its step, and of its loop: with or without a loader process, as is faster.

    At large sizes its data take no time worth a process.
    """
    seconds = result_of(
        "reference_process",
        path,
        f"--width={config.model.width}",
        f"--batch={config.batch_size}",
        f"--dropout={dropout}",
        f"--steps={steps}",
        *(["--loader-process"] if config.model.width <= 128 else []),
    )
    return seconds["step"], min(s for what, s in seconds.items() if what.startswith("loop"))
