"""Tables with a time stamp per row, CSV or Parquet, as streams for `mtm.data.alignment`.

A file is a stream under its own name, unless columns are named: then each modality is a stream of
these columns, wherever they are, and of the rows in which all of them have a value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from mtm.core.errors import DataError, require, unknown
from mtm.core.reading import Reading
from mtm.data.alignment import Stream
from mtm.data.columns import episode_column
from mtm.data.formats import parquet
from mtm.data.memory_limits import Allowance

TIME_COLUMNS = ("timestamp", "time", "stamp", "t")
"""Names that are taken for the column of time stamps."""

Unit: TypeAlias = Literal["s", "ms", "us", "ns"]
SECONDS: dict[Unit, float] = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
UNITS: tuple[Unit, ...] = get_args(Unit)

Table: TypeAlias = Mapping[str, Any]


def read_streams(
    files: Sequence[Path], reading: Reading, *, time: str | None = None, unit: Unit = "s"
) -> list[Stream]:
    """The streams of some files; their times begin with the first sample of all.

    Args:
        files: CSV (`.csv`) or Parquet.
        reading: Names columns, and the one that tells episodes apart; a file without one is a
            single episode.
        time: The column of time stamps; a usual name if not given.
        unit: Of the time stamps; those with a type of their own know it.

    Raises:
        DataError: A file is damaged, or a column is missing or no number.
        MissingExtraError: pyarrow is not installed.
    """
    tables = [(file, _table(file)) for file in files]
    wanted = reading.columns_of()
    streams = []
    for file, table in tables:
        stamps = _time_column(file, table, time)
        episode = episode_column(str(file), table, reading) if _has(table, reading) else None
        others = [name for name in table if name not in (stamps, episode)]
        chosen = {n: parts for n, parts in wanted.items() if set(parts) <= set(others)}
        for name, parts in (chosen if wanted else {file.stem: tuple(others)}).items():
            streams.append(_stream(file, table, name, parts, stamps, episode, SECONDS[unit]))
    _check_names(files, streams, wanted)
    begin = min(float(stream.times.min()) for stream in streams)
    return [
        Stream(s.name, s.file, s.episodes, (s.times - begin).astype(np.float64), s.values)
        for s in streams
    ]


def _has(table: Table, reading: Reading) -> bool:
    return reading.episode is None or reading.episode in table


def _check_names(
    files: Sequence[Path], streams: Sequence[Stream], wanted: Mapping[str, tuple[str, ...]]
) -> None:
    listed = ", ".join(map(str, files))
    for name, parts in wanted.items():
        if name not in [stream.name for stream in streams]:
            raise DataError(
                f"{listed}: no file has all of the columns of {name!r}: {', '.join(parts)}."
            )
    seen: dict[str, str] = {}
    for stream in streams:
        if stream.name in seen:
            raise DataError(
                f"{seen[stream.name]} and {stream.file} both hold {stream.name!r}. Rename a file, "
                "or give columns names that differ."
            )
        seen[stream.name] = stream.file


def _table(file: Path) -> dict[str, Any]:
    """Columns by name."""
    if not file.is_file():
        raise DataError(f"there is no file {file}.")
    if file.suffix not in (".csv", ".parquet"):
        raise DataError(f"{file}: {unknown('kind of file', file.suffix, ('.csv', '.parquet'))}")
    if file.suffix == ".csv":
        pyarrow = require("pyarrow", extra=parquet.EXTRA)
        try:
            table = require("pyarrow.csv", extra=parquet.EXTRA).read_csv(file)
            names = table.column_names  # which may be no text, and only then fail
        except (OSError, UnicodeDecodeError, pyarrow.ArrowException) as error:
            raise DataError(f"{file} cannot be read as CSV: {error}.") from error
    else:
        library = require("pyarrow.parquet", extra=parquet.EXTRA)
        with parquet.telling_damage(file):
            parquet.set_aside(
                library.read_metadata(file), parquet.column_names(file), Allowance(file)
            )
            table = library.read_table(file, partitioning=None)
            names = table.column_names
    if not len(table):
        raise DataError(f"{file} has no rows.")
    if len(set(names)) < len(names):
        raise DataError(f"{file}: two columns have the same name.")
    return {name: table.column(i).combine_chunks() for i, name in enumerate(names)}


def _time_column(file: Path, table: Table, time: str | None) -> str:
    if time is not None and time not in table:
        raise DataError(f"{file}: {unknown('column', time, table)}")
    found = time or next((name for name in TIME_COLUMNS if name in table), None)
    if found is None:
        raise DataError(
            f"{file}: no column of time stamps; one of {', '.join(TIME_COLUMNS)} is taken, or the "
            f"one that is named (--time). There are {', '.join(table)}."
        )
    return found


def _stream(
    file: Path,
    table: Table,
    name: str,
    parts: Sequence[str],
    stamps: str,
    episode: str | None,
    seconds: float,
) -> Stream:
    if not parts:
        raise DataError(f"{file}: there is no column beside the time stamps.")
    times, seconds = _stamps(file, stamps, table[stamps], seconds)
    labels = np.zeros(len(times), np.int64)
    if episode is not None:
        labels = parquet.numbers(file, episode, table[episode])
    columns = [parquet.numbers(file, part, table[part]) for part in parts]
    known = np.logical_and.reduce([~np.asarray(table[part].is_null()) for part in parts])
    rows = [column.reshape(len(column), -1) for column in columns]
    values = columns[0] if len(columns) == 1 else np.concatenate(rows, axis=1)
    if values.dtype.kind == "f":
        known &= ~np.isnan(values.reshape(len(values), -1)).any(axis=1)
        values = values.astype(np.float32)
    if not known.any():
        raise DataError(f"{file}: {name!r} has no value in any row.")
    return Stream(name, str(file), labels[known], times[known] * seconds, values[known])


def _stamps(file: Path, name: str, column: Any, seconds: float) -> tuple[NDArray[Any], float]:
    """Time stamps as numbers, and the seconds of one; dates and times know their unit."""
    types = require("pyarrow.types", extra=parquet.EXTRA)
    if column.null_count:
        row = int(np.argmax(np.asarray(column.is_null())))
        raise DataError(f"{file}: the time stamp in column {name!r} is null in row {row}.")
    if types.is_timestamp(column.type) or types.is_duration(column.type):
        seconds = SECONDS[column.type.unit]
        column = column.cast(require("pyarrow", extra=parquet.EXTRA).int64())
    times = parquet.numbers(file, name, column)
    if times.ndim > 1:
        raise DataError(f"{file}: column {name!r} holds lists; a time stamp is one number.")
    return times, seconds
