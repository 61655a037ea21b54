"""RLDS's steps in Parquet, as exports of TFDS have them: nested, or a row per step.

A file is taken for RLDS if it has a column `steps` of lists of structures, a row per episode, or
else a column `is_first` or `is_last`, a row per step. In the second, episodes are told apart by a
column of the usual names, else by these flags. Structures are taken apart: `observation/state`.

The numbers of `observation`, those of one axis side by side in the order of their names, are
`states`, those of `action` are `actions`, `reward` is `rewards`. Of a last step RLDS says that only
its observation counts: it is left out. `is_terminal` says how an episode ended. Images and texts
are not even read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mtm.core.errors import DataError, require
from mtm.core.reading import AS_IT_IS, Reading
from mtm.data.columns import (
    EPISODE_COLUMNS,
    OFFSETS,
    PRESENT,
    TERMINALS,
    asked_columns,
    dataset_of,
)
from mtm.data.episode_bounds import as_flags, offsets_from_flags, offsets_from_labels
from mtm.data.formats import parquet
from mtm.data.memory_limits import Allowance
from mtm.data.modalities import BoolArray, IntArray
from mtm.data.trajectories import Metadata, TrajectoryDataset

STEPS = "steps"
FIRST, LAST, TERMINAL = "is_first", "is_last", "is_terminal"
NUMBERS = ("FLOAT", "DOUBLE", "INT32", "INT64", "BOOLEAN")
"""Parquet's types that are read."""

GROUPS = {"states": "observation", "actions": "action", "rewards": "reward"}
"""Modality -> the field that it is made of."""

Arrays: TypeAlias = dict[str, NDArray[Any]]
Columns: TypeAlias = dict[str, tuple[str, ...]]


def is_rlds(path: Path) -> bool:
    """Whether a Parquet file holds steps in RLDS's words.

    Raises:
        DataError: It is damaged.
        MissingExtraError: pyarrow is not installed.
    """
    types = require("pyarrow.types", extra=parquet.EXTRA)
    with parquet.telling_damage(path):
        schema = require("pyarrow.parquet", extra=parquet.EXTRA).read_schema(path)
    if STEPS in schema.names:
        kind = schema.field(STEPS).type
        is_list = types.is_list(kind) or types.is_large_list(kind)
        return bool(is_list and types.is_struct(kind.value_type))
    return FIRST in schema.names or LAST in schema.names


def load_file(path: Path, reading: Reading = AS_IT_IS) -> TrajectoryDataset:
    """Read a file.

    Raises:
        DataError: It is damaged, nothing tells episodes apart, or a value is at fault.
        MissingExtraError: pyarrow is not installed.
    """
    arrays, offsets = _read(path, reading)
    flags = {
        name: as_flags(path, name, arrays.pop(name))
        for name in (FIRST, LAST, TERMINAL)
        if name in arrays and name not in _asked(reading)
    }
    arrays = {name: values for name, values in arrays.items() if name not in EPISODE_COLUMNS}
    kept, offsets = _without_last(flags.get(LAST), offsets)
    columns = reading.columns_of() or _usual(path, arrays)
    asked_columns(str(path), arrays, replace(reading, columns={**columns}))
    found: Arrays = {name: values[kept] for name, values in arrays.items()}
    found[OFFSETS] = offsets
    if TERMINAL in flags:
        ends = np.append(np.flatnonzero(kept), len(kept))
        ended = np.logical_or.reduceat(flags[TERMINAL], ends[:-1]) if len(ends) > 1 else kept[:0]
        found[TERMINALS] = ended
    chosen = replace(reading, columns={**columns}, episode=None)
    return dataset_of(str(path), found, chosen, Metadata(path.name))


def _asked(reading: Reading) -> set[str]:
    return {part for parts in reading.columns_of().values() for part in parts}


def _read(path: Path, reading: Reading) -> tuple[Arrays, IntArray]:
    """All numbers of a file, a row per step, and where episodes begin."""
    library = require("pyarrow.parquet", extra=parquet.EXTRA)
    with parquet.telling_damage(path), library.ParquetFile(path) as file:
        leaves = [file.schema.column(i) for i in range(len(file.schema))]
        chosen = [leaf.path for leaf in leaves if leaf.physical_type in NUMBERS]
        parquet.set_aside(file.metadata, chosen, Allowance(path))
        table = file.read(columns=chosen)
    columns = {name: table.column(name).combine_chunks() for name in table.column_names}
    if STEPS not in columns:
        arrays = dict(_numbers(path, columns))
        return arrays, _bounds(path, arrays, reading)
    steps = columns[STEPS]
    lengths = np.asarray(steps.value_lengths().fill_null(0))
    if not len(lengths) or not lengths.all():
        raise DataError(f"{path}: the episode of row {int(np.argmin(lengths))} has no steps.")
    taken = steps.flatten()
    inside = dict(zip((f.name for f in taken.type), taken.flatten(), strict=True))
    return dict(_numbers(path, inside)), np.append(0, np.cumsum(lengths))


def _numbers(path: Path, columns: dict[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Arrays of numbers by name; structures are taken apart, images left out."""
    types = require("pyarrow.types", extra=parquet.EXTRA)
    for name, column in columns.items():
        if types.is_struct(column.type):
            parts = dict(zip((f.name for f in column.type), column.flatten(), strict=True))
            yield from _numbers(path, parts, f"{before}{name}/")
        elif parquet.depth(column) < 3:
            yield before + name, parquet.numbers(path, before + name, column)
            if column.null_count:
                yield before + name + PRESENT, ~np.asarray(column.is_null())


def _bounds(path: Path, arrays: Arrays, reading: Reading) -> IntArray:
    """Where episodes of a table with a row per step begin."""
    label = reading.episode or next((name for name in EPISODE_COLUMNS if name in arrays), None)
    if label is not None:
        if label not in arrays:
            raise DataError(f"{path}: there is no column {label!r} of numbers.")
        return offsets_from_labels(str(path), label, arrays[label])
    if LAST in arrays:
        return offsets_from_flags(as_flags(path, LAST, arrays[LAST]))
    begins = as_flags(path, FIRST, arrays[FIRST])
    return offsets_from_flags(np.append(begins[1:], True))


def _without_last(last: BoolArray | None, offsets: IntArray) -> tuple[BoolArray, IntArray]:
    """Which steps to keep, and where episodes begin then; an only step is kept."""
    kept = np.ones(int(offsets[-1]), bool)
    ends = offsets[1:] - 1
    if last is not None:
        kept[ends] = ~last[ends] | (np.diff(offsets) == 1)
    until = np.append(0, np.cumsum(kept))
    return kept, until[offsets]


def _usual(path: Path, arrays: Arrays) -> Columns:
    """Modality -> its columns, where the user names none."""
    found: Columns = {}
    for modality, group in GROUPS.items():
        parts = [n for n in arrays if n == group or n.startswith((f"{group}/", f"{group}."))]
        flat = tuple(sorted(n for n in parts if arrays[n].ndim <= 2 and not n.endswith(PRESENT)))
        if flat:
            found[modality] = flat
    if not found:
        raise DataError(
            f"{path}: none of {', '.join(GROUPS.values())} holds numbers; there are "
            f"{', '.join(arrays) or 'none'}. Name the columns to read (--reading.columns)."
        )
    return found
