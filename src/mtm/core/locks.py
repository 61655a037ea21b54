"""Locks that die with their holder: a killed process leaves none behind.

filelock has two kinds. A hard lock is the operating system's (`flock`; on Windows `msvcrt`): it
ends with its process, however that ends, so it cannot be stale; the file that stays means nothing.
A soft lock is a file that exists: a killed process, or another machine, leaves it for ever. Only
hard ones are used here.

On a disk that machines share, Linux hands `flock` to an NFS server as a lock of the whole file, so
that it also keeps out other machines; a machine that is cut off loses it when its lease at the
server ends. Mounted with `nolock` or `local_lock=flock`, NFS keeps locks to each machine: then use
one machine for each directory. A file system without locks is refused rather than trusted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from mtm.core.atomic_write import make_directory
from mtm.core.errors import RunError

LOCK = ".lock"
"""Of the process that writes to a directory; the file may stay, its lock ends with the process."""


@contextmanager
def held(folder: Path, what: str) -> Iterator[None]:
    """Keep all others from writing to a directory, which is made if need be.

    Args:
        folder: The directory.
        what: Others may be doing there, as `collecting`.

    Raises:
        RunError: Another process holds it, or it cannot be made or locked.
    """
    try:
        make_directory(folder)
    except OSError as error:
        raise RunError(f"cannot make the directory {folder}: {error}.") from error
    with locked(folder / LOCK, wait=False) as mine:
        if not mine:
            raise RunError(
                f"another process is {what} in {folder}. Wait for its end, or choose another --out."
            )
        yield


@contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """Hold the lock of a file, which is made if need be.

    Args:
        path: The file; it may stay when the lock is given back.
        wait: Until another holder gives it back; else yield False at once.

    Yields:
        Whether the lock is held.

    Raises:
        RunError: The file cannot be locked.
    """
    lock = FileLock(path)
    try:
        lock.acquire(blocking=wait)
    except Timeout:  # an OSError too
        yield False
        return
    except (OSError, NotImplementedError) as error:
        raise RunError(f"{path} cannot be locked: {error}. Choose another --out.") from error
    try:
        yield True
    finally:
        lock.release()
