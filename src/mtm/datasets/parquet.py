"""Parquet: one row per step, and a column that tells the episodes apart.

A column of numbers, or of lists of equal length, is a modality. A null is a gap. The files of
LeRobot's data sets are of this kind.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mtm.config import AS_IT_IS, Reading
from mtm.datasets.layout import END_FLAGS, PRESENT, dataset_of, episode_column
from mtm.errors import DataError, require, unknown
from mtm.trajectories import Metadata, TrajectoryDataset

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
    except damage as error:
        raise DataError(f"{path} cannot be read as Parquet: {error}. Fetch it again.") from error
    chosen = _wanted(str(path), names, reading)
    try:
        table = parquet.read_table(path, columns=chosen)
    except damage as error:
        raise DataError(f"{path} cannot be read as Parquet: {error}. Fetch it again.") from error
    arrays: dict[str, NDArray[Any]] = {}
    for name in chosen:
        _add_column(path, name, table.column(name).combine_chunks(), arrays)
    return dataset_of(str(path), arrays, reading, Metadata(source=path.name))


def _wanted(source: str, names: list[str], reading: Reading) -> list[str]:
    """The columns to read: those of the user, else all that can be modalities."""
    episode = episode_column(source, names, reading)
    asked = [column for columns in reading.columns_of().values() for column in columns]
    for column in asked:
        if column not in names:
            raise DataError(f"{source}: {unknown('column', column, names)}")
    chosen = asked or [name for name in names if name not in BOOKKEEPING]
    ends = [episode] if episode else [flag for flag in END_FLAGS if flag in names]
    return list(dict.fromkeys([*chosen, *ends]))


def _add_column(path: Path, name: str, column: Any, arrays: dict[str, NDArray[Any]]) -> None:
    """A column as an array, (N,) or (N, width), and the marks of its nulls."""
    values, known = column, None
    if column.null_count:
        known = ~np.asarray(column.is_null())
    if _is_list(column):
        lengths = np.asarray(column.value_lengths().fill_null(0))
        width = int(lengths.max(initial=0))
        full = lengths == width if known is None else (lengths == width) | ~known
        if not full.all():
            row = int(np.argmin(full))
            raise DataError(
                f"{path}: column {name!r} has {lengths[row]} numbers in row {row} and {width} in "
                "others; all rows need equally many."
            )
        values = column.drop_null().flatten()
    array = values.to_numpy(zero_copy_only=False)
    if array.dtype.kind not in "fiub":
        raise DataError(
            f"{path}: column {name!r} holds {column.type}; numbers, or lists of numbers, are "
            "needed. Name the columns to read (reading.columns)."
        )
    if _is_list(column):
        rows = np.zeros((len(column), width), array.dtype)
        rows[slice(None) if known is None else known] = array.reshape(-1, width)
        array = rows
    arrays[name] = array
    if known is not None:
        arrays[name + PRESENT] = known


def _is_list(column: Any) -> bool:
    types = require("pyarrow.types", extra=EXTRA)
    return bool(
        types.is_list(column.type)
        or types.is_large_list(column.type)
        or types.is_fixed_size_list(column.type)
    )
