"""What a person sees meanwhile: a live line on a terminal, a plain one now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
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


class TrainingProgress:
    """Shows step, losses, segments per second and time left. A silent one shows nothing."""

    def __init__(self, total: int, start: int, *, silent: bool = False) -> None:
        self.console = Console(quiet=silent, highlight=False)
        self._total, self._start = total, start
        self._began = self._last_line = time.monotonic()
        self._bar = Progress(
            TextColumn("training"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[status]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self.console,
            disable=silent or not self.console.is_terminal,
        )
        self._task = self._bar.add_task("", total=total, completed=start, status="")

    def __enter__(self) -> TrainingProgress:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def advance(self, step: int) -> None:
        """One more step is done."""
        self._bar.update(self._task, completed=step)

    def show(self, step: int, metrics: Mapping[str, float]) -> None:
        """New training metrics."""
        parts = " ".join(
            f"{name.removeprefix('loss/')} {value:.3f}"
            for name, value in metrics.items()
            if name.startswith("loss")
        )
        status = f"{parts}  {metrics['segments_per_second']:,.0f} segments/s"
        self._bar.update(self._task, completed=step, status=status)
        now = time.monotonic()
        if not self.console.is_terminal and now - self._last_line > SECONDS_BETWEEN_LINES:
            self._last_line = now
            left = (now - self._began) / max(step - self._start, 1) * (self._total - step)
            self.say(f"step {step:,}/{self._total:,}  {status}  {left:.0f} s left")

    def show_validation(self, step: int, metrics: Mapping[str, float]) -> None:
        """New held-out metrics."""
        named = [n for n in ("fd", "id", "bc", "rcbc") if n in metrics]
        parts = "  ".join(f"{name} {metrics[name]:.4f}" for name in named)
        self.say(f"step {step:,}  held out: loss {metrics['loss']:.4f}  {parts}")

    def say(self, text: str) -> None:
        """A line above the bar."""
        self.console.print(text, soft_wrap=True)


@contextmanager
def episode_progress() -> Iterator[tuple[Callable[[int, int], None], Console]]:
    """A bar that counts finished episodes, and the console to print notices on."""
    console = Console(highlight=False)
    bar = Progress(
        TextColumn("episodes"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    task = bar.add_task("", total=None)
    with bar:
        yield lambda done, total: bar.update(task, completed=done, total=total), console
