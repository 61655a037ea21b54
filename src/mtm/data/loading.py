"""Where data sets come from: a file, a directory, or `PREFIX:NAME`."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Collection, Container, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from mtm.core.errors import ConfigError, DataError, unknown
from mtm.core.reading import AS_IT_IS, Reading
from mtm.data import concatenate, streaming
from mtm.data.columns import LackingError, regroup
from mtm.data.formats import (
    builtin,
    d4rl,
    exorl,
    lerobot,
    minari,
    npz,
    parquet,
    pickles,
    rlds,
    robomimic,
    store,
)
from mtm.data.origin import Origin
from mtm.data.trajectories import Metadata, TrajectoryDataset

DataSpec: TypeAlias = str | os.PathLike[str]
"""What names a data set: a file, a directory of files, a store, or `PREFIX:NAME`."""

FileLoader: TypeAlias = Callable[[Path, Reading], TrajectoryDataset]
NameLoader: TypeAlias = Callable[[str, Reading], TrajectoryDataset]
PartsLoader: TypeAlias = Callable[[str, Reading], Iterator[TrajectoryDataset]]

PREFIXES: dict[str, NameLoader] = {
    "builtin": builtin.load,
    "d4rl": d4rl.load_named,
    "exorl": exorl.load_named,
    "minari": minari.load_named,
}
"""Loaders of `PREFIX:NAME` that give all of it at once."""

IN_PARTS: dict[str, PartsLoader] = {"lerobot": lerobot.load_named}
"""Loaders of `PREFIX:NAME` that give a file at a time."""


def _load_hdf5(path: Path, reading: Reading) -> TrajectoryDataset:
    """HDF5 in the layout that it has: robomimic's, else D4RL's."""
    load_file = robomimic.load_file if robomimic.is_robomimic(path) else d4rl.load_file
    return load_file(path, reading)


def _load_parquet(path: Path, reading: Reading) -> TrajectoryDataset:
    """Parquet in the words that it has: RLDS's, else a row per step."""
    load_file = rlds.load_file if rlds.is_rlds(path) else parquet.load_file
    return load_file(path, reading)


SUFFIXES: dict[str, FileLoader] = {
    ".hdf5": _load_hdf5,
    ".h5": _load_hdf5,
    ".npz": npz.load_file,
    ".parquet": _load_parquet,
    ".pickle": pickles.load_file,
    ".pkl": pickles.load_file,
}
"""Loaders of files."""


def load(
    spec: DataSpec, reading: Reading = AS_IT_IS, *, isolated: bool = False
) -> TrajectoryDataset:
    """Load what a spec names. The data remember it (`metadata.origin`), to be found again.

    Args:
        spec: A file, a directory of files, a store, or `PREFIX:NAME`; see docs/guides/own-data.md.
        reading: Names of columns, roles and gaps, where they are the user's own.
        isolated: Read in a child process, so that a file that crashes or hangs a library is an
            error (`mtm.data.isolated`).

    Raises:
        DataError: There is no such data set, or it cannot be used; the message says why.
    """
    if isolated:
        from mtm.data.isolated import load_isolated  # it reads by this module

        return load_isolated(spec, reading)
    origin = Origin(absolute(spec), reading)
    folder = _folder_of_files(spec)
    if folder is not None and streaming.is_large(files := _files_below(folder)):
        made = streaming.through_store(folder, files, reading, lambda: load_parts(spec, reading))
        return made.with_metadata(origin=origin)
    parts = list(load_parts(spec, reading))
    joined = parts[0] if len(parts) == 1 else concatenate.join(parts, source=Path(spec).name)
    return joined.with_metadata(origin=origin)


def as_dataset(
    data: DataSpec | TrajectoryDataset, reading: Reading = AS_IT_IS
) -> TrajectoryDataset:
    """A data set as it is, or what a spec names, loaded.

    Raises:
        DataError: As `load`.
    """
    return data if isinstance(data, TrajectoryDataset) else load(data, reading)


def check_reading(dataset: TrajectoryDataset, reading: Reading) -> None:
    """Refuse settings that say how to read data which have been read already, in another way.

    Raises:
        ConfigError: They do.
    """
    origin = dataset.metadata.origin
    if reading != AS_IT_IS and (origin is None or origin.reading != reading):
        raise ConfigError(
            "the settings say how to read the data (reading), but these have been read already. "
            "Give the reading to mtm.load_dataset, or name the data by their path."
        )


def load_again(spec: str, reading: Reading) -> TrajectoryDataset:
    """Load the data that a run remembers.

    Raises:
        DataError: They are not there, or cannot be used; the message says how to name others.
    """
    if spec == Metadata().source:
        raise DataError(
            "the data that the run was trained on were made in memory and are nowhere to be found. "
            "Save them, and name them (--data on the command line, data=... in Python)."
        )
    try:
        return load(spec, reading)
    except DataError as error:
        raise DataError(
            f"the data that the run was trained on were expected at {spec}: {error} If they have "
            "moved, name the new place (--data on the command line, data=... in Python)."
        ) from error


