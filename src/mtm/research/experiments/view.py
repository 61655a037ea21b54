"""The runs as a person sees them: a live table on a terminal, a line per change elsewhere."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.live import Live
from rich.table import Table

from mtm.core.errors import RunError
from mtm.research.baselines.td3_curve import CURVE_FILE
from mtm.research.experiments.runner import OVER, RunState
from mtm.research.experiments.spec import RunSpec
from mtm.training.trackers import read_metrics

if TYPE_CHECKING:
    from typing_extensions import Self

MOST_ROWS = 24
"""Rows of the live table; the runs under way and the failed ones come first."""

ORDER = ("running", "elsewhere", "failed", "queued", "done", "left out")
WORDS = {"elsewhere": "running in another process"}
STYLES = {"running": "bold", "failed": "red", "done": "green"}
SECONDS_BETWEEN_DRAWINGS = 0.5


class View:
    """Shows the states of runs."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._shown: dict[int, str] = {}
        self._drawn = 0.0

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    def look(self, states: Sequence[RunState]) -> None:
        """Show what has changed."""
        phases = [_phase(state) for state in states]
        if self.console.is_terminal:
            if time.monotonic() - self._drawn > SECONDS_BETWEEN_DRAWINGS:
                self._live.update(_table(states, phases), refresh=True)
                self._drawn = time.monotonic()
            return
        over = sum(phase in OVER for phase in phases)
        for place, (state, phase) in enumerate(zip(states, phases, strict=True)):
            if phase not in (self._shown.get(place, "queued"), "left out"):
                reason = f": {_one_line(state)}" if phase == "failed" else ""
                line = f"[{over}/{len(states)}] {_word(phase)}: {state.spec.label}{reason}"
                self.console.print(line, soft_wrap=True, markup=False)
            self._shown[place] = phase


def _phase(state: RunState) -> str:
    """The status, where `submitted` is told apart by whether somebody computes it yet."""
    if state.status != "submitted" or state.folder is None:
        return state.status
    return "running" if (state.folder / "running.json").exists() else "queued"


def _one_line(state: RunState) -> str:
    return " ".join((state.reason or "").split())


def _word(phase: str) -> str:
    return WORDS.get(phase, phase)


def _table(states: Sequence[RunState], phases: Sequence[str]) -> Table:
    counts = ", ".join(f"{phases.count(p)} {_word(p)}" for p in ORDER if p in phases)
    table = Table(title=counts, box=SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for title in ("run", "state", ""):
        table.add_column(title, overflow="ellipsis", no_wrap=True)
    rows = sorted(zip(phases, states, strict=True), key=lambda row: ORDER.index(row[0]))
    for phase, state in rows[:MOST_ROWS]:
        more = _one_line(state)
        if phase == "running" and state.folder is not None:
            more = time_left(state.spec, state.folder)
        table.add_row(state.spec.label, _word(phase), more, style=STYLES.get(phase))
    if len(rows) > MOST_ROWS:
        table.add_row(f"... and {len(rows) - MOST_ROWS} more", "", "")
    return table


def time_left(spec: RunSpec, folder: Path) -> str:
    """How long the training under way will take, by the metrics that it leaves."""
    files = (folder / "work" / name for name in ("metrics.csv", CURVE_FILE))
    steps = spec.steps
    try:
        rows: list[dict[str, Any]] = next((read_metrics(f) for f in files if f.exists()), [])
    except RunError:  # its last row is being written
        rows = []
    if not rows or steps is None or "seconds" not in rows[-1]:
        return "under way"
    step, seconds = rows[-1]["step"], rows[-1]["seconds"]
    if step >= steps:
        return "evaluating"
    left = seconds * (steps - step) / max(step, 1)
    return f"step {step:,}/{steps:,}, {_duration(left)} of training left"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min" if minutes else f"{rest} s"
