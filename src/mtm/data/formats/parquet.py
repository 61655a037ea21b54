"""Parquet: one row per step, and a column that tells the episodes apart.

A column of numbers, or of lists of equal length, is a modality. A null is a gap. The files of
LeRobot's data sets are of this kind.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from contextlib import contextmanager
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
    names = column_names(path)
    chosen = columns_to_read(str(path), names, reading, BOOKKEEPING)
    arrays = read_columns(path, chosen, Allowance(path))
    episode = episode_column(str(path), names, reading)
    if episode is not None and episode + PRESENT in arrays:
        raise DataError(
            f"{path}: column {episode!r} tells episodes apart, but is null in row "
            f"{int(np.argmin(arrays[episode + PRESENT]))}."
        )
    return dataset_of(str(path), arrays, reading, Metadata(source=path.name))


def column_names(path: Path) -> list[str]:
    """The columns of a file.

    Raises:
        DataError: The file is damaged.
        MissingExtraError: pyarrow is not installed.
    """
    with telling_damage(path):
        return list(require("pyarrow.parquet", extra=EXTRA).read_schema(path).names)


def read_columns(path: Path, chosen: Collection[str], left: Allowance) -> dict[str, NDArray[Any]]:
    """Columns as arrays, (N,) or (N, *shape), and `NAME_present` where one has nulls.

    Raises:
        DataError: The file is damaged, claims too much memory, or a column is no number.
        MissingExtraError: pyarrow is not installed.
    """
    parquet = require("pyarrow.parquet", extra=EXTRA)
    with telling_damage(path):
        set_aside(parquet.read_metadata(path), chosen, left)
        table = parquet.read_table(path, columns=list(chosen), partitioning=None)
    arrays: dict[str, NDArray[Any]] = {}
    known: dict[str, NDArray[Any]] = {}
    for name in chosen:
        column = table.column(name).combine_chunks()
        arrays[name] = numbers(path, name, column)
        if column.null_count and not _is_flag(name, chosen):
            known[name] = ~np.asarray(column.is_null())
    for name, where in known.items():
        mark = name + PRESENT
        arrays[mark] = np.logical_and(where, arrays.get(mark, True))
    return arrays


@contextmanager
def telling_damage(path: Path) -> Iterator[None]:
    """Tell what pyarrow raises inside as damage to a file.

    Raises:
        DataError: Something was raised.
        MissingExtraError: pyarrow is not installed.
    """
    arrow_error = require("pyarrow", extra=EXTRA).ArrowException
    try:
        yield
    except (OSError, UnicodeDecodeError, arrow_error) as error:
        raise DataError(f"{path} cannot be read as Parquet: {error}. Fetch it again.") from error


def set_aside(metadata: Any, columns: Collection[str], left: Allowance) -> None:
    """Count what the row groups say that they hold, before any of it is read.

    Single columns are not looked at: pyarrow ends the process where one is damaged.
    """
    everything = len(columns) >= metadata.num_columns
    for group in range(metadata.num_row_groups):
        rows = metadata.row_group(group)
        size = rows.total_byte_size if everything else 0
        left.take(f"row group {group}", max(rows.num_rows * 8 * len(columns), size))


def numbers(path: Path, name: str, column: Any) -> NDArray[Any]:
    """A column as an array, (N,) or (N, *shape); what stands in place of its nulls is no value."""
    known = ~np.asarray(column.is_null())
    shape: list[int] = []
    values = column
    while _is_list(values):  # lists of lists are rows of more than one axis
        shape.append(_width(path, name, values))
        values = values.drop_null().flatten()
    values = values if shape else _filled(values)
    array: NDArray[Any] = values.to_numpy(zero_copy_only=False)
    if array.dtype.kind not in "fiub":
        raise DataError(
            f"{path}: column {name!r} holds {column.type}; numbers, or lists of numbers, are "
            "needed. Name the columns to read (--reading.columns on the command line, "
            "Reading(columns=...) in Python)."
        )
    if not shape:
        return array
    rows = np.zeros((len(column), *shape), array.dtype)
    if array.size != known.sum() * math.prod(shape):
        raise DataError(f"{path}: column {name!r} has a null within a list; lists need all values.")
    rows[known] = array.reshape(known.sum(), *shape)
    return rows


def _width(path: Path, name: str, column: Any) -> int:
    """How many values each list of a column has."""
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


def depth(column: Any) -> int:
    """How many axes the values of a column have."""
    axes, kind = 0, column.type
    while _is_list_type(kind):
        axes, kind = axes + 1, kind.value_type
    return axes


def _is_list(column: Any) -> bool:
    return _is_list_type(column.type)


def _is_list_type(kind: Any) -> bool:
    types = require("pyarrow.types", extra=EXTRA)
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


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
