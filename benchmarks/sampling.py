"""Sampling batches, from memory and from a store on disk a hundred times as large."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.timing import Row, seconds_per_call
from mtm.datasets.store import open_store, write_store
from mtm.segments import Segments
from mtm.trajectories import TrajectoryDataset

BATCH, LENGTH = 1024, 4
STEPS, TIMES = 200_000, 100


def measure(peak: float) -> list[Row]:
    """Segments per second, and how long the store takes to open."""
    rows = [Row("sampling", f"{STEPS:,} steps in memory", _rate(_data(0)), "segments/s")]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store"
        write_store(_parts(), path, "benchmark")
        seconds = seconds_per_call(lambda: open_store(path))
        rate = _rate(open_store(path))
    what = f"{STEPS * TIMES:,} steps on disk"
    return [
        *rows,
        Row("sampling", what, rate, "segments/s"),
        Row("sampling", f"opening {what}", seconds * 1e3, "ms"),
    ]


def _rate(dataset: TrajectoryDataset) -> float:
    segments = Segments(dataset, LENGTH)
    numbers = iter(range(10**9))
    seconds = seconds_per_call(
        lambda: segments.gather(segments.draw(BATCH, 0, next(numbers))), warmup=200
    )
    return BATCH / seconds


def _parts() -> Iterator[TrajectoryDataset]:
    for i in range(TIMES):
        yield _data(i)


def _data(seed: int) -> TrajectoryDataset:
    rng = np.random.default_rng(seed)
    arrays = {
        "states": rng.random((STEPS, 11), np.float32),
        "returns": rng.random(STEPS, np.float32),
        "actions": rng.random((STEPS, 3), np.float32),
    }
    return TrajectoryDataset.from_arrays(arrays, np.arange(0, STEPS + 1, 500))
