"""How long a user waits before anything happens."""

from __future__ import annotations

import statistics
import subprocess
import sys

from benchmarks.timing import Row, seconds_per_call

IMPORTS = """
import time
began = time.perf_counter()
import torch
between = time.perf_counter()
import mtm
mtm.MTM, mtm.predict, mtm.load_dataset
print(between - began, time.perf_counter() - between)
"""

REPEATS = 5


def measure() -> list[Row]:
    """Seconds of imports and of the shortest command, each in a process of its own."""
    times = [_imports() for _ in range(1 + REPEATS)][1:]  # the first one warms up the disk
    torch, library = (statistics.median(part) for part in zip(*times, strict=True))
    call = [sys.executable, "-c", "import mtm.cli; mtm.cli.main(['--help'])"]
    command = seconds_per_call(
        lambda: subprocess.run(call, check=True, stdout=subprocess.DEVNULL), at_least=3, warmup=1
    )
    return [
        Row("start-up", "import torch", torch, "s"),
        Row("start-up", "import mtm, beyond torch", library, "s", "below 0.3"),
        Row("start-up", "mtm --help", command, "s", "below 1.5"),
    ]


def _imports() -> list[float]:
    """Seconds of importing torch, and then this library with its names."""
    call = [sys.executable, "-c", IMPORTS]
    printed = subprocess.run(call, check=True, stdout=subprocess.PIPE, text=True).stdout
    return [float(word) for word in printed.split()]
