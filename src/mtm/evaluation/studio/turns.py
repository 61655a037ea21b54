"""One thread asks the models, one question after the other; what is overtaken is not asked.

A page sends a question for every click. While one is answered others wait, and of one page only
the newest is worth an answer.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

from mtm.evaluation.studio.faults import OvertakenError, StudioError

SECONDS = 10.0
"""That an answer may take, its turn included."""
MOST_CLIENTS = 256
"""That are remembered."""
MOST_WAITING = 32

_Result = TypeVar("_Result")

Check = Callable[[], None]
"""Raises where an answer is no longer wanted."""


def compute_alone() -> None:
    """Let the thread that calls this compute without helpers.

    A window is so small that torch's threads gain nothing, and beside a browser, or a run that acts
    meanwhile, they wait for each other at every operation.
    """
    torch.set_num_threads(1)


class Turns:
    """The thread of the models, and the newest request of each client."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "mtm-studio-model", initializer=compute_alone)
        self._newest: OrderedDict[str, int] = OrderedDict()
        self._lock = threading.Lock()
        self._waiting = 0

    async def take(
        self, call: Callable[[Check], _Result], client: str | None = None, sequence: int = 0
    ) -> _Result:
        """The result of a call when it is its turn.

        Args:
            call: Gets what it should call now and then, which raises if there is a newer request.
            client: Whose request it is; None: it is never overtaken.
            sequence: Its number; larger ones are newer.

        Raises:
            OvertakenError: A newer request of the client has come.
            StudioError: Too many wait, or it took too long.
        """
        until = time.monotonic() + SECONDS
        with self._lock:
            if client is not None:
                self._note(client, sequence)
            if self._waiting >= MOST_WAITING:
                raise StudioError(503, "busy", "too many questions at once; try again in a moment.")
            self._waiting += 1

        def check() -> None:
            if client is not None and sequence < self._newest.get(client, sequence):
                raise OvertakenError
            if time.monotonic() > until:
                raise StudioError(
                    503, "too-slow", f"the answer took over {SECONDS:.0f} s; take a shorter window."
                )

        def turn() -> _Result:
            check()
            return call(check)

        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, turn)
        finally:
            with self._lock:
                self._waiting -= 1

    def close(self) -> None:
        """Let go of the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _note(self, client: str, sequence: int) -> None:
        self._newest[client] = max(sequence, self._newest.pop(client, sequence))
        while len(self._newest) > MOST_CLIENTS:
            self._newest.popitem(last=False)
