"""Run the campaign, print a table of cases and outcomes, write JSON."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from mtm.research.experiments.provenance import here
from torture import damage, disk, fuzz, hosts, kill, load, numbers, supply, together, unsafe
from torture.outcomes import MOST_FAULTS, Row
from torture.warm import Warm

PARTS = (
    *("kill", "disk", "damage", "fuzz", "unsafe", "together", "numbers", "hosts", "load"),
    "supply",
)

Say = Callable[[Row], None]


def main() -> int:
    """Run the chosen parts one after the other; 1 if anything broke."""
    parser = argparse.ArgumentParser(prog="make torture ARGS=...", description=__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument(
        "--cases", nargs="+", type=_count, default=[], help="of a part, such as kill=50 fuzz=20000"
    )
    parser.add_argument("--minutes", type=float, default=5.0, help="of the soak; 30 for a long one")
    parser.add_argument("--out", type=Path, default=Path("runs/torture"))
    arguments = parser.parse_args()
    console = Console(highlight=False)
    warnings.simplefilter("ignore")
    began = time.perf_counter()
    rows: list[Row] = []
    with console.status("importing ..."), Warm() as warm:
        for part in arguments.parts:
            console.print(f"[bold]{part}[/bold]")
            found = _do(part, warm, arguments, lambda row: console.print(_line(row)))
            rows += found
            _write(arguments.out, rows, time.perf_counter() - began)
    console.print(_table(rows))
    broken = [(row, fault) for row in rows for fault in row.faults]
    for row, fault in broken[:MOST_FAULTS]:
        console.print(f"- {row.part}, {row.what}: {fault}", markup=False, soft_wrap=True)
    seconds = time.perf_counter() - began
    cases = sum(row.cases for row in rows)
    console.print(f"{cases:,} cases, {len(broken):,} broke; {seconds:.0f} s. {arguments.out}")
    return 1 if broken else 0


def _do(part: str, warm: Warm, arguments: argparse.Namespace, say: Say) -> list[Row]:
    counts = dict(arguments.cases)
    cases = {"cases": counts[part]} if part in counts else {}
    if part == "kill":
        return kill.kill(warm, counts.get(part, kill.KILLS), say=say)
    if part == "disk":
        return disk.disk(warm, **cases, say=say)
    if part == "damage":
        return damage.damage(warm, **cases, say=say)
    if part == "fuzz":
        return fuzz.fuzz(warm, **cases, say=say)
    if part == "together":
        return together.together(warm, **cases, say=say)
    if part == "numbers":
        return numbers.numbers(warm, say=say)
    if part == "unsafe":
        return unsafe.unsafe(warm, say=say)
    if part == "hosts":
        return hosts.hosts(say)
    if part == "load":
        return load.load(warm, minutes=arguments.minutes, say=say)
    return supply.supply(say)


def _count(word: str) -> tuple[str, int]:
    """PART=NUMBER."""
    part, _, number = word.partition("=")
    if part not in ("kill", "disk", "damage", "fuzz", "together") or not number.isdecimal():
        raise argparse.ArgumentTypeError(f"{word!r} is not of the form kill=50")
    return part, int(number)


def _write(out: Path, rows: list[Row], seconds: float) -> None:
    """Keep what there is so far: later parts take long."""
    out.mkdir(parents=True, exist_ok=True)
    result = {
        "about": here(),
        "command": shlex.join(["python", "-m", "torture", *sys.argv[1:]]),
        "seconds": seconds,
        "rows": [row.to_json() for row in rows],
    }
    (out / "torture.json").write_text(json.dumps(result, indent=2))


def _line(row: Row) -> str:
    mark = "skipped" if row.skipped else "BROKE" if row.faults else "held"
    return f"  {mark:<8} {row.cases:>6,}  {row.what}"


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
