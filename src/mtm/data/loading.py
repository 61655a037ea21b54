"""Where data sets come from: a file, a directory, or `PREFIX:NAME`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Container, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from mtm.core.config import AS_IT_IS, Reading
from mtm.core.errors import DataError, unknown
from mtm.data import concatenate
from mtm.data.columns import LackingError, regroup
from mtm.data.formats import builtin, d4rl, exorl, minari, npz, parquet, pickles, store
from mtm.data.trajectories import TrajectoryDataset

FileLoader: TypeAlias = Callable[[Path, Reading], TrajectoryDataset]
NameLoader: TypeAlias = Callable[[str, Reading], TrajectoryDataset]

PREFIXES: dict[str, NameLoader] = {
    "builtin": builtin.load,
    "d4rl": d4rl.load_named,
    "exorl": exorl.load_named,
    "minari": minari.load_named,
}
"""Loaders of `PREFIX:NAME`."""

SUFFIXES: dict[str, FileLoader] = {
    ".hdf5": d4rl.load_file,
    ".h5": d4rl.load_file,
    ".npz": npz.load_file,
    ".parquet": parquet.load_file,
    ".pickle": pickles.load_file,
    ".pkl": pickles.load_file,
}
"""Loaders of files."""


def load(spec: str, reading: Reading = AS_IT_IS) -> TrajectoryDataset:
    """Load what a spec names.

    Args:
        spec: A file, a directory of files, a store, or `PREFIX:NAME`; see docs/guides/own-data.md.
        reading: Names of columns, roles and gaps, where they are the user's own.

    Raises:
        DataError: There is no such data set, or it cannot be used; the message says why.
    """
    parts = list(load_parts(spec, reading))
    if len(parts) == 1:
        return parts[0]
    return concatenate.join(parts, source=Path(spec).name)


def load_available(spec: str, reading: Reading = AS_IT_IS) -> TrajectoryDataset:
    """Load as `load` does, but leave out what the reading names and the data have nothing of.

    Raises:
        DataError: As `load`; also if the data have nothing at all of what the reading names, or a
            part only of the columns of a modality.
    """
    return _despite_lack(lambda narrower: load(spec, narrower), reading)[0]


def load_parts(spec: str, reading: Reading = AS_IT_IS) -> Iterator[TrajectoryDataset]:
    """Load what a spec names, file by file, so that one at a time is in memory.

    Raises:
        DataError: As `load`.
    """
    prefix, colon, name = spec.partition(":")
    path = Path(spec).expanduser()
    if colon and prefix in PREFIXES:
        yield PREFIXES[prefix](name, reading)
    elif path.is_file():
        yield _load_file(path, reading)
    elif store.is_store(path):
        yield regroup(store.open_store(path), reading)
    elif exorl.is_exorl(path):
        yield exorl.load_directory(path, reading)
    elif path.is_dir():
        yield from _load_directory(path, reading)
    elif colon and "/" not in prefix:
        raise DataError(unknown("prefix of a data set", prefix, PREFIXES))
    else:
        raise DataError(
            f"no data set at {spec!r}. Give a file ({', '.join(SUFFIXES)}) or a name such as "
            f"{', '.join(f'builtin:{n}' for n in builtin.NAMES)}."
        )


def _load_file(path: Path, reading: Reading) -> TrajectoryDataset:
    if path.suffix not in SUFFIXES:
        raise DataError(f"{path}: {unknown('kind of file', path.suffix, SUFFIXES)}")
    return SUFFIXES[path.suffix](path, reading)


def _load_directory(path: Path, reading: Reading) -> Iterator[TrajectoryDataset]:
    """All files, in order; every file that is at fault is told, not just the first.

    A file may lack a modality that the reading names; all files together may not.
    """
    files = sorted(file for file in path.rglob("*") if file.suffix in SUFFIXES)
    if not files:
        raise DataError(f"{path} holds no data file; allowed are {', '.join(SUFFIXES)}.")
    faults: list[str] = []
    lacks: list[dict[str, str]] = []
    for file in files:
        try:
            part, lack = _despite_lack(functools.partial(_load_file, file), reading)
        except DataError as error:
            faults += error.faults
        else:
            lacks.append(lack)
            if not faults:
                yield part
    if faults:
        raise DataError(*faults)
    nowhere = {n: fault for n, fault in lacks[0].items() if all(n in lack for lack in lacks)}
    if nowhere:
        raise LackingError(*nowhere.values(), names=nowhere)


def _despite_lack(
    load_with: Callable[[Reading], TrajectoryDataset], reading: Reading
) -> tuple[TrajectoryDataset, dict[str, str]]:
    """Load, and again without what is lacking; returns also what that is: modality -> fault."""
    lack: dict[str, str] = {}
    while True:
        try:
            return load_with(reading), lack
        except LackingError as error:
            lack |= zip(error.names, error.faults, strict=True)
            reading = _without(reading, error.names)


def _without(reading: Reading, names: Container[str]) -> Reading:
    """A reading that says nothing of some modalities."""
    columns = tuple(pair for pair in reading.columns if pair.partition("=")[0] not in names)
    roles = tuple(pair for pair in reading.roles if pair.partition("=")[0] not in names)
    return replace(reading, columns=columns, roles=roles)
