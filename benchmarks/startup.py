"""How long a user waits before anything happens."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.timing import Row, seconds_per_call


def measure() -> list[Row]:
    """Seconds of imports and of the shortest commands, each in a process of its own."""
    python = _seconds("pass")
    torch = _seconds("import torch")
    library = _seconds("import torch, mtm; mtm.MTM, mtm.predict, mtm.load_dataset")
    command = _seconds("import mtm.cli; mtm.cli.main(['--help'])")
    return [
        Row("start-up", "import torch", torch - python, "s"),
        Row("start-up", "import mtm, beyond torch", library - torch, "s", "below 0.3"),
        Row("start-up", "mtm --help", command, "s", "below 1.5"),
    ]


def _seconds(program: str) -> float:
    command = [sys.executable, "-c", program]
    return seconds_per_call(
        lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL), at_least=3, warmup=1
    )
