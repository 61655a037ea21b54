"""Flat arrays over all steps, as files hold them: which are modalities, where episodes end."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mtm.core.errors import DataError, unknown
from mtm.core.reading import Reading
from mtm.data.episode_bounds import as_flags, offsets_from_flags, offsets_from_labels
from mtm.data.modalities import (
    AUTOREGRESSIVE_ORDER,
    ROLE_OF_NAME,
    BoolArray,
    Modalities,
    Modality,
    Role,
    in_autoregressive_order,
    infer_modalities,
)
from mtm.data.trajectories import Metadata, TrajectoryDataset
from mtm.data.validate_arrays import as_offsets

TERMINALS = "terminals"
"""Flags of terminal states: an episode ended there, and not because its time was up."""

TIMEOUTS = "timeouts"
"""Flags of steps after which the time was up, or the recording stopped."""

END_FLAGS = (TERMINALS, TIMEOUTS)
"""Arrays that are not zero at the last step of an episode."""

OFFSETS = "offsets"
"""Where episodes begin, and the number of steps at the end: (E + 1,)."""

EPISODE_COLUMNS = ("episode", "episode_index", "episode_id", "trajectory_id")
"""Names that are taken for the column that tells episodes apart."""

PRESENT = "_present"
"""`NAME_present` holds booleans that say where modality NAME is present."""

INFOS = "infos/"
"""`infos/NAME` holds a note on each step, which is no modality unless it is named as a column."""

ROLES = "mtm_roles"
"""A note of a file: `NAME=ROLE` of modalities whose names do not tell their roles, by blanks."""

NUMBERS = ("return", "reward")
"""Roles whose values are numbers and never classes."""

MODALITY_NAMES = {
    "observations": "states",
    "observation": "states",
    "observation.state": "states",
    "action": "actions",
    "reward": "rewards",
    "next.reward": "rewards",
}
"""What others call otherwise than we do."""


class LackingError(DataError):
    """Data have nothing of some modalities that the reading names.

    Args:
        *faults: One for each of these modalities.
        names: The modalities.
    """

    def __init__(self, *faults: str, names: Iterable[str] = ()) -> None:
        super().__init__(*faults)
        self.names = tuple(names)

    def at(self, place: object) -> LackingError:
        """The same faults, each told with where it is."""
        return LackingError(*super().at(place).faults, names=self.names)


def dataset_of(
    source: str, arrays: Mapping[str, NDArray[Any]], reading: Reading, metadata: Metadata
) -> TrajectoryDataset:
    """A data set from a file's arrays.

    Episodes are told apart by a column, given by `offsets`, or end where `terminals` or `timeouts`
    is set.

    Raises:
        DataError: Nothing says where episodes end, a column is not there, or a value is at fault.
    """
    flags = {key: as_flags(source, key, arrays[key]) for key in END_FLAGS if key in arrays}
    arrays = {**arrays, **flags}
    offsets = _offsets(source, arrays, reading)
    values, present = _modalities(source, arrays, reading)
    notes = dict(metadata.notes)
    stated = _stated_roles(notes.pop(ROLES, ""))
    try:
        return TrajectoryDataset.from_arrays(
            values,
            offsets,
            modalities=declare(values, present, reading, stated),
            present=present,
            metadata=replace(metadata, notes=notes),
            nan_is_absent=reading.nan_is_absent,
            terminated=_terminated(arrays, np.asarray(offsets)),
        )
    except DataError as error:
        raise error.at(source) from error


def regroup(dataset: TrajectoryDataset, reading: Reading) -> TrajectoryDataset:
    """A loaded data set with its modalities joined and named as the user said.

    Raises:
        DataError: A modality that is asked for is not there.
    """
    if not reading.columns and not reading.roles:
        return dataset
    dataset.check_stored()
    arrays = dict(dataset.arrays) | {name + PRESENT: mask for name, mask in dataset.present.items()}
    values, present = _modalities(dataset.metadata.source, arrays, replace(reading, episode=None))
    own = {m.name: m for m in dataset.modalities}
    columns = reading.columns_of() or {name: (name,) for name in own}
    alone = {
        name: own[parts[0]]
        for name, parts in columns.items()
        if len(parts) == 1 and parts[0] in own
    }
    classes = {name: m.classes for name, m in alone.items()}
    stated = {name: m.role for name, m in alone.items() if _is_unusual(m)}
    return TrajectoryDataset.from_arrays(
        values,
        np.append(0, np.cumsum(dataset.lengths)),
        modalities=declare(values, present, reading, stated, classes),
        present=present,
        metadata=dataset.metadata,
        terminated=dataset.terminated,
    )


def roles_to_state(modalities: Iterable[Modality]) -> str:
    """What `ROLES` says of modalities, empty if all names tell the roles."""
    return " ".join(f"{m.name}={m.role}" for m in modalities if _is_unusual(m))


def declare(
    arrays: Mapping[str, NDArray[Any]],
    present: Mapping[str, NDArray[Any]],
    reading: Reading,
    stated: Mapping[str, Role] | None = None,
    classes: Mapping[str, int] | None = None,
) -> Modalities:
    """The modalities of arrays: guessed, with the roles that the file states or the user said.

    Args:
        arrays: Values by modality.
        present: Marks of presence by modality.
        reading: Says roles.
        stated: Roles that the file states; what the user says counts more.
        classes: Of discrete modalities, where they are known.

    Raises:
        LackingError: A role is given to a modality that is not there.
        DataError: Integers are hardly classes.
    """
    roles: Mapping[str, Any] = reading.roles
    lacking = [name for name in roles if name not in arrays]
    if lacking:
        faults = (unknown("modality in reading.roles:", name, arrays) for name in lacking)
        raise LackingError(*faults, names=lacking)
    said = {**(stated or {}), **roles}
    # Whole numbers would be guessed to be classes; what stands for them here has their shape.
    numbers = {
        name: np.zeros((1, *np.shape(values)[1:]))
        for name, values in arrays.items()
        if said.get(name) in NUMBERS
    }
    guessed = infer_modalities({**arrays, **numbers}, present, classes)
    return in_autoregressive_order([replace(m, role=said.get(m.name, m.role)) for m in guessed])


def episode_column(source: str, names: Iterable[str], reading: Reading) -> str | None:
    """The column that tells episodes apart, if there is one.

    Raises:
        DataError: The one that the user named is not there.
    """
    names = list(names)
    if reading.episode is not None and reading.episode not in names:
        raise DataError(f"{source}: {unknown('column', reading.episode, names)}")
    return reading.episode or next((name for name in EPISODE_COLUMNS if name in names), None)


def asked_columns(source: str, names: Collection[str], reading: Reading) -> list[str]:
    """The columns that the user names; none if all are to be read under their own names.

    Raises:
        LackingError: Some modalities have none of their columns among the names, others all.
        DataError: A modality has a part of its columns only, or no modality has any.
    """
    wanted = reading.columns_of()
    missing = {name: [c for c in columns if c not in names] for name, columns in wanted.items()}
    faults = [f"{source}: {unknown('column', m[0], names)}" for m in missing.values() if m]
    if not faults:
        return [column for columns in wanted.values() for column in columns]
    lacking = [name for name, columns in wanted.items() if len(missing[name]) == len(columns)]
    if len(lacking) < len(faults) or len(lacking) == len(wanted):
        raise DataError(*faults)
    raise LackingError(*faults, names=lacking)


def columns_to_read(
    source: str, names: Collection[str], reading: Reading, left_out: Collection[str]
) -> list[str]:
    """The columns that the user names, and what belongs to them: marks, and ends of episodes.

    Args:
        source: Told in errors.
        names: All that are there.
        reading: If it names none, all are read.
        left_out: But for these.

    Raises:
        DataError: As `asked_columns` and `episode_column`.
    """
    episode = episode_column(source, names, reading)
    asked = asked_columns(source, names, reading)
    if not asked:
        return [name for name in names if name not in left_out or name == episode]
    marks = [column + PRESENT for column in asked]
    beside = [name for name in names if name in (*marks, *END_FLAGS, OFFSETS, episode)]
    return list(dict.fromkeys([*asked, *beside]))


def as_horizon(source: object, value: Any) -> int | None:
    """The horizon that a file states as `max_episode_steps`.

    Raises:
        DataError: It is not a positive whole number.
    """
    if value is None:
        return None
    if isinstance(value, int | float) and value > 0 and float(value).is_integer():
        return int(value)
    raise DataError(f"{source}: max_episode_steps is {value!r}, not a positive whole number.")


def _offsets(source: str, arrays: Mapping[str, NDArray[Any]], reading: Reading) -> NDArray[Any]:
    lengths = {key: len(values) for key, values in arrays.items() if key != OFFSETS}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{key} {n:,}" for key, n in lengths.items())
        raise DataError(f"{source}: all arrays need one row per step, but have: {listed}.")
    labels = episode_column(source, arrays, reading)
    if labels is not None:
        return offsets_from_labels(source, labels, arrays[labels])
    if OFFSETS in arrays:
        return arrays[OFFSETS]
    flags = [arrays[key] for key in END_FLAGS if key in arrays]
    if not flags:
        raise DataError(
            f"{source}: nothing says where episodes end. Add {OFFSETS!r} (E + 1 integers), a flag "
            f"per step named {' or '.join(END_FLAGS)}, or name the column that tells episodes "
            "apart (--reading.episode on the command line, Reading(episode=...) in Python); the "
            f"file holds {', '.join(arrays)}."
        )
    ends = np.logical_or.reduce(flags)
    if not ends.any():
        silent = " and ".join(key for key in END_FLAGS if key in arrays)
        warnings.warn(
            f"{source}: {silent} never fire in {len(ends):,} steps; they are taken as one episode.",
            stacklevel=2,
        )
    return offsets_from_flags(ends)


def _terminated(arrays: Mapping[str, NDArray[Any]], offsets: NDArray[Any]) -> BoolArray | None:
    """The flag of the last step of each episode, if there are such flags."""
    if TERMINALS not in arrays:
        return None
    bounds = as_offsets(offsets)
    flags = arrays[TERMINALS]
    return flags[bounds[1:] - 1] if bounds[-1] == len(flags) else None


def _modalities(
    source: str, arrays: Mapping[str, NDArray[Any]], reading: Reading
) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]]]:
    """Values and marks of presence by modality, joined from columns if the user says so."""
    no_modality = (*END_FLAGS, OFFSETS, episode_column(source, arrays, reading))
    columns = {key: values for key, values in arrays.items() if key not in no_modality}
    masks = {
        key.removesuffix(PRESENT): columns.pop(key)
        for key in list(columns)
        if key.endswith(PRESENT) and key.removesuffix(PRESENT) in columns
    }
    if not columns:
        raise DataError(
            f"{source}: no modality found; the file holds {', '.join(arrays) or 'nothing'}."
        )
    asked_columns(source, columns, reading)
    values, present = {}, {}
    for name, parts in (reading.columns_of() or _usual_names(source, columns)).items():
        chosen = [columns[part] for part in parts]
        values[name] = (
            chosen[0]
            if len(chosen) == 1
            else np.concatenate(
                [np.asarray(part).reshape(len(part), -1) for part in chosen], axis=1
            )
        )
        marks = [as_flags(source, part + PRESENT, masks[part]) for part in parts if part in masks]
        if marks:
            present[name] = np.logical_and.reduce(marks)
    return values, present


def _usual_names(source: str, columns: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Modality -> its column, where the user names none."""
    found: dict[str, tuple[str, ...]] = {}
    for column in columns:
        name = MODALITY_NAMES.get(column, column)
        if name in found:
            raise DataError(
                f"{source}: {found[name][0]!r} and {column!r} are both taken for modality "
                f"{name!r}. Name the columns to read, such as {name}={column} (--reading.columns "
                "on the command line, Reading(columns=...) in Python)."
            )
        found[name] = (column,)
    return found


def _is_unusual(m: Modality) -> bool:
    """Whether its name does not tell its role."""
    return m.role != ROLE_OF_NAME.get(m.name, "state")


def _stated_roles(note: str) -> dict[str, Role]:
    """The inverse of `roles_to_state`; what is no role is left alone."""
    pairs = (word.rpartition("=") for word in note.split(" "))
    return {name: role for name, _, role in pairs if role in AUTOREGRESSIVE_ORDER}
