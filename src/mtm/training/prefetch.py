"""What the next steps need, made by a background thread while the current one is taken."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, Queue
from typing import Generic, NamedTuple, TypeVar

AHEAD = 2
"""Inputs that wait at most: one is enough unless some take much longer to make than others."""

_Item = TypeVar("_Item")


class _Made(NamedTuple, Generic[_Item]):
    """What was made, or why it could not be."""

    item: _Item | None
    error: BaseException | None


class Prefetcher(Generic[_Item]):
    """Gives the inputs of steps in order, each made ahead of time.

    Args:
        make: Makes the input of a step; called in a thread of its own, one step after the other.
        end: The step to stop before.
        ahead: How many inputs may wait.
    """

    def __init__(self, make: Callable[[int], _Item], end: int, ahead: int = AHEAD) -> None:
        self._make, self._end = make, end
        self._made: Queue[_Made[_Item]] = Queue(ahead)
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._next = 0

    def __call__(self, step: int) -> _Item:
        """The input of a step: that after the last one asked for, or any at first.

        Raises:
            BaseException: What `make` raised for this step.
        """
        if self._thread is None:
            self._next = step
            self._thread = threading.Thread(target=self._work, args=(step,), daemon=True)
            self._thread.start()
        assert step == self._next < self._end, f"{step} was asked for, {self._next} is next"
        made = self._made.get()
        if made.error is not None:
            raise made.error
        self._next += 1
        return made.item  # type: ignore[return-value]

    def close(self) -> None:
        """End the thread, after the input that it is making."""
        self._closed.set()
        while self._thread is not None and self._thread.is_alive():
            with suppress(Empty):  # so that it does not wait for room
                self._made.get_nowait()
            self._thread.join(0.01)

    def _work(self, first: int) -> None:
        for step in range(first, self._end):
            if self._closed.is_set():
                return
            try:
                made = _Made(self._make(step), None)
            except BaseException as error:  # of whatever kind: it is raised where it is waited for
                if hasattr(error, "add_note"):  # from Python 3.11 on
                    error.add_note(f"while the input of step {step} was made")
                self._made.put(_Made(None, error))
                return
            self._made.put(made)
