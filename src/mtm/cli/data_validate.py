"""`mtm data validate`: everything that is wrong with a data set, and what looks odd."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field

import tyro
from rich.table import Table

from mtm.cli.parsing import parse
from mtm.control.environments import action_bounds
from mtm.core.errors import DataError
from mtm.core.escaping import say
from mtm.core.reading import Reading
from mtm.core.terminal import PlainConsole
from mtm.data import loading
from mtm.data.lint import lint
from mtm.data.trajectories import TrajectoryDataset
from mtm.data.verification import stored_faults


@dataclass(frozen=True)
class Arguments:
    """Report every fault of a data set with its place, and what looks odd.

    The exit code is 2 if there is a fault.
    """

    spec: tyro.conf.Positional[str]
    """A file, a directory, or PREFIX:NAME."""
    reading: Reading = field(default_factory=Reading)
    isolated: bool = False
    """Read in a child process, for files from elsewhere: a crash or an endless loop of a library
    is told as a fault, after 10 minutes at most."""


def main(words: Sequence[str]) -> None:
    """Load, look and list."""
    arguments = parse(Arguments, words, "mtm data validate")
    faults: list[str] = []
    odd: list[str] = []
    dataset: TrajectoryDataset | None = None
    with warnings.catch_warnings(record=True) as noticed:
        warnings.simplefilter("always")
        try:
            dataset = loading.load(arguments.spec, arguments.reading, isolated=arguments.isolated)
            faults += stored_faults(dataset)
            if not faults:
                odd += lint(dataset, action_bounds)
        except DataError as error:
            faults += error.faults
    odd = [str(notice.message) for notice in noticed] + odd
    if faults or odd:
        _print(faults, odd)
    if faults:
        raise DataError(f"{arguments.spec} has {len(faults):,} fault(s) and cannot be used.")
    assert dataset is not None
    say(
        f"{arguments.spec}: {dataset.num_episodes:,} episodes, {dataset.num_steps:,} steps, no "
        f"fault, {len(odd)} thing(s) to look at"
    )


def _print(faults: Sequence[str], odd: Sequence[str]) -> None:
    table = Table("", "what and where", show_lines=True)
    for text in faults:
        table.add_row("fault", text)
    for text in odd:
        table.add_row("odd", text)
    PlainConsole().print(table)
