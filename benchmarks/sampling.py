"""Sampling batches, from memory and from a store on disk a hundred times as large."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.timing import Row, seconds_of_each, seconds_per_call
from mtm.core.system import keep_freed_memory
from mtm.data.formats.store import open_store, write_store
from mtm.data.segments import Segments
from mtm.data.trajectories import TrajectoryDataset

BATCH, LENGTH = 1024, 4
STEPS, TIMES = 200_000, 100
IN_TURN = 20
"""Batches from one before the other has its turn."""


def measure() -> list[Row]:
    """Segments per second, and how long the store takes to open."""
    keep_freed_memory()  # as training does
    small, large = f"{STEPS:,} steps in memory", f"{STEPS * TIMES:,} steps on disk"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store"
        write_store(_parts(), path, "benchmark")
        opening = seconds_per_call(lambda: open_store(path))
        began = time.perf_counter()
        stored = open_store(path)
        stored.check_stored()  # once for each block; what is measured below is all that comes after
        checking = time.perf_counter() - began
        pools = {small: Segments(_data(0), LENGTH), large: Segments(stored, LENGTH)}
        numbers = iter(range(10**9))
        seconds = seconds_of_each(
            {what: lambda pool=pool: _sample(pool, numbers) for what, pool in pools.items()},  # type: ignore[misc]
            at_least=2,
            warmup=20,
        )
    rates = {what: IN_TURN * BATCH / taken for what, taken in seconds.items()}
    asked = "above 1,000,000"
    return [
        *(Row("sampling", what, rate, "segments/s", asked) for what, rate in rates.items()),
        Row("sampling", "on disk / in memory", rates[large] / rates[small], "times", "equal"),
        Row("sampling", f"opening {large}", opening * 1e3, "ms", "below 50"),
        Row("sampling", f"comparing {large} with their digests, once", checking, "s"),
    ]


def _sample(segments: Segments, numbers: Iterator[int]) -> None:
    for _ in range(IN_TURN):
        segments.gather(segments.draw(BATCH, 0, next(numbers)))


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
