"""`mtm report`: a page of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro


@dataclass(frozen=True)
class Arguments:
    """Write one self-contained HTML page of a run, and its pictures as PNG files."""

    run: tyro.conf.Positional[Path]
    """The run directory."""
    out: Path | None = None
    """The folder to write to; RUN/report if not given."""
    data: str | None = None
    """Data to draw predictions of; the run's held-out episodes if not given."""
    checkpoint: Literal["last", "best"] = "last"
    """The newest weights, or those with the lowest held-out loss."""


def main(words: Sequence[str]) -> None:
    """Write the report and print its path."""
    arguments = tyro.cli(Arguments, args=list(words), prog="mtm report")
    from mtm.evaluation.report.page import write_report
    from mtm.runs.run import load_run

    run = load_run(arguments.run, arguments.checkpoint)
    out = arguments.out or arguments.run / "report"
    print(write_report(run, out, data=arguments.data))
