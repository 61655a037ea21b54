"""Locks that die with their holder: a killed process leaves none behind.

They are the operating system's, on Windows too, so they also hold between machines that share a
file system with locks, such as NFS 4.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from mtm.core.errors import RunError


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
