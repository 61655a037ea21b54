"""What a person sees meanwhile: a live line on a terminal, a plain one now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from mtm.core.escaping import shown
from mtm.core.terminal import PlainConsole

if TYPE_CHECKING:
    from typing_extensions import Self

SECONDS_BETWEEN_LINES = 15.0
SECONDS_BETWEEN_UPDATES = 0.1

_silent = ContextVar("silent", default=False)


@contextmanager
def silence(silent: bool = True) -> Iterator[None]:
    """Let whatever is called within show no bar, unless `silent` is false."""
    token = _silent.set(silent or _silent.get())
    try:
        yield
    finally:
        _silent.reset(token)


def progress_console(*, stderr: bool = False) -> Console:
    """Where a bar is shown: on a terminal; quiet within `silence`."""
    return PlainConsole(stderr=stderr, quiet=_silent.get())


class StepProgress:
    """Shows how many steps are done, a status and the time left.

    Args:
        title: What is being done.
        total: Steps in all.
        start: Steps done in an earlier sitting.
        console: Where to show it.
    """

    def __init__(self, title: str, total: int, start: int, console: Console) -> None:
        self.console = console
        self._title, self._total, self._start, self._status = title, total, start, ""
        self._began = self._last_update = self._last_line = time.monotonic()
        self._bar = Progress(
            TextColumn(shown(title), markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[status]}", markup=False),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            speed_estimate_period=120,
            disable=console.quiet or not console.is_terminal,
        )
        self._task = self._bar.add_task("", total=total, completed=start, status="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def at(self, step: int, status: str | None = None) -> None:
        """So many steps are done; the last status stays if there is no new one."""
        self._status = self._status if status is None else status
        now = time.monotonic()
        if now - self._last_update < SECONDS_BETWEEN_UPDATES and step < self._total:
            return
        self._last_update = now
        self._bar.update(self._task, completed=min(step, self._total), status=self._status)
        if not self.console.is_terminal and now - self._last_line > SECONDS_BETWEEN_LINES:
            self._last_line = now
            left = max(self._total - step, 0) / max(self.rate(step), 1e-9)
            self.say(
                f"{self._title}: step {step:,}/{self._total:,}  {self._status}  {left:,.0f} s left"
            )

    def rate(self, step: int) -> float:
        """Steps per second of this sitting."""
        return (step - self._start) / max(time.monotonic() - self._began, 1e-9)

    def say(self, text: str) -> None:
        """A line above the bar."""
        self.console.print(text, soft_wrap=True, markup=False)


@contextmanager
def episode_progress() -> Iterator[tuple[Callable[[int, int], None], Console]]:
    """A bar that counts finished episodes, and the console to print notices on."""
    console = progress_console()
    bar = Progress(
        TextColumn("episodes"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=console.quiet or not console.is_terminal,
    )
    task = bar.add_task("", total=None)
    with bar:
        yield lambda done, total: bar.update(task, completed=done, total=total), console