def absolute(spec: DataSpec) -> str:
    """A spec that means the same from every directory; what is not there stays as it is.

    A link keeps its name: what it points to may have one that says nothing of its kind.
    """
    before, path = _path_in(os.fspath(spec))
    place = Path(path).expanduser()
    if not path or not place.exists():
        return os.fspath(spec)
    return f"{before}{place.parent.resolve() / place.name}"


def short(spec: str) -> str:
    """A spec for people: without the folders that a path lies in."""
    before, path = _path_in(spec)
    return before + Path(path).name


def load_available(spec: DataSpec, reading: Reading = AS_IT_IS) -> TrajectoryDataset:
    """Load as `load` does, but leave out what the reading names and the data have nothing of.

    Raises:
        DataError: As `load`; also if the data have nothing at all of what the reading names, or a
            part only of the columns of a modality.
    """
    return _despite_lack(lambda narrower: load(spec, narrower), reading)[0]


def load_parts(
    spec: DataSpec, reading: Reading = AS_IT_IS, without: Collection[str] = ()
) -> Iterator[TrajectoryDataset]:
    """Load what a spec names, file by file, so that one at a time is in memory.

    Args:
        spec: As for `load`.
        reading: As for `load`.
        without: Files of a directory that are not read, as `data_files` names them.

    Raises:
        DataError: As `load`.
    """
    text = os.fspath(spec)
    prefix, colon, name = text.partition(":")
    path = Path(text).expanduser()
    if colon and prefix in PREFIXES:
        yield PREFIXES[prefix](name, reading)
    elif colon and prefix in IN_PARTS:
        yield from IN_PARTS[prefix](name, reading)
    elif path.is_file():
        yield _load_file(path, reading)
    elif store.is_store(path):
        yield regroup(store.open_store(path), reading)
    elif exorl.is_exorl(path):
        yield exorl.load_directory(path, reading)
    elif lerobot.is_lerobot(path):
        yield from lerobot.load_folder(path, reading)
    elif path.is_dir():
        yield from _load_directory(path, reading, without)
    elif colon and "/" not in prefix:
        raise DataError(unknown("prefix of a data set", prefix, PREFIXES | IN_PARTS))
    else:
        raise DataError(
            f"no data set at {text!r}. Give a file ({', '.join(SUFFIXES)}) or a name such as "
            f"{', '.join(f'builtin:{n}' for n in builtin.NAMES)}."
        )


def data_files(spec: DataSpec) -> dict[str, Path]:
    """The files of a directory of data files, by their names within it; none for other specs."""
    folder = _folder_of_files(spec)
    if folder is None or lerobot.is_lerobot(folder):
        return {}
    return {file.relative_to(folder).as_posix(): file for file in _files_below(folder)}


def _files_below(folder: Path) -> list[Path]:
    """The data files of a folder and of those below it, in order."""
    return sorted(file for file in folder.rglob("*") if file.suffix in SUFFIXES)


def _folder_of_files(spec: DataSpec) -> Path | None:
    """The folder that a spec names, if its files are read one by one."""
    text = os.fspath(spec)
    if text.partition(":")[0] in PREFIXES and ":" in text:
        return None
    path = Path(text.removeprefix("lerobot:")).expanduser()
    if not path.is_dir() or store.is_store(path) or exorl.is_exorl(path):
        return None
    return path


def _path_in(spec: str) -> tuple[str, str]:
    """What stands before the path in a spec, and the path; the path is empty if there is none."""
    prefix, colon, name = spec.partition(":")
    if not colon or prefix not in PREFIXES | IN_PARTS:
        return "", spec
    path = exorl.task_and_path(name)[1] if prefix == "exorl" else ""
    path = name if prefix == "lerobot" else path
    return spec.removesuffix(path), path


def _load_file(path: Path, reading: Reading) -> TrajectoryDataset:
    if path.suffix not in SUFFIXES:
        raise DataError(f"{path}: {unknown('kind of file', path.suffix, SUFFIXES)}")
    return SUFFIXES[path.suffix](path, reading)


def _load_directory(
    path: Path, reading: Reading, without: Collection[str]
) -> Iterator[TrajectoryDataset]:
    """All files, in order; every file that is at fault is told, not just the first.

    A file may lack a modality that the reading names; all files together may not.
    """
    files = [file for name, file in data_files(path).items() if name not in without]
    if not files:
        left = " that is not left out" if without else ""
        raise DataError(f"{path} holds no data file{left}; allowed are {', '.join(SUFFIXES)}.")
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
    columns = {name: c for name, c in reading.columns.items() if name not in names}
    roles = {name: role for name, role in reading.roles.items() if name not in names}
    return replace(reading, columns=columns, roles=roles)
