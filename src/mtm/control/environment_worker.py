"""A process that steps environments for an `EnvironmentPool`, until the pool closes or is gone.

It is asked on standard input and answers on standard output, in pickles. Pipes to a child are what
every platform has, no other process can reach them, and they end when the parent does, however it
ends.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
from typing import IO, Any

from mtm.control.environment_pool import READY, Shard, write_pickle


def main() -> None:
    """Serve the pool that started this process."""
    # Ctrl-C reaches all processes of a terminal; the pool's decides what becomes of this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    requests, answers = _take_pipes()
    with contextlib.suppress(OSError), answers:  # where the pool does not wait for an answer
        answers.write(READY)
        serve(requests, answers)


def serve(requests: IO[bytes], answers: IO[bytes]) -> None:
    """Make environments and say None, or why there are none; then answer the pool's requests."""
    try:
        shard = Shard(*pickle.load(requests))
    except Exception as error:  # an environment may raise anything: the pool tells the user
        write_pickle(answers, f"{type(error).__name__}: {error}")
        return
    write_pickle(answers, None)
    while (request := _next(requests)) is not None:
        write_pickle(answers, shard.answer(*request))
    shard.close()


def _next(requests: IO[bytes]) -> Any:
    """The next request; None if the pool has closed, or its process ended, even amid a request."""
    try:
        return pickle.load(requests)
    except (EOFError, pickle.UnpicklingError):
        return None


def _take_pipes() -> tuple[IO[bytes], IO[bytes]]:
    """The pipes to the pool, kept from environments: these read nothing and print to stderr."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return requests, answers
