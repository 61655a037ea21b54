"""Files and directories that appear whole or not at all, whoever else writes at the same time."""

from __future__ import annotations

import glob
import os
import platform
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mtm.core.errors import DataError, RunError

HOST = re.sub(r"\W", "_", platform.node())
"""This machine, in names of files."""


@contextmanager
def writing_to(path: Path) -> Iterator[None]:
    """Tell what a disk refuses inside: one that is full, read-only, or not ours.

    Raises:
        RunError: Something could not be written.
    """
    try:
        yield
    except BrokenPipeError:  # of no disk
        raise
    except OSError as error:
        raise RunError(
            f"could not write to {path}: {error}. What was finished before is intact. Make room, "
            "or choose another --out, and give the same command again."
        ) from error


def refuse_existing(path: Path) -> None:
    """Raise a `DataError` if something is there already."""
    if path.exists():
        raise DataError(f"{path} exists already; remove it, or choose another place.")


@contextmanager
def appearing(path: Path) -> Iterator[Path]:
    """Give a name beside `path` to write to; what is there at the end becomes `path`.

    The name holds the machine and the process's id, so that two processes do not write to the same
    place, on a disk that machines share too. What is written reaches the disk before it gets its
    own name. It is removed if anything fails, and so is what a process of this machine left behind
    that was killed.

    Raises:
        DataError: The place is taken.
        OSError: It cannot be written to.
    """
    refuse_existing(path)
    make_directory(path.parent)
    _remove_leftovers(path)
    temporary = path.with_name(f".{path.name}.tmp-{HOST}-{os.getpid()}")
    try:
        yield temporary
        _flush(temporary)
        refuse_existing(path)  # another process may have been faster
        temporary.rename(path)
        flush_directory(path.parent)
    finally:
        _remove(temporary)


def write_atomically(path: Path, data: bytes) -> None:
    """Replace a file so that a reader sees the old or the new content, never a part.

    What processes of this machine that were killed left of the same file is removed.

    Raises:
        RunError: It could not be written; the old content is intact.
    """
    # A name of this process alone: another one may be writing the same file.
    temporary = path.with_name(f".{path.name}.{HOST}-{os.getpid()}.tmp")
    try:
        for left in unfinished(path):
            if left.stem.startswith(f".{path.name}.{HOST}-"):
                _remove_left(left, left.stem)
        write_flushed(temporary, data)
        temporary.replace(path)
        flush_directory(path.parent)
    except OSError as error:
        raise RunError(f"could not write {path}: {error}.") from error
    finally:
        with suppress(OSError):
            temporary.unlink()


def unfinished(path: Path) -> list[Path]:
    """What processes that were killed, or still write, have of a file under temporary names."""
    begin = f".{path.name}."
    with os.scandir(path.parent) as entries:
        names = [e.name for e in entries if e.name.startswith(begin) and e.name.endswith("tmp")]
    return [path.parent / name for name in names]


def write_flushed(path: Path, data: bytes) -> None:
    """Write a file and wait until it is on the disk."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def make_directory(path: Path) -> None:
    """Make a directory and those above it, if need be, and wait until their names are on the disk.

    Raises:
        OSError: It cannot be made.
    """
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for made in missing:
        flush_directory(made.parent)


def flush_directory(path: Path) -> None:
    """Wait until what was renamed in a directory is on the disk."""
    if os.name == "posix":  # elsewhere a directory cannot be opened, and renaming is journalled
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _remove_leftovers(path: Path) -> None:
    # Of this machine alone: whether a process of another one runs, nobody can say here.
    for left in path.parent.glob(f".{glob.escape(path.name)}.tmp-{HOST}-*"):
        _remove_left(left, left.name)


def _remove_left(path: Path, name: str) -> None:
    """Remove what a process left whose id ends a name, unless it may still be writing."""
    process = name.rpartition("-")[2]
    if process == str(os.getpid()) or not runs(process):
        _remove(path)


def runs(process: str) -> bool:
    """Whether a process of this id may be running."""
    if os.name != "posix" or not process.isdecimal():
        return True  # asking with a signal would end it elsewhere
    try:
        os.kill(int(process), 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # it runs, for another user
        return True
    return True


def _flush(path: Path) -> None:
    """Wait until a file, or all of a directory with the names in it, is on the disk."""
    for file in (path, *path.rglob("*")):
        if file.is_dir():
            flush_directory(file)
        else:
            with file.open("rb+") as written:
                os.fsync(written.fileno())


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
