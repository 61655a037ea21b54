"""Parquet: one row per step, and a column that tells the episodes apart.

A column of numbers, or of lists of equal length, is a modality. A null is a gap. The files of
LeRobot's data sets are of this kind.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mtm.core.errors import DataError, require
from mtm.core.reading import AS_IT_IS, Reading
from mtm.data.columns import END_FLAGS, PRESENT, columns_to_read, dataset_of, episode_column
from mtm.data.memory_limits import Allowance
from mtm.data.trajectories import Metadata, TrajectoryDataset

EXTRA = "parquet"

BOOKKEEPING = ("timestamp", "frame_index", "index", "task_index", "next.done")
"""Columns of LeRobot's files that are no modalities."""


def load_file(path: Path, reading: Reading = AS_IT_IS) -> TrajectoryDataset:
    """Read a Parquet file.

    Raises:
        DataError: The file is damaged, a column is no number, or an episode is in two places.
        MissingExtraError: pyarrow is not installed.
    """
    parquet = require("pyarrow.parquet", extra=EXTRA)
    arrow_error = require("pyarrow", extra=EXTRA).ArrowException
    damage = (OSError, UnicodeDecodeError, arrow_error)
    try:
        names = parquet.read_schema(path).names
        chosen = columns_to_read(str(path), names, reading, BOOKKEEPING)
        _set_aside(parquet.read_metadata(path), chosen, Allowance(path))
        table = parquet.read_table(path, columns=chosen)
    except damage as error:
        raise DataError(f"{path} cannot be read as Parquet: {error}. Fetch it again.") from error
    arrays: dict[str, NDArray[Any]] = {}
    known: dict[str, NDArray[Any]] = {}
    for name in chosen:
        column = table.column(name).combine_chunks()
        arrays[name] = _numbers(path, name, column)
        if column.null_count and not _is_flag(name, chosen):
            known[name] = ~np.asarray(column.is_null())
    episode = episode_column(str(path), names, reading)
    if episode in known:
        raise DataError(
            f"{path}: column {episode!r} tells episodes apart, but is null in row "
            f"{int(np.argmin(known[episode]))}."
        )
    for name, where in known.items():
        mark = name + PRESENT
        arrays[mark] = np.logical_and(where, arrays.get(mark, True))
    return dataset_of(str(path), arrays, reading, Metadata(source=path.name))


def _set_aside(metadata: Any, columns: Collection[str], left: Allowance) -> None:
    """Count what the row groups say that they hold, before any of it is read.

    Single columns are not looked at: pyarrow ends the process where one is damaged.
    """
    everything = len(columns) >= metadata.num_columns
    for group in range(metadata.num_row_groups):
        rows = metadata.row_group(group)
        size = rows.total_byte_size if everything else 0
        left.take(f"row group {group}", max(rows.num_rows * 8 * len(columns), size))


def _numbers(path: Path, name: str, column: Any) -> NDArray[Any]:
    """A column as an array, (N,) or (N, width); what stands in place of its nulls is no value."""
    if _is_list(column):
        width = _width(path, name, column)
        values = column.drop_null().flatten()
    else:
        values = _filled(column)
    array: NDArray[Any] = values.to_numpy(zero_copy_only=False)
    if array.dtype.kind not in "fiub":
        raise DataError(
            f"{path}: column {name!r} holds {column.type}; numbers, or lists of numbers, are "
            "needed. Name the columns to read (--reading.columns on the command line, "
            "Reading(columns=...) in Python)."
        )
    if not _is_list(column):
        return array
    rows = np.zeros((len(column), width), array.dtype)
    known = ~np.asarray(column.is_null())
    rows[known] = array.reshape(known.sum(), width)
    return rows


def _width(path: Path, name: str, column: Any) -> int:
    """How many numbers each list of a column has."""
    lengths = np.asarray(column.value_lengths().fill_null(0))
    width = int(lengths.max(initial=0))
    fits = (lengths == width) | np.asarray(column.is_null())
    if not fits.all():
        row = int(np.argmin(fits))
        raise DataError(
            f"{path}: column {name!r} has {lengths[row]} numbers in row {row} and {width} in "
            "others; all rows need equally many."
        )
    return width


def _is_list(column: Any) -> bool:
    types = require("pyarrow.types", extra=EXTRA)
    return bool(
        types.is_list(column.type)
        or types.is_large_list(column.type)
        or types.is_fixed_size_list(column.type)
    )


def _filled(column: Any) -> Any:
    """A column without nulls, if they would make other numbers of integers and booleans."""
    types = require("pyarrow.types", extra=EXTRA)
    if types.is_integer(column.type):
        return column.fill_null(0)
    return column.fill_null(False) if types.is_boolean(column.type) else column


def _is_flag(name: str, names: Collection[str]) -> bool:
    """Whether a column marks ends of episodes, or where another is present; a null is no mark."""
    is_mark = name.endswith(PRESENT) and name.removesuffix(PRESENT) in names
    return is_mark or name in END_FLAGS
