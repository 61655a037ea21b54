"""Trajectories in memory: flat arrays, one per modality, cut into episodes.

Legend of letters, used in every file: `B` batch, `T` time (segment length), `M` modalities,
`L = T*M` tokens, `D` width, `N` steps of a data set, `E` episodes.

A value is *present* when it exists in the data. It may be absent for a whole episode (state-only
logs) or for single steps (gaps); what is stored in the place of an absent value means nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mtm.errors import DataError, unknown
from mtm.randomness import Purpose, generator

Kind: TypeAlias = Literal["continuous", "discrete"]
Role: TypeAlias = Literal["state", "return", "action", "reward"]
BoolArray: TypeAlias = NDArray[np.bool_]
IntArray: TypeAlias = NDArray[np.int64]

ROLE_OF_NAME: dict[str, Role] = {"returns": "return", "actions": "action", "rewards": "reward"}
"""Names that carry a role by themselves; every other name is something observed, a state."""

AUTOREGRESSIVE_ORDER: tuple[Role, ...] = ("state", "return", "action", "reward")
"""Default order of the modalities within a time step: what is known before what."""

CHUNK_STEPS = 1 << 18
"""Steps looked at together when a whole array is read, so that memory-mapped sets stay on disk."""


@dataclass(frozen=True)
class Modality:
    """A named stream of values.

    Attributes:
        name: Any identifier; `states`, `returns`, `actions` and `rewards` imply their role.
        shape: Shape of one value; `()` for a scalar.
        kind: `continuous` (regressed) or `discrete` (one of `classes` categories).
        classes: Number of categories of a discrete modality, else 0.
        role: What the stream is to an agent; the named masks are written in roles, so that they
            work for any names.
    """

    name: str
    shape: tuple[int, ...] = ()
    kind: Kind = "continuous"
    classes: int = 0
    role: Role = "state"

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise DataError(f"a modality's name must be an identifier, got {self.name!r}.")
        if self.kind not in get_args(Kind):
            raise DataError(unknown(f"kind of modality {self.name!r}:", self.kind, get_args(Kind)))
        if self.role not in get_args(Role):
            raise DataError(unknown(f"role of modality {self.name!r}:", self.role, get_args(Role)))
        if self.kind == "discrete" and (self.shape != () or self.classes < 1):
            raise DataError(
                f"modality {self.name!r}: a discrete value is one integer of at least 1 class, got "
                f"shape {self.shape} and {self.classes} classes. Split several integers per step "
                "into several modalities."
            )

    @property
    def size(self) -> int:
        """Numbers in one value."""
        return int(np.prod(self.shape, dtype=np.int64))

    def to_json(self) -> dict[str, Any]:
        """Plain data, for a run's `config.json`."""
        return asdict(self) | {"shape": list(self.shape)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Modality:
        """The inverse of `to_json`."""
        return cls(**{**data, "shape": tuple(data["shape"])})


@dataclass(frozen=True)
class Metadata:
    """Where a data set comes from and which environment it belongs to."""

    source: str = "memory"
    env_id: str | None = None
    horizon: int | None = None
    """Longest an episode can get in the environment, in steps."""
    notes: dict[str, str] = field(default_factory=dict)


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
    """

    def __init__(
        self,
        modalities: Sequence[Modality],
        arrays: Mapping[str, NDArray[Any]],
        starts: IntArray,
        ends: IntArray,
        present: Mapping[str, BoolArray],
        metadata: Metadata,
    ) -> None:
        """Put checked parts together. Use `from_arrays` or `from_episodes`, which check."""
        self.modalities = tuple(modalities)
        self.arrays = dict(arrays)
        self.starts = starts
        self.ends = ends
        self.present = dict(present)
        self.metadata = metadata

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
    ) -> TrajectoryDataset:
        """Build from flat arrays, checking everything.

        Args:
            arrays: For each modality the values of all steps, (N, *shape).
            offsets: Where episodes begin, and N at the end: (E + 1,).
            modalities: Names, kinds and order; guessed from names and dtypes where not given
                (a one-dimensional integer array is discrete).
            present: For each modality that is absent somewhere, (N,) booleans.
            metadata: Source, environment, horizon.
            nan_is_absent: Take a value with NaN in it as absent, rather than as a fault.

        Raises:
            DataError: Naming the modality and, where there is one, the episode and the step.
        """
        if not arrays:
            raise DataError("a data set needs at least one modality, got none.")
        converted = {name: _as_array(name, values) for name, values in arrays.items()}
        bounds = _check_offsets(offsets)
        modalities = _infer_modalities(converted) if modalities is None else tuple(modalities)
        _check_names(modalities, converted)
        _check_lengths(converted, int(bounds[-1]))
        known = _check_presence(present or {}, converted)
        checked: dict[str, NDArray[Any]] = {}
        for modality in modalities:
            values = _with_dtype(modality, converted[modality.name])
            if nan_is_absent and modality.kind == "continuous":
                gaps = np.isnan(values).reshape(len(values), -1).any(axis=1)
                if gaps.any():
                    known[modality.name] = known.get(modality.name, np.ones(len(values), bool)) & (
                        ~gaps
                    )
            _check_values(modality, values, known.get(modality.name), bounds)
            checked[modality.name] = values
        known = {name: mask for name, mask in known.items() if not mask.all()}
        return cls(modalities, checked, bounds[:-1], bounds[1:], known, metadata or Metadata())

    @classmethod
    def from_episodes(
        cls,
        episodes: Sequence[Mapping[str, ArrayLike]],
        *,
        modalities: Sequence[Modality] | None = None,
        metadata: Metadata | None = None,
        nan_is_absent: bool = False,
    ) -> TrajectoryDataset:
        """Build from a list of episodes, each a dict of (length, *shape) arrays.

        An episode may lack a modality that others have: it is absent there.

        Raises:
            DataError: As `from_arrays`.
        """
        if not episodes:
            raise DataError("the data set is empty: it has no episodes.")
        parts = [{name: _as_array(name, v) for name, v in e.items()} for e in episodes]
        lengths = [_episode_length(i, part) for i, part in enumerate(parts)]
        names = list(dict.fromkeys(name for part in parts for name in part))
        arrays, present = {}, {}
        for name in names:
            example = next(part[name] for part in parts if name in part)
            for i, part in enumerate(parts):
                if name in part and part[name].shape[1:] != example.shape[1:]:
                    raise DataError(
                        f"modality {name!r} has shape {part[name].shape[1:]} in episode {i}, "
                        f"but {example.shape[1:]} in an earlier one; all episodes must agree."
                    )
            arrays[name] = np.concatenate(
                [
                    part.get(name, np.zeros((n, *example.shape[1:]), example.dtype))
                    for part, n in zip(parts, lengths, strict=True)
                ]
            )
            present[name] = np.repeat([name in part for part in parts], lengths)
        return cls.from_arrays(
            arrays,
            np.concatenate([[0], np.cumsum(lengths)]),
            modalities=modalities,
            present=present,
            metadata=metadata,
            nan_is_absent=nan_is_absent,
        )

    def __repr__(self) -> str:
        shapes = ", ".join(f"{m.name}{list(m.shape)}" for m in self.modalities)
        return (
            f"TrajectoryDataset({self.num_episodes:,} episodes, {self.num_steps:,} steps: {shapes})"
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the modalities, in order."""
        return tuple(m.name for m in self.modalities)

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
        for modality in self.modalities:
            if modality.name == name:
                return modality
        raise DataError(unknown("modality", name, self.names))

    def episode(self, index: int) -> dict[str, NDArray[Any]]:
        """A copy of one episode: name -> (length, *shape)."""
        steps = slice(int(self.starts[index]), int(self.ends[index]))
        return {name: array[steps].copy() for name, array in self.arrays.items()}

    def split(
        self, fraction: float = 0.05, seed: int = 0
    ) -> tuple[TrajectoryDataset, TrajectoryDataset]:
        """Hold out `fraction` of the episodes, drawn with `seed`; returns (rest, held out).

        Raises:
            DataError: There are fewer than two episodes, so none can be held out.
        """
        if self.num_episodes < 2:
            raise DataError(
                f"cannot hold out episodes of a data set with {self.num_episodes} episode(s); at "
                "least 2 are needed. Cut the recording into episodes, or train with "
                "validation_fraction=0."
            )
        held_out = min(max(round(fraction * self.num_episodes), 1), self.num_episodes - 1)
        order = generator(seed, Purpose.SPLIT).permutation(self.num_episodes)
        return (
            self.subset(np.sort(order[held_out:])),
            self.subset(np.sort(order[:held_out])),
        )

    def subset(self, episodes: ArrayLike) -> TrajectoryDataset:
        """A view of the episodes with these indices."""
        index = np.asarray(episodes, dtype=np.int64)
        return TrajectoryDataset(
            self.modalities,
            self.arrays,
            self.starts[index],
            self.ends[index],
            self.present,
            self.metadata,
        )

    def select(self, names: Sequence[str]) -> TrajectoryDataset:
        """A view of these modalities, in this order.

        Raises:
            DataError: A name is not known.
        """
        return TrajectoryDataset(
            [self.modality(name) for name in names],
            {name: self.arrays[name] for name in names},
            self.starts,
            self.ends,
            {name: mask for name, mask in self.present.items() if name in names},
            self.metadata,
        )

    def with_modality(
        self, modality: Modality, values: NDArray[Any], present: BoolArray | None = None
    ) -> TrajectoryDataset:
        """This data set with one more modality, put at its place in the autoregressive order."""
        known = dict(self.present)
        if present is not None and not present.all():
            known[modality.name] = present
        return TrajectoryDataset(
            in_autoregressive_order([*self.modalities, modality]),
            self.arrays | {modality.name: values},
            self.starts,
            self.ends,
            known,
            self.metadata,
        )

    def with_metadata(self, **changes: Any) -> TrajectoryDataset:
        """This data set with some metadata fields changed."""
        return TrajectoryDataset(
            self.modalities,
            self.arrays,
            self.starts,
            self.ends,
            self.present,
            replace(self.metadata, **changes),
        )

    def known(self, name: str) -> BoolArray:
        """Where a modality is present, for every flat step, (N,)."""
        present = self.present.get(name)
        return np.ones(len(self.arrays[name]), bool) if present is None else present

    def chunks(self, name: str) -> Iterator[NDArray[Any]]:
        """The present values of a modality in this view's episodes, a bounded piece at a time."""
        array, known = self.arrays[name], self.present.get(name)
        for start in range(0, len(array), CHUNK_STEPS):
            stop = min(start + CHUNK_STEPS, len(array))
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

    @cached_property
    def fingerprint(self) -> str:
        """A hash of everything that the data set says: same data, same fingerprint."""
        digest = hashlib.sha256()
        for modality in self.modalities:
            digest.update(repr(sorted(modality.to_json().items())).encode())
            array = self.arrays[modality.name]
            for start in range(0, len(array), CHUNK_STEPS):
                digest.update(np.ascontiguousarray(array[start : start + CHUNK_STEPS]).data)
            if modality.name in self.present:
                digest.update(np.packbits(self.present[modality.name]).data)
        digest.update(np.ascontiguousarray(self.starts).data)
        digest.update(np.ascontiguousarray(self.ends).data)
        return digest.hexdigest()[:16]

    def _listed(self, start: int, stop: int) -> BoolArray:
        """Which of the flat steps start..stop belong to an episode of this view."""
        change = np.zeros(stop - start + 1, np.int64)
        np.add.at(change, np.clip(self.starts, start, stop) - start, 1)
        np.add.at(change, np.clip(self.ends, start, stop) - start, -1)
        listed: BoolArray = np.cumsum(change[:-1]) > 0
        return listed


def in_autoregressive_order(modalities: Sequence[Modality]) -> tuple[Modality, ...]:
    """Sort by role, keeping the given order among equals."""
    return tuple(sorted(modalities, key=lambda m: AUTOREGRESSIVE_ORDER.index(m.role)))


def infer_modality(name: str, values: NDArray[Any]) -> Modality:
    """Guess the modality that an array of values, (N, *shape), stands for."""
    role = ROLE_OF_NAME.get(name, "state")
    is_category = values.ndim == 1 and values.dtype.kind in "iu"
    if is_category and role not in ("return", "reward"):
        classes = int(values.max(initial=0)) + 1
        return Modality(name, (), "discrete", classes, role)
    return Modality(name, tuple(values.shape[1:]), "continuous", 0, role)


def _infer_modalities(arrays: Mapping[str, NDArray[Any]]) -> tuple[Modality, ...]:
    return in_autoregressive_order([infer_modality(n, a) for n, a in arrays.items()])


def _as_array(name: str, values: ArrayLike) -> NDArray[Any]:
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise DataError(f"modality {name!r} is not a regular array: {error}.") from error
    if array.dtype.kind not in "fiub":
        raise DataError(
            f"modality {name!r} has dtype {array.dtype}; allowed are floating point, integer and "
            "boolean numbers."
        )
    if array.ndim == 0:
        raise DataError(f"modality {name!r} is a single number; a value per step is needed.")
    return array


def _check_offsets(offsets: ArrayLike) -> IntArray:
    bounds = np.asarray(offsets)
    if bounds.ndim != 1 or bounds.dtype.kind not in "iu":
        raise DataError(
            f"offsets must be a one-dimensional integer array, got {bounds.dtype} of shape "
            f"{bounds.shape}."
        )
    bounds = bounds.astype(np.int64)
    if len(bounds) < 2 or bounds[-1] == 0:
        raise DataError("the data set is empty: it has no steps.")
    if bounds[0] != 0:
        raise DataError(f"offsets must begin with 0, got {bounds[0]}.")
    lengths = np.diff(bounds)
    if (lengths <= 0).any():
        episode = int(np.argmax(lengths <= 0))
        what = "has length 0" if lengths[episode] == 0 else "ends before it begins"
        raise DataError(
            f"episode {episode} {what} (offsets {bounds[episode]} and {bounds[episode + 1]}); "
            "every episode needs at least one step."
        )
    return bounds


def _check_names(modalities: Sequence[Modality], arrays: Mapping[str, NDArray[Any]]) -> None:
    names = [m.name for m in modalities]
    if len(set(names)) != len(names):
        raise DataError(f"modality names must differ, got {', '.join(names)}.")
    for modality in modalities:
        if modality.name not in arrays:
            raise DataError(unknown("modality", modality.name, arrays))
        shape = arrays[modality.name].shape[1:]
        if shape != modality.shape:
            raise DataError(
                f"modality {modality.name!r} is declared with shape {modality.shape}, its array "
                f"holds values of shape {shape}."
            )


def _check_lengths(arrays: Mapping[str, NDArray[Any]], steps: int) -> None:
    lengths = {name: len(array) for name, array in arrays.items()}
    if set(lengths.values()) != {steps}:
        listed = ", ".join(f"{name} {length:,}" for name, length in lengths.items())
        raise DataError(
            f"all modalities need one value per step; the episodes have {steps:,} steps, the "
            f"arrays have: {listed}."
        )


def _check_presence(
    present: Mapping[str, ArrayLike], arrays: Mapping[str, NDArray[Any]]
) -> dict[str, BoolArray]:
    known = {}
    for name, mask in present.items():
        if name not in arrays:
            raise DataError(unknown("modality in `present`:", name, arrays))
        checked = np.asarray(mask)
        if checked.dtype != np.bool_ or checked.shape != (len(arrays[name]),):
            raise DataError(
                f"present[{name!r}] must be {len(arrays[name]):,} booleans, one per step, got "
                f"{checked.dtype} of shape {checked.shape}."
            )
        known[name] = checked
    return known


def _with_dtype(modality: Modality, values: NDArray[Any]) -> NDArray[Any]:
    if modality.kind == "continuous":
        return np.ascontiguousarray(values, dtype=np.float32)
    if values.dtype.kind not in "iu":
        raise DataError(
            f"modality {modality.name!r} is discrete and needs integers, got {values.dtype}."
        )
    return np.ascontiguousarray(values, dtype=np.int64)


def _check_values(
    modality: Modality, values: NDArray[Any], present: BoolArray | None, bounds: IntArray
) -> None:
    for start in range(0, len(values), CHUNK_STEPS):
        chunk = values[start : start + CHUNK_STEPS]
        if modality.kind == "continuous":
            faulty = ~np.isfinite(chunk).reshape(len(chunk), -1).all(axis=1)
        else:
            faulty = (chunk < 0) | (chunk >= modality.classes)
        if present is not None:
            faulty &= present[start : start + CHUNK_STEPS]
        if faulty.any():
            raise DataError(_describe_fault(modality, values, bounds, start + int(faulty.argmax())))


def _describe_fault(modality: Modality, values: NDArray[Any], bounds: IntArray, index: int) -> str:
    episode = int(np.searchsorted(bounds, index, side="right")) - 1
    step = index - int(bounds[episode])
    where = f"modality {modality.name!r}, episode {episode}, step {step}"
    if modality.kind == "discrete":
        return f"{where}: class {values[index]} is outside 0 to {modality.classes - 1}."
    value = values[index].reshape(-1)
    feature = int(np.argmin(np.isfinite(value)))
    return (
        f"{where}: feature {feature} is {value[feature]}. Repair the value, or mark it absent "
        "(present=..., or nan_is_absent=True for NaN)."
    )


def _episode_length(index: int, episode: Mapping[str, NDArray[Any]]) -> int:
    lengths = {name: len(array) for name, array in episode.items()}
    if not lengths or 0 in lengths.values():
        raise DataError(f"episode {index} has length 0; every episode needs at least one step.")
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise DataError(f"episode {index}: modalities of different length: {listed}.")
    return next(iter(lengths.values()))
