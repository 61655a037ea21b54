"""Run the campaign, print a table of cases and outcomes, write JSON."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from mtm.core.system import available_cores
from mtm.research.experiments.provenance import here
from torture.campaign import CASES, PARTS, Task, run, tasks
from torture.load import MINUTES
from torture.outcomes import MOST_FAULTS, Row


def parser() -> argparse.ArgumentParser:
    """Of the command line."""
    parser = argparse.ArgumentParser(prog="make torture ARGS=...", description=__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument(
        "--cases", nargs="+", type=_count, default=[], help="of a part, such as kill=50 fuzz=20000"
    )
    parser.add_argument("--minutes", type=float, default=MINUTES, help="of the soak")
    parser.add_argument("--jobs", type=int, default=max(available_cores(), 2), help="at a time")
    parser.add_argument("--advisories", type=Path, help="a copy of an advisory database")
    parser.add_argument("--out", type=Path, default=Path("runs/torture"))
    return parser


def main() -> int:
    """Run the chosen parts; 1 if anything broke."""
    arguments = parser().parse_args()
    console = Console(highlight=False)
    began = time.perf_counter()

    def say(task: Task, rows: list[Row]) -> None:
        for row in rows:
            console.print(_line(row), markup=False)

    rows: list[Row] = []
    counts, advisories = dict(arguments.cases), arguments.advisories
    todo = tasks(arguments.parts, counts, arguments.minutes, advisories and advisories.absolute())
    with console.status("under way ..."):
        for rows in run(todo, arguments.jobs, say):
            _write(arguments, rows, time.perf_counter() - began)
    console.print(_table(rows))
    broken = [(row, fault) for row in rows for fault in row.faults]
    for row, fault in broken[:MOST_FAULTS]:
        console.print(f"- {row.part}, {row.what}: {fault}", markup=False, soft_wrap=True)
    seconds = time.perf_counter() - began
    cases = sum(row.cases for row in rows)
    console.print(f"{cases:,} cases, {len(broken):,} broke; {seconds:.0f} s. {arguments.out}")
    return 1 if broken else 0


def _count(word: str) -> tuple[str, int]:
    """PART=NUMBER."""
    part, _, number = word.partition("=")
    if part not in CASES or not number.isdecimal() or not int(number):
        raise argparse.ArgumentTypeError(
            f"{word!r} is not of the form kill=50; the parts with a number are {', '.join(CASES)}"
        )
    return part, int(number)


def _write(arguments: argparse.Namespace, rows: list[Row], seconds: float) -> None:
    """Keep what there is so far: later parts take long."""
    arguments.out.mkdir(parents=True, exist_ok=True)
    result = {
        "about": here(),
        "command": command(arguments),
        "jobs": arguments.jobs,
        "seconds": seconds,
        "rows": [row.to_json() for row in rows],
    }
    (arguments.out / "torture.json").write_text(json.dumps(result, indent=2))


def command(arguments: argparse.Namespace) -> str:
    """What to type to do it again, without the places of this machine."""
    words = [] if list(arguments.parts) == list(PARTS) else ["--parts", *arguments.parts]
    if arguments.cases:
        words += ["--cases", *(f"{part}={number}" for part, number in arguments.cases)]
    if arguments.minutes != MINUTES:
        words += ["--minutes", f"{arguments.minutes:g}"]
    if arguments.advisories is not None:
        words += ["--advisories", "DIR"]
    words += ["--jobs", str(arguments.jobs)]
    return f'make torture ARGS="{shlex.join(words)}"'


def _line(row: Row) -> str:
    mark = "skipped" if row.skipped else "BROKE" if row.faults else "held"
    return f"  {mark:<8} {row.cases:>6,}  {row.part}: {row.what}"


def _table(rows: list[Row]) -> Table:
    table = Table(title="cases and outcomes", title_justify="left", box=SIMPLE_HEAD)
    for column in ("part", "what"):
        table.add_column(column)
    for column in ("cases", "broke", "seconds"):
        table.add_column(column, justify="right")
    table.add_column("outcomes")
    for row in rows:
        ends = ", ".join(f"{what} {count:,}" for what, count in row.outcomes.most_common())
        numbers = (f"{row.cases:,}", f"{len(row.faults):,}", f"{row.seconds:.0f}")
        table.add_row(row.part, row.what, *numbers, row.skipped or ends)
    return table


if __name__ == "__main__":
    sys.exit(main())
