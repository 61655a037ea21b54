"""Ours beside the original, where a checkout of it is given."""

from __future__ import annotations

from pathlib import Path

from benchmarks import one_training
from benchmarks.timing import Row, result_of
from mtm.config import preset

STEPS = {"cpu": 80, "paper": 10}
ASKED = {"cpu": "at least 1.6", "paper": "at least 1.3"}


def measure(path: Path) -> list[Row]:
    """Segments per second of both at the sizes of two presets, and how they compare.

    The original has the same width, layers, batch and dropout. It draws a mask per batch, ours one
    per sample. Of its data loader with and without a process of its own, the faster one counts.
    """
    rows = []
    for name in STEPS:
        config = preset(name)
        theirs = result_of(
            "reference_process",
            path,
            f"--width={config.model.width}",
            f"--batch={config.batch_size}",
            f"--dropout={config.model.dropout}",
            f"--steps={STEPS[name]}",
        )
        ours = one_training.measured(name, STEPS[name])["seconds"]
        loop = min(seconds for what, seconds in theirs.items() if what.startswith("loop"))
        part, batch = f"original, {name}", config.batch_size
        rows += [
            Row(part, "its step", batch / theirs["step"], "segments/s"),
            Row(part, "its whole loop", batch / loop, "segments/s"),
            Row(part, "our whole loop", batch / ours, "segments/s"),
            Row(part, "ours / its", loop / ours, "times", ASKED[name]),
        ]
    return rows
