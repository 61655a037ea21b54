"""`mtm report`: a page of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from mtm.cli.asked_run import AskedRun
from mtm.core.escaping import say


@dataclass(frozen=True, kw_only=True)
class Arguments(AskedRun):
    """Write one self-contained HTML page of a run, and its pictures as PNG files."""

    out: Path | None = None
    """The folder to write to; RUN/report if not given, where the run is a directory."""
    data: str | None = None
    """Data to draw predictions of; the run's test episodes if not given."""


def main(words: Sequence[str]) -> None:
    """Write the report and print its path."""
    arguments = tyro.cli(Arguments, args=list(words), prog="mtm report")
    from mtm.core.errors import ConfigError
    from mtm.evaluation.report.page import write_report
    from mtm.runs.shared import is_shared

    if arguments.out is None and is_shared(arguments.run):
        raise ConfigError(f"{arguments.run} is no directory to write to; name one with --out.")
    out = arguments.out or arguments.run / "report"
    say(write_report(arguments.load(), out, data=arguments.data))
