"""Batches of segments: T consecutive steps of one episode, gathered in one vectorised step.

Every segment of every episode is equally likely, unless a share of each batch is to come from
those that lack no modality. An episode shorter than T gives one segment, padded at the end; the
padding is marked absent. Memory beyond the data's own arrays: O(episodes), and O(gaps) for a share.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mtm.core.errors import DataError
from mtm.core.randomness import Purpose, generator
from mtm.data.modalities import BoolArray, IntArray
from mtm.data.trajectories import TrajectoryDataset

PAGE = 4096
"""Bytes that a machine reads from a file at least."""
CHUNK = 1 << 16
"""Segments looked at together when all are gone through."""


@dataclass(frozen=True)
class SegmentBatch:
    """B segments.

    Attributes:
        values: For each modality (B, T, *shape).
        present: Which tokens exist in the data, (B, T, M).
    """

    values: dict[str, NDArray[Any]]
    present: BoolArray


@dataclass(frozen=True)
class Ranges:
    """A choice of segments as ranges of their numbers: few, as gaps come in runs.

    Attributes:
        starts: First number of each range, (R,).
        counts_until: How many are chosen up to the end of each range, (R,).
    """

    starts: IntArray
    counts_until: IntArray

    @classmethod
    def of(cls, chosen: BoolArray) -> Ranges:
        """The ranges in which `chosen` is True."""
        edges = np.flatnonzero(np.diff(chosen, prepend=False, append=False))
        return cls(edges[::2], np.cumsum(edges[1::2] - edges[::2]))

    def __len__(self) -> int:
        return int(self.counts_until[-1]) if len(self.starts) else 0

    def draw(self, count: int, rng: np.random.Generator) -> IntArray:
        """Draw chosen numbers, all equally likely."""
        place = rng.integers(len(self), size=count)
        which = np.searchsorted(self.counts_until, place, side="right")
        before = np.where(which > 0, self.counts_until[which - 1], 0)
        numbers: IntArray = self.starts[which] + place - before
        return numbers


class Segments:
    """All segments of a data set, numbered 0 to `len`, ready to be gathered in batches.

    Args:
        dataset: The episodes.
        segment_length: T.
        complete_share: Least share of a drawn batch that comes from segments without gaps, if
            there are any; where more of all segments are complete, all are equally likely.

    Raises:
        DataError: Only complete segments shall be drawn, and there is none.
    """

    def __init__(
        self,
        dataset: TrajectoryDataset,
        segment_length: int,
        complete_share: float = 0.0,
    ) -> None:
        self.dataset = dataset
        self.segment_length = segment_length
        self._counts_until = np.cumsum(np.maximum(dataset.lengths - segment_length + 1, 1))
        self._all_full = bool(dataset.lengths.min() >= segment_length)
        self._values = {name: _Column.of(dataset.arrays[name]) for name in dataset.names}
        self._marks = {name: _Column.of(marks) for name, marks in dataset.present.items()}
        self._share = complete_share
        self._complete = self._others = None
        if complete_share > 0 and dataset.present:
            complete = self.complete()
            if complete_share == 1 and not complete.any():
                raise DataError(
                    "complete_share is 1, but no segment has all modalities at all of its "
                    f"{segment_length} steps. Lower it to learn from segments with gaps."
                )
            if 0 < complete.mean() < complete_share:
                self._complete, self._others = Ranges.of(complete), Ranges.of(~complete)

    def __len__(self) -> int:
        return int(self._counts_until[-1])

    def draw(self, batch_size: int, seed: int, step: int) -> IntArray:
        """The segment numbers of one training step, a pure function of (seed, step).

        Uniform; where too few segments are complete, uniform among these and among the others. A
        count that is not whole is rounded up or down by chance: the share is met on average.
        """
        rng = generator(seed, Purpose.SEGMENTS, step)
        if not self._complete or not self._others:
            return rng.integers(len(self), size=batch_size)
        count = int(self._share * batch_size + rng.random())
        return np.concatenate(
            [self._complete.draw(count, rng), self._others.draw(batch_size - count, rng)]
        )

    def sample(self, count: int, seed: int) -> IntArray:
        """`count` different segments (all, if there are fewer), always the same for a seed."""
        if len(self) <= count:
            return np.arange(len(self))
        return np.sort(generator(seed, Purpose.VALIDATION).choice(len(self), count, replace=False))

    def gather(self, numbers: IntArray) -> SegmentBatch:
        """The segments with these numbers."""
        steps, inside = self._steps(numbers)
        if self.dataset.blocks is not None:
            self.dataset.blocks.check(steps[:, 0], steps[:, -1])
        rows: dict[int, NDArray[Any]] = {}  # of each source, read once
        whole = inside is None
        values = {name: column.take(steps, whole, rows) for name, column in self._values.items()}
        marks = {name: column.take(steps, whole, rows) for name, column in self._marks.items()}
        return SegmentBatch(values, self._present(steps, inside, marks))

    def present(self, numbers: IntArray) -> BoolArray:
        """Only the presence of these segments, (B, T, M), without reading any value."""
        steps, inside = self._steps(numbers)
        return self._present(steps, inside, self._marks_at(steps))

    def complete(self) -> BoolArray:
        """Which segments lack no modality at any step; padding is no lack. (len,)."""
        found = np.empty(len(self), bool)
        for start in range(0, len(self), CHUNK):
            numbers = np.arange(start, min(start + CHUNK, len(self)))
            steps, _ = self._steps(numbers)
            found[numbers] = self._present(steps, None, self._marks_at(steps)).all(axis=(1, 2))
        return found

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

    def _marks_at(self, steps: IntArray) -> dict[str, NDArray[Any]]:
        return {name: known[steps] for name, known in self.dataset.present.items()}

    def _present(
        self, steps: IntArray, inside: BoolArray | None, marks: dict[str, NDArray[Any]]
    ) -> BoolArray:
        names = self.dataset.names
        present = np.ones((*steps.shape, len(names)), bool)
        for m, name in enumerate(names):
            if name in marks:
                present[:, :, m] = marks[name]
        if inside is not None:
            present &= inside[:, :, None]
        return present


@dataclass(frozen=True)
class _Column:
    """An array of a data set and where it lies: by itself, or as a field of records.

    The arrays of a store are fields of the same records. Reading whole records, once for all
    fields, touches each page of the file once, and new pages are what a random segment costs.
    Records larger than a page gain nothing by it and may hold more than is wanted (images).

    Attributes:
        source: The array, or the records.
        field: Which field of the records; None for an array by itself.
    """

    source: NDArray[Any]
    field: str | None

    @classmethod
    def of(cls, array: NDArray[Any]) -> _Column:
        """Find the records that an array is a field of, all of them from the first on."""
        base = array.base
        if isinstance(base, np.ndarray) and base.itemsize <= PAGE:
            for field in base.dtype.names or ():
                if base[field].__array_interface__ == array.__array_interface__:
                    return cls(base, field)
        return cls(array, None)

    def take(self, steps: IntArray, whole: bool, rows: dict[int, NDArray[Any]]) -> NDArray[Any]:
        """Its values at these steps, (B, T, *shape).

        Args:
            steps: (B, T).
            whole: Whether the steps of each segment follow each other.
            rows: What was read of each source so far.
        """
        if id(self.source) not in rows:
            rows[id(self.source)] = self._read(steps, whole)
        taken = rows[id(self.source)]
        return taken if self.field is None else taken[self.field]

    def _read(self, steps: IntArray, whole: bool) -> NDArray[Any]:
        if not self.source.flags.c_contiguous:
            strided: NDArray[Any] = self.source[steps]  # np.take would copy all of it first
            return strided
        if self.field is None or not whole:
            return np.take(self.source, steps, axis=0)
        return _take_runs(self.source, steps)


def _take_runs(records: NDArray[Any], steps: IntArray) -> NDArray[Any]:
    """Records of steps that follow each other, (B, T): each run is copied in one piece."""
    T, size = steps.shape[1], records.itemsize
    run = np.dtype((np.void, T * size))
    runs = np.ndarray((len(records) - T + 1,), run, records.view(np.uint8), 0, (size,))
    taken: NDArray[Any] = runs[steps[:, 0]].view(records.dtype).reshape(steps.shape)
    return taken
