"""`mtm doctor`: the faults of a data set, its most suspicious episodes, and what to do next."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from mtm.cli.parsing import parse
from mtm.core.reading import AS_IT_IS, Reading

if TYPE_CHECKING:
    from mtm.core.terminal import PlainConsole
    from mtm.evaluation.doctor.examine import Diagnosis

MOST_LISTED = 20
"""Rows of a table; the JSON file and the page have more."""


@dataclass(frozen=True)
class Arguments:
    """Find what is wrong with a data set, and rank its episodes by how suspicious they are.

    Checks find stuck sensors, jumps, other units, bad clocks and copies. A quick model, trained on
    the data in a minute, finds what does not fit the rest. Nothing is changed. The exit code is 0
    also if there are faults, and 2 if nothing could be read.
    """

    spec: tyro.conf.Positional[str]
    """A file, a directory, or PREFIX:NAME."""
    run: Path | None = None
    """A trained run, whose surprise counts as well."""
    model: bool = True
    """Train the quick model; --no-model makes the checks only, in seconds."""
    json: Path | None = None
    """Write faults and scores to this file."""
    html: Path | None = None
    """Write a page with pictures of the worst steps."""
    without: Path | None = None
    """Write the list of what is better left out, for mtm data convert --without."""
    seed: int = 0
    """Of the quick model."""
    reading: Reading = field(default_factory=Reading)


def main(words: Sequence[str]) -> None:
    """Examine, write, print, and say what to type next."""
    arguments = parse(Arguments, words, "mtm doctor")
    from mtm.core.errors import DataError, require
    from mtm.core.terminal import PlainConsole
    from mtm.evaluation.doctor.examine import doctor

    if arguments.html is not None:
        for library in ("matplotlib", "jinja2"):
            require(library, extra="report")
    diagnosis = doctor(
        arguments.spec,
        arguments.run,
        reading=arguments.reading,
        model=arguments.model,
        seed=arguments.seed,
    )
    if arguments.json is not None:
        diagnosis.write_json(arguments.json)
    console = PlainConsole()
    _print(console, diagnosis)
    if diagnosis.dataset is None:
        raise DataError(f"nothing of {arguments.spec} could be read.")
    if arguments.html is not None:
        from mtm.evaluation.doctor.page import write_page

        write_page(diagnosis, arguments.html, arguments.spec)
    if arguments.without is not None:
        diagnosis.left_out.write(arguments.without)
    for line in _next(arguments, diagnosis):
        console.print(line, soft_wrap=True)


def _print(console: PlainConsole, diagnosis: Diagnosis) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    if diagnosis.faults:
        table = Table("fault", "where", "what, and what to do", box=SIMPLE_HEAD, pad_edge=False)
        for fault in diagnosis.faults[:MOST_LISTED]:
            cure = "" if fault.check == "odd" else f" {fault.cure}"
            table.add_row(fault.check, fault.place or "everywhere", f"{fault.what}{cure}")
        console.print(table)
        if len(diagnosis.faults) > MOST_LISTED:
            console.print(f"... and {len(diagnosis.faults) - MOST_LISTED:,} more fault(s)\n")
    shown = max(min(len(diagnosis.suspects), MOST_LISTED), 5)
    if diagnosis.episodes:
        table = Table("episode", box=SIMPLE_HEAD, pad_edge=False)
        table.add_column("score", justify="right")
        table.add_column("reasons, with what each adds")
        for episode in diagnosis.episodes[:shown]:
            reasons = "; ".join(episode.reasons[:3])
            table.add_row(str(episode.episode), f"{episode.score:.1f}", reasons or "-")
        console.print(table)


def _next(arguments: Arguments, diagnosis: Diagnosis) -> list[str]:
    """How it stands, and the commands that follow from it."""
    from mtm.data.faults import LEAVE_OUT

    bad, broken = len(diagnosis.suspects), len(diagnosis.broken)
    lines = [
        f"{arguments.spec}: {len(diagnosis.episodes):,} episodes, {len(diagnosis.faults):,} "
        f"fault(s), {bad:,} episode(s) with a score of {LEAVE_OUT:g} or more"
        + (f", {broken:,} file(s) that cannot be read" if broken else "")
    ]
    again = ["mtm", "doctor", arguments.spec, *reading_words(arguments.reading)]
    if arguments.html is None:
        lines.append(f"see the worst steps:  {shlex.join([*again, '--html', 'doctor.html'])}")
    if bad or broken:
        without = arguments.without or Path("without.json")
        if arguments.without is None:
            lines.append(f"list them:            {shlex.join([*again, '--without', str(without)])}")
        convert = ["mtm", "data", "convert", arguments.spec, "clean", "--without", str(without)]
        line = shlex.join([*convert, *reading_words(diagnosis.reading)])
        lines.append(f"leave them out:       {line}")
    return lines


def reading_words(reading: Reading) -> list[str]:
    """The flags that say a reading."""
    words: list[str] = []
    for name in ("columns", "roles"):
        pairs = getattr(reading, name)
        if pairs:
            told = (v if isinstance(v, str) else ",".join(v) for v in pairs.values())
            words += [f"--reading.{name}", *map("=".join, zip(pairs, told, strict=True))]
    if reading.episode is not None:
        words += ["--reading.episode", reading.episode]
    if reading.nan_is_absent != AS_IT_IS.nan_is_absent:
        words.append("--reading.nan-is-absent")
    return words
