"""Where data sets come from: a file, a directory, or `PREFIX:NAME`."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from mtm.datasets import builtin, d4rl, directory, npz
from mtm.errors import DataError, unknown
from mtm.trajectories import TrajectoryDataset


class NameLoader(Protocol):
    """Loads `PREFIX:NAME`."""

    def __call__(self, name: str, *, nan_is_absent: bool = False) -> TrajectoryDataset:
        """Load the data set of that name."""


class FileLoader(Protocol):
    """Loads a file."""

    def __call__(self, path: Path, *, nan_is_absent: bool = False) -> TrajectoryDataset:
        """Load that file."""


PREFIXES: dict[str, NameLoader] = {
    "builtin": builtin.load,
    "d4rl": d4rl.load_named,
}
"""Loaders of `PREFIX:NAME`."""

SUFFIXES: dict[str, FileLoader] = {
    ".hdf5": d4rl.load_file,
    ".h5": d4rl.load_file,
    ".npz": npz.load_file,
}
"""Loaders of files."""


def load(spec: str, *, nan_is_absent: bool = False) -> TrajectoryDataset:
    """Load what a spec names.

    Args:
        spec: A `.hdf5` or `.npz` file, a directory of such files, `builtin:NAME` or `d4rl:NAME`.
        nan_is_absent: Take a value with NaN in it as absent, rather than as a fault.

    Raises:
        DataError: There is no such data set, or it cannot be used; the message says why.
    """
    prefix, colon, name = spec.partition(":")
    if colon and prefix in PREFIXES:
        return PREFIXES[prefix](name, nan_is_absent=nan_is_absent)
    path = Path(spec).expanduser()
    if path.is_file():
        if path.suffix not in SUFFIXES:
            raise DataError(f"{path}: {unknown('kind of file', path.suffix, SUFFIXES)}")
        return SUFFIXES[path.suffix](path, nan_is_absent=nan_is_absent)
    if path.is_dir():
        return _load_directory(path, nan_is_absent)
    if colon and "/" not in prefix:
        raise DataError(unknown("prefix of a data set", prefix, PREFIXES))
    raise DataError(
        f"no data set at {spec!r}. Give a file ({', '.join(SUFFIXES)}) or a name such as "
        f"{', '.join(f'builtin:{n}' for n in builtin.NAMES)}."
    )


def _load_directory(path: Path, nan_is_absent: bool) -> TrajectoryDataset:
    files = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES)
    if not files:
        raise DataError(f"{path} holds no data file; allowed are {', '.join(SUFFIXES)}.")
    parts = {file: SUFFIXES[file.suffix](file, nan_is_absent=nan_is_absent) for file in files}
    return directory.join(parts, source=path.name)
