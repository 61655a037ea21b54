"""This machine: its cores, and how its memory is used."""

from __future__ import annotations

import ctypes
import os
import sys

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
LARGEST_KEPT = 1 << 30


def available_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def keep_freed_memory() -> None:
    """Let glibc keep the buffers that a training step frees, for the next step to use.

    It would give each one back to the system and get it again, empty, a page fault at a time. A
    step of the `cpu` preset takes 73 to 76 ms with this, 88 to 96 ms without (docs/speed.md).
    """
    if not sys.platform.startswith("linux"):
        return
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):  # not on musl
        libc.mallopt(M_MMAP_THRESHOLD, LARGEST_KEPT)
        libc.mallopt(M_TRIM_THRESHOLD, LARGEST_KEPT)
