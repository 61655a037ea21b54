"""Two processes (DDP) against one, on the same cores."""

from __future__ import annotations

from benchmarks import one_training
from benchmarks.timing import Row
from mtm.core.system import available_cores

STEPS = 40


def measure() -> list[Row]:
    """Segments per second of the `cpu` preset: processes times threads."""
    part = "scaling, cpu"
    rates = {}
    for processes, threads in [(1, 1), (1, 2), (2, 1)]:
        run = one_training.measured("cpu", STEPS, processes=processes, threads=threads)
        rates[processes, threads] = run["batch"] / run["seconds"]
    rows = [
        Row(part, f"{processes} process(es) of {threads} thread(s)", rate, "segments/s")
        for (processes, threads), rate in rates.items()
    ]
    gain = rates[2, 1] / rates[1, 1]
    return [*rows, Row(part, f"2 processes / 1, on {available_cores()} core(s)", gain, "times")]
