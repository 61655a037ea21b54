"""Trajectories in memory: flat arrays, one per modality, cut into episodes.

A value is *present* when it exists in the data. It may be absent for a whole episode (state-only
logs) or for single steps (gaps); what is stored in the place of an absent value means nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mtm.core.errors import DataError
from mtm.data import simulate_missing
from mtm.data import validate_arrays as validate
from mtm.data.fingerprint import fingerprint_of
from mtm.data.flattening import flatten, unmasked
from mtm.data.metadata import Metadata as Metadata
from mtm.data.modalities import (
    BoolArray,
    IntArray,
    Modalities,
    Modality,
    in_autoregressive_order,
    infer_modalities,
)
from mtm.data.splitting import episodes_to_hold_out
from mtm.data.stored_blocks import StoredBlocks

ABSENT_CLASS = -1
"""What `episode` gives in the place of an absent class, which no class is."""


class TrajectoryDataset:
    """Episodes of any number of modalities over shared flat arrays.

    Splits and selections are views: they share the arrays and differ in the episodes or the
    modalities that they list, so they cost O(episodes).

    Attributes:
        modalities: The streams, in autoregressive order.
        arrays: For each modality the values of all steps, (N, *shape).
        starts: First step of each episode, (E,).
        ends: One past the last step of each episode, (E,).
        present: (N,) booleans for each modality that is absent somewhere; a modality not listed is
            present everywhere.
        metadata: Source, environment, horizon.
        terminated: Whether each episode ended in a terminal state, rather than by a time limit or
            because the recording stopped, (E,); None if the source does not say. It is about the
            data and no part of them: it enters no fingerprint.
        blocks: Of a store, what its records were when written; None if all is in memory.
    """

    def __init__(
        self,
        modalities: Sequence[Modality],
        arrays: Mapping[str, NDArray[Any]],
        starts: IntArray,
        ends: IntArray,
        present: Mapping[str, BoolArray],
        metadata: Metadata,
        terminated: BoolArray | None = None,
        blocks: StoredBlocks | None = None,
    ) -> None:
        """Put checked parts together. Use `from_arrays` or `from_episodes`, which check."""
        self.modalities = Modalities(modalities)
        self.arrays = dict(arrays)
        self.starts = starts
        self.ends = ends
        self.present = dict(present)
        self.metadata = metadata
        self.terminated = terminated
        self.blocks = blocks

    @classmethod
    def from_arrays(
        cls,
        arrays: Mapping[str, ArrayLike],
        offsets: ArrayLike,
        *,
        modalities: Sequence[Modality] | None = None,
        present: Mapping[str, ArrayLike] | None = None,
        metadata: Metadata | None = None,
        nan_is_absent: bool = False,
        terminated: ArrayLike | None = None,
    ) -> TrajectoryDataset:
        """Build from flat arrays, checking everything.

        Args:
            arrays: For each modality the values of all steps, (N, *shape).
            offsets: Where episodes begin, and N at the end: (E + 1,).
            modalities: Names, kinds and order; guessed from names and dtypes where not given
                (a one-dimensional integer array is discrete, of 1,000 classes at most; declare
                those that have more).
            present: For each modality that is absent somewhere, (N,) booleans. A step that is
                masked (`numpy.ma`) is absent as well.
            metadata: Source, environment, horizon.
            nan_is_absent: Take a value with NaN in it as absent, rather than as a fault.
            terminated: Whether each episode ended in a terminal state, (E,) booleans, if known.

        Raises:
            DataError: With every fault: the modality and, where there is one, the episode and step.
        """
        if not arrays:
            raise DataError("a data set needs at least one modality, got none.")
        converted = {name: validate.as_array(name, values) for name, values in arrays.items()}
        bounds = validate.as_offsets(offsets)
        known = {name: np.asarray(mask) for name, mask in (present or {}).items()}
        for name, array in converted.items():
            if isinstance(array, np.ma.MaskedArray):
                converted[name] = array.data
                known[name] = known.get(name, True) & unmasked(array)
        marks = validate.presence_faults(known, converted)
        if modalities is None:
            validate.raise_if(marks)
            modalities = in_autoregressive_order(infer_modalities(converted, known))
        validate.raise_if(
            validate.misfits(tuple(modalities), converted, int(bounds[-1]))
            + marks
            + validate.ending_faults(terminated, len(bounds) - 1)
        )
        checked: dict[str, NDArray[Any]] = {}
        faults: list[str] = []
        for m in modalities:
            values = checked[m.name] = validate.with_dtype(m, converted[m.name])
            if nan_is_absent and m.kind == "continuous":
                gaps = np.isnan(values).reshape(len(values), -1).any(axis=1)
                if gaps.any():
                    known[m.name] = known.get(m.name, np.ones(len(values), bool)) & ~gaps
            faults += validate.value_faults(m, values, known.get(m.name), bounds)
        validate.raise_if(faults)
        known = {name: mask for name, mask in known.items() if not mask.all()}
        ends = None if terminated is None else np.asarray(terminated)
        metadata = metadata or Metadata()
        return cls(modalities, checked, bounds[:-1], bounds[1:], known, metadata, ends)

    @classmethod
    def from_episodes(
        cls,
        episodes: Sequence[Mapping[str, ArrayLike]],
        *,
        modalities: Sequence[Modality] | None = None,
        metadata: Metadata | None = None,
        nan_is_absent: bool = False,
        terminated: ArrayLike | None = None,
    ) -> TrajectoryDataset:
        """Build from a list of episodes, each a dict of (length, *shape) arrays.

        An episode may lack a modality that others have: it is absent there, and so is a step that
        is masked (`numpy.ma`).

        Raises:
            DataError: As `from_arrays`.
        """
        arrays, offsets, present = flatten(episodes)
        return cls.from_arrays(
            arrays,
            offsets,
            modalities=modalities,
            present=present,
            metadata=metadata,
            nan_is_absent=nan_is_absent,
            terminated=terminated,
        )

    def __repr__(self) -> str:
        shapes = ", ".join(f"{m.name}{list(m.shape)}" for m in self.modalities)
        return (
            f"TrajectoryDataset({self.num_episodes:,} episodes, {self.num_steps:,} steps: {shapes})"
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the modalities, in order."""
        return self.modalities.names

    @property
    def num_episodes(self) -> int:
        """How many episodes this view lists."""
        return len(self.starts)

    @property
    def lengths(self) -> IntArray:
        """Steps of each episode, (E,)."""
        return self.ends - self.starts

    @property
    def num_steps(self) -> int:
        """Steps of all episodes together."""
        return int(self.lengths.sum())

    def modality(self, name: str) -> Modality:
        """The modality of that name.

        Raises:
            DataError: There is none; the message lists the near ones.
        """
        return self.modalities.named(name)

    def episode(self, index: int) -> dict[str, NDArray[Any]]:
        """A copy of one episode: name -> (length, *shape).

        Where a value is absent there is NaN. Classes have no NaN: a discrete modality that is
        absent somewhere in the data set comes as a `numpy.ma.MaskedArray`, masked where it is, with
        -1 below the mask. `mtm.predict` takes both as gaps.
        """
        steps = slice(int(self.starts[index]), int(self.ends[index]))
        if self.blocks is not None:
            self.blocks.check(np.array([steps.start]), np.array([steps.stop - 1]))
        values = {name: array[steps].copy() for name, array in self.arrays.items()}
        for name, known in self.present.items():
            absent = ~known[steps]
            values[name][absent] = np.nan if values[name].dtype.kind == "f" else ABSENT_CLASS
            if values[name].dtype.kind != "f":
                values[name] = np.ma.MaskedArray(values[name], absent, fill_value=ABSENT_CLASS)
        return values

    def split(
        self, fraction: float = 0.05, seed: int = 0
    ) -> tuple[TrajectoryDataset, TrajectoryDataset]:
        """Hold out `fraction` of the episodes, drawn with `seed`; returns (rest, held out).

        Episodes that differ in which modalities they have are held out in equal shares.

        Raises:
            DataError: There are fewer than two episodes, so none can be held out.
        """
        if self.num_episodes < 2:
            raise DataError(
                f"cannot hold out episodes of a data set with {self.num_episodes} episode(s); at "
                "least 2 are needed. Cut the recording into episodes, or train with "
                "validation_fraction=0."
            )
        held_out = episodes_to_hold_out(self.present, self.starts, self.ends, fraction, seed)
        return self.subset(np.flatnonzero(~held_out)), self.subset(np.flatnonzero(held_out))

    def subset(self, episodes: ArrayLike) -> TrajectoryDataset:
        """A view of the episodes with these indices."""
        index = np.asarray(episodes, dtype=np.int64)
        ended = None if self.terminated is None else self.terminated[index]
        return self._with(starts=self.starts[index], ends=self.ends[index], terminated=ended)

    def select(self, names: Sequence[str]) -> TrajectoryDataset:
        """A view of these modalities, in this order.

        Raises:
            DataError: A name is not known.
        """
        return self._with(
            modalities=[self.modality(name) for name in names],
            arrays={name: self.arrays[name] for name in names},
            present={name: mask for name, mask in self.present.items() if name in names},
        )

    def with_modality(
        self, modality: Modality, values: NDArray[Any], present: BoolArray | None = None
    ) -> TrajectoryDataset:
        """This data set with one more modality, put at its place in the autoregressive order."""
        known = dict(self.present)
        if present is not None and not present.all():
            known[modality.name] = present
        return self._with(
            modalities=in_autoregressive_order([*self.modalities, modality]),
            arrays=self.arrays | {modality.name: values},
            present=known,
        )

    def with_present(self, present: Mapping[str, BoolArray]) -> TrajectoryDataset:
        """A view of the same values with other marks of presence, (N,), of some modalities."""
        marks = {**self.present, **present}
        return self._with(present={n: mask for n, mask in marks.items() if not mask.all()})

    def without(
        self,
        episodes: Mapping[str, float] | None = None,
        steps: Mapping[str, float] | None = None,
        *,
        seed: int = 0,
    ) -> TrajectoryDataset:
        """A view in which some values are absent, to simulate data that lack them.

        Args:
            episodes: Modality -> the share of the episodes that lose all of it. A share above 0
                takes it from one episode at least, a share below 1 leaves it to one at least. Those
                that keep it are spread evenly over the returns of the episodes, if there are any.
            steps: Modality -> the chance of each step to lose it.
            seed: Chooses them; each modality draws for itself.

        Raises:
            DataError: A modality is not known.
            ConfigError: A share is not within 0 to 1.
        """
        present = dict(self.present)
        worth = self._first_returns() if episodes else None
        for name, share in (episodes or {}).items():
            known = present.get(self.modality(name).name, self.known(name))
            present[name] = simulate_missing.without_episodes(
                name, known, self.starts, self.ends, share, seed, worth
            )
        for name, share in (steps or {}).items():
            known = present.get(self.modality(name).name, self.known(name))
            listed = self._listed(0, len(known))
            present[name] = simulate_missing.without_steps(name, known, listed, share, seed)
        return self.with_present(present)

    def with_metadata(self, **changes: Any) -> TrajectoryDataset:
        """This data set with some metadata fields changed."""
        changed = self._with(metadata=replace(self.metadata, **changes))
        if "fingerprint" in vars(self):  # the values are the same: they need not be read again
            changed.fingerprint = self.fingerprint
        return changed

    def known(self, name: str) -> BoolArray:
        """Where a modality is present, for every flat step, (N,)."""
        present = self.present.get(name)
        return np.ones(len(self.arrays[name]), bool) if present is None else present

    def chunks(self, name: str) -> Iterator[NDArray[Any]]:
        """The present values of a modality in this view's episodes, a bounded piece at a time."""
        array, known = self.arrays[name], self.present.get(name)
        for start in range(0, len(array), validate.CHUNK_STEPS):
            stop = min(start + validate.CHUNK_STEPS, len(array))
            if self.blocks is not None:
                self.blocks.check(np.array([start]), np.array([stop - 1]))
            chosen = self._listed(start, stop)
            if known is not None:
                chosen &= known[start:stop]
            if chosen.all():
                yield array[start:stop]
            elif chosen.any():
                yield array[start:stop][chosen]

    def count_present(self, name: str) -> int:
        """In how many of this view's steps the modality is present."""
        if name not in self.present:
            return self.num_steps
        return sum(len(chunk) for chunk in self.chunks(name))

    def present_steps(self, name: str) -> IntArray:
        """In how many steps of each episode the modality is present, (E,)."""
        if name not in self.present:
            return self.lengths
        until = np.append(0, np.cumsum(self.present[name], dtype=np.int64))
        steps: IntArray = until[self.ends] - until[self.starts]
        return steps

    @cached_property
    def fingerprint(self) -> str:
        """A hash of everything that the data set says: same data, same fingerprint."""
        return fingerprint_of(self)

    def check_stored(self) -> None:
        """Compare a store with what was written, before all of it is read; else a `DataError`."""
        if self.blocks is not None:
            self.blocks.check_all()

    def _with(self, **changes: Any) -> TrajectoryDataset:
        """A view that differs in some of its parts."""
        parts: dict[str, Any] = {
            "modalities": self.modalities,
            "arrays": self.arrays,
            "starts": self.starts,
            "ends": self.ends,
            "present": self.present,
            "metadata": self.metadata,
            "terminated": self.terminated,
            "blocks": self.blocks,
        }
        return TrajectoryDataset(**(parts | changes))

    def _first_returns(self) -> NDArray[np.float64] | None:
        """What episodes earned, up to a factor, (E,), NaN if absent; None if no modality tells."""
        found = self.modalities.of_role("return")
        if len(found) != 1 or found[0].kind != "continuous" or found[0].size != 1:
            return None
        self.check_stored()
        first = self.arrays[found[0].name][self.starts].reshape(-1).astype(np.float64)
        return np.where(self.known(found[0].name)[self.starts], first, np.nan)

    def _listed(self, start: int, stop: int) -> BoolArray:
        """Which of the flat steps start..stop belong to an episode of this view."""
        change = np.zeros(stop - start + 1, np.int64)
        np.add.at(change, np.clip(self.starts, start, stop) - start, 1)
        np.add.at(change, np.clip(self.ends, start, stop) - start, -1)
        listed: BoolArray = np.cumsum(change[:-1]) > 0
        return listed
