"""How far a collection is: a bar on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

SECONDS_BETWEEN_LINES = 15.0
SECONDS_BETWEEN_UPDATES = 0.1


class StepProgress:
    """Shows steps, their rate, a status and the time left.

    Args:
        title: What is being done.
        total: Steps in all.
        start: Steps done in an earlier sitting.
        console: Where to show it.
    """

    def __init__(self, title: str, total: int, start: int, console: Console) -> None:
        self._title, self._total, self._start, self._console = title, total, start, console
        self._began = self._last_update = self._last_line = time.monotonic()
        self._bar = Progress(
            TextColumn(title),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[status]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            speed_estimate_period=120,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("", total=total, completed=start, status="")

    def __enter__(self) -> StepProgress:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def at(self, step: int, status: str = "") -> None:
        """So many steps are done."""
        now = time.monotonic()
        if now - self._last_update < SECONDS_BETWEEN_UPDATES and step < self._total:
            return
        self._last_update = now
        rate = (step - self._start) / max(now - self._began, 1e-9)
        shown = f"{rate:,.0f} steps/s  {status}"
        self._bar.update(self._task, completed=min(step, self._total), status=shown)
        if not self._console.is_terminal and now - self._last_line > SECONDS_BETWEEN_LINES:
            self._last_line = now
            left = max(self._total - step, 0) / max(rate, 1e-9)
            self._console.print(
                f"{self._title}: step {step:,}/{self._total:,}  {shown}  {left:,.0f} s left",
                soft_wrap=True,
            )
