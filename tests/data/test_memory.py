"""Memory: loading holds little more than the arrays, a batch of a store little more than itself."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from mtm.data import loading
from mtm.data.formats.store import open_store, write_store
from mtm.data.segments import Segments
from mtm.data.trajectories import TrajectoryDataset

STEPS = 200_000


def peak(action: Callable[[], object]) -> int:
    """The most bytes that an action has in use beyond what was there before."""
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.fixture
def arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = {"observations": (STEPS, 11), "actions": (STEPS, 3), "rewards": (STEPS,)}
    return {name: rng.random(shape, np.float32) for name, shape in shapes.items()}


def test_loading_takes_at_most_half_more_than_the_arrays(
    arrays: dict[str, np.ndarray], tmp_path: Path
) -> None:
    with h5py.File(tmp_path / "log.hdf5", "w") as file:
        for name, values in arrays.items():
            file[name] = values
        file["terminals"] = np.arange(STEPS) % 500 == 499
    size = sum(values.nbytes for values in arrays.values())
    loading.load(str(tmp_path / "log.hdf5"))  # what is loaded once for all files does not count
    assert peak(lambda: loading.load(str(tmp_path / "log.hdf5"))) < 1.5 * size


def test_a_store_is_not_copied_into_memory(arrays: dict[str, np.ndarray], tmp_path: Path) -> None:
    dataset = TrajectoryDataset.from_arrays(arrays, np.arange(0, STEPS + 1, 500))
    size = sum(values.nbytes for values in arrays.values())
    assert peak(lambda: write_store([dataset], tmp_path / "store", "log")) < size
    segments = Segments(open_store(tmp_path / "store"), 4)
    batch = 256 * 4 * size // STEPS
    assert peak(lambda: segments.gather(segments.draw(256, 0, 0))) < 2 * batch
