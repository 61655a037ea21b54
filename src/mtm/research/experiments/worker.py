"""A process of the local engine: `python -m mtm.research.experiments.worker`.

Takes directories of runs on standard input, a line each, and answers each with its outcome. When
the input ends, because nothing is left to do or because the parent is gone, a run under way is
asked to save and stop.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
from pathlib import Path

from mtm.research.experiments.execute import execute


def main() -> None:
    """Run what is asked for until the input ends."""
    requests: queue.Queue[str | None] = queue.Queue()
    busy = threading.Event()
    threading.Thread(target=_listen, args=(requests, busy), daemon=True).start()
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    while (folder := requests.get()) is not None:
        busy.set()
        outcome = execute(Path(folder))
        busy.clear()
        try:
            print(outcome, file=answers)
        except BrokenPipeError:  # the parent is gone
            break


def _listen(requests: queue.Queue[str | None], busy: threading.Event) -> None:
    for line in sys.stdin:
        requests.put(line.rstrip("\n"))
    requests.put(None)
    if busy.is_set():  # training saves on this signal; anything else may end at once
        os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
