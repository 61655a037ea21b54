"""This machine: its cores, and how its memory is used."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

from mtm.core.errors import ConfigError

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3

LARGEST_KEPT = (1 << 30, 1 << 25)
"""Bytes of the largest buffer to keep, in order of preference: glibc up to 2.34 refuses more than
32 MiB."""

CORES_VARIABLE = "MTM_CORES"
"""Environment variable: use no more cores than this, as others compute on this machine too."""

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""What libraries of numerics read when they are loaded."""


def available_cores() -> int:
    """Cores that this process may use.

    Raises:
        ConfigError: The environment variable `MTM_CORES` is not a number of cores.
    """
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    said = os.environ.get(CORES_VARIABLE)
    if said is None:
        return cores
    most = int(said) if said.strip().isdecimal() else 0
    if most < 1:
        raise ConfigError(
            f"the environment variable {CORES_VARIABLE} is {said!r}, it must be a whole number of "
            "cores, 1 or more. Unset it to use all."
        )
    return min(cores, most)


def available_memory() -> int | None:
    """Bytes that this process can still get without swapping; None where nobody says."""
    found = []
    if sys.platform.startswith("linux"):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                found.append(int(line.split()[1]) * 1024)
        group = Path("/sys/fs/cgroup")  # of a container
        limit, used = group / "memory.max", group / "memory.current"
        if limit.exists() and used.exists() and limit.read_text().strip().isdecimal():
            found.append(max(int(limit.read_text()) - int(used.read_text()), 0))
    elif hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(found, default=None)


def thread_settings(threads: int) -> dict[str, str]:
    """Environment variables of a process that is to compute with so many threads."""
    return dict.fromkeys((*THREAD_VARIABLES, CORES_VARIABLE), str(threads))


def keep_freed_memory() -> None:
    """Let glibc keep the buffers that a training step frees, for the next step to use.

    It would give each one back to the system and get it again, empty, a page fault at a time. A
    step of the `cpu` preset takes 73 to 76 ms with this, 88 to 96 ms without (docs/research-log).
    """
    if not sys.platform.startswith("linux"):
        return
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallopt"):  # on musl
        return
    if any(libc.mallopt(M_MMAP_THRESHOLD, largest) for largest in LARGEST_KEPT):
        # Not otherwise: alone, it would only switch off that glibc adapts both by itself.
        libc.mallopt(M_TRIM_THRESHOLD, LARGEST_KEPT[0])
