"""Batches of segments: T consecutive steps of one episode, gathered in one vectorised step.

Every segment of every episode is equally likely. An episode shorter than T gives one segment,
padded at the end; the padding is marked absent. Memory beyond the data's own arrays: O(episodes).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mtm.modalities import BoolArray, IntArray
from mtm.randomness import Purpose, generator
from mtm.trajectories import TrajectoryDataset


@dataclass(frozen=True)
class Batch:
    """B segments.

    Attributes:
        values: For each modality (B, T, *shape).
        present: Which tokens exist in the data, (B, T, M).
    """

    values: dict[str, NDArray[Any]]
    present: BoolArray


class Segments:
    """All segments of a data set, numbered 0 to `len`, ready to be gathered in batches."""

    def __init__(self, dataset: TrajectoryDataset, segment_length: int) -> None:
        self.dataset = dataset
        self.segment_length = segment_length
        self._counts_until = np.cumsum(np.maximum(dataset.lengths - segment_length + 1, 1))
        self._all_full = bool(dataset.lengths.min() >= segment_length)

    def __len__(self) -> int:
        return int(self._counts_until[-1])

    def draw(self, batch_size: int, seed: int, step: int) -> IntArray:
        """The segment numbers of one training step: uniform, a pure function of (seed, step)."""
        rng = generator(seed, Purpose.SEGMENTS, step)
        return rng.integers(len(self), size=batch_size)

    def spread(self, count: int, seed: int) -> IntArray:
        """`count` different segments (all, if there are fewer), always the same for a seed."""
        if len(self) <= count:
            return np.arange(len(self))
        return np.sort(generator(seed, Purpose.VALIDATION).choice(len(self), count, replace=False))

    def gather(self, numbers: IntArray) -> Batch:
        """The segments with these numbers."""
        steps, inside = self._steps(numbers)
        values = {
            name: np.take(self.dataset.arrays[name], steps, axis=0) for name in self.dataset.names
        }
        return Batch(values, self._present(steps, inside))

    def present(self, numbers: IntArray) -> BoolArray:
        """Only the presence of these segments, (B, T, M), without reading any value."""
        return self._present(*self._steps(numbers))

    def _steps(self, numbers: IntArray) -> tuple[IntArray, BoolArray | None]:
        """Flat steps (B, T), and which of them are inside the episode (None: all)."""
        episodes = np.searchsorted(self._counts_until, numbers, side="right")
        before = np.where(episodes > 0, self._counts_until[episodes - 1], 0)
        first = self.dataset.starts[episodes] + numbers - before
        steps = first[:, None] + np.arange(self.segment_length)
        if self._all_full:
            return steps, None
        last = self.dataset.ends[episodes, None] - 1
        return np.minimum(steps, last), steps <= last

    def _present(self, steps: IntArray, inside: BoolArray | None) -> BoolArray:
        names = self.dataset.names
        present = np.ones((*steps.shape, len(names)), bool)
        for m, name in enumerate(names):
            if name in self.dataset.present:
                present[:, :, m] = self.dataset.present[name][steps]
        if inside is not None:
            present &= inside[:, :, None]
        return present
