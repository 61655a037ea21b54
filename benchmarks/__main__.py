"""Run the benchmarks, print a table, write JSON."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks import (
    acting,
    evaluation,
    growth,
    members,
    parity,
    reference,
    representation,
    sampling,
    scaling,
    serving,
    startup,
    streaming,
    studio,
    training,
    updates,
)
from benchmarks.timing import Row, peak_flops
from mtm.research.experiments.provenance import here

PARTS = (
    *("training", "parity", "reference", "sampling", "evaluation", "acting"),
    *("representation", "updates", "startup", "scaling", "growth", "members"),
    *("serving", "studio", "streaming"),
)


def main() -> None:
    """Measure the chosen parts one after the other: nothing else should run meanwhile."""
    parser = argparse.ArgumentParser(prog="make bench ARGS=...", description=__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--reference", type=Path, help="a checkout of facebookresearch/mtm")
    parser.add_argument("--before", type=Path, help="a checkout of an older commit, for acting")
    parser.add_argument("--out", type=Path, default=Path("runs/bench"))
    arguments = parser.parse_args()
    console = Console(highlight=False)
    began = time.perf_counter()
    rows = [Row("machine", "torch.mm of 2048 x 2048", peak_flops() / 1e9, "GFLOP/s")]
    console.print(_table(rows, "machine"))
    measures: dict[str, Callable[[], list[Row]]] = {
        "training": training.measure,
        "parity": lambda: parity.measure(arguments.reference),
        "reference": lambda: reference.measure(arguments.reference),
        "sampling": sampling.measure,
        "evaluation": evaluation.measure,
        "acting": lambda: acting.measure(arguments.before),
        "representation": representation.measure,
        "updates": updates.measure,
        "startup": startup.measure,
        "scaling": scaling.measure,
        "growth": lambda: growth.measure(arguments.out),
        "members": members.measure,
        "serving": serving.measure,
        "studio": studio.measure,
        "streaming": streaming.measure,
    }
    for part in arguments.parts:
        if part in ("parity", "reference") and arguments.reference is None:
            console.print(f"{part} is left out: --reference PATH names a checkout of the original")
            continue
        started = time.perf_counter()
        with console.status(f"measuring {part} ..."):
            measured = measures[part]()
        rows += measured
        console.print(_table(measured, f"{part}, {time.perf_counter() - started:.0f} s"))
        if part == "parity":
            console.print("not equal:")
            for what, why in parity.NOT_EQUAL.items():
                console.print(f"- {what}: {why}")
    seconds = time.perf_counter() - began
    result = {
        "about": here(),
        "command": shlex.join(["python", "-m", "benchmarks", *sys.argv[1:]]),
        "seconds": seconds,
        "rows": [vars(row) for row in rows],
    }
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "bench.json").write_text(json.dumps(result, indent=2))
    console.print(f"{arguments.out}; {seconds:.0f} s in all")


def _table(rows: list[Row], title: str) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    table.add_column("part")
    table.add_column("what")
    table.add_column("measured", justify="right")
    table.add_column("unit")
    table.add_column("asked")
    for row in rows:
        form = ",.0f" if abs(row.value) >= 100 else ".3g"
        table.add_row(row.part, row.what, f"{row.value:{form}}", row.unit, row.asked)
    return table


if __name__ == "__main__":
    main()
