"""Locks that die with their holder: a killed process leaves none behind.

They are the operating system's (`flock`), so they also hold between machines that share a file
system with locks, such as NFS 4.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mtm.core.errors import RunError


@contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """Hold the lock of a file, which is made if need be.

    Args:
        path: The file; it stays when the lock is given back.
        wait: Until another holder gives it back; else yield False at once.

    Yields:
        Whether the lock is held.

    Raises:
        RunError: This system or file system has no locks.
    """
    try:
        import fcntl
    except ImportError as error:
        raise RunError("mtm reproduce needs file locks as Linux and macOS have them.") from error
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
        except OSError as error:
            raise RunError(f"{path} cannot be locked: {error}. Choose another --out.") from error
        else:
            yield True
    finally:
        os.close(descriptor)  # gives the lock back
