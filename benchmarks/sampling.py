"""Sampling batches, and whether its cost depends on the data set's size."""

from __future__ import annotations

import numpy as np

from benchmarks.timing import Row, seconds_per_call
from mtm.segments import Segments
from mtm.trajectories import TrajectoryDataset

BATCH, LENGTH = 1024, 4


def measure(peak: float) -> list[Row]:
    """Segments per second for a small and for a large data set."""
    rows = []
    for steps in (20_000, 2_000_000):
        segments = Segments(_data(steps), LENGTH)
        numbers = iter(range(10**9))
        seconds = seconds_per_call(
            lambda s=segments, n=numbers: s.gather(s.draw(BATCH, 0, next(n)))  # type: ignore[misc]
        )
        rows.append(Row("sampling", f"of {steps:,} steps", BATCH / seconds, "segments/s"))
    return rows


def _data(steps: int) -> TrajectoryDataset:
    rng = np.random.default_rng(0)
    arrays = {
        "states": rng.random((steps, 11), np.float32),
        "returns": rng.random(steps, np.float32),
        "actions": rng.random((steps, 3), np.float32),
    }
    return TrajectoryDataset.from_arrays(arrays, np.arange(0, steps + 1, 500))
