"""Do one run in its directory; every engine calls this in the process that computes.

OUT/runs/KEY/
    spec.json       what to run
    lock            held while somebody computes here
    running.json    there meanwhile
    work/           the method's own, with its checkpoints
    log.txt         what was printed, an entry for every sitting
    result.json     the end: what was measured, with which versions, on which machine
    failure.json    or why not; the next call tries again
"""

from __future__ import annotations

import json
import os
import platform
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, Literal, TypeAlias

from mtm.core.errors import MTMError, RunError
from mtm.core.locks import locked
from mtm.core.plain_data import expecting, read_object, sealed, unsealed
from mtm.core.system import thread_settings
from mtm.research.experiments.spec import RunSpec

Outcome: TypeAlias = Literal["done", "failed", "busy", "stopped"]
"""`busy`: another process computes it. `stopped`: on request; it goes on with the next call."""


def execute(folder: Path) -> Outcome:
    """Do the run of a directory unless it is done, or under way in another process."""
    with locked(folder / "lock", wait=False) as mine:
        if not mine:
            return "busy"
        if (folder / "result.json").exists():
            return "done"
        spec = RunSpec.from_json(read(folder / "spec.json")["spec"])
        os.environ.update(thread_settings(spec.threads))  # before torch is loaded
        running = folder / "running.json"
        try:
            with _printing_to(folder / "log.txt"):
                write(running, {"pid": os.getpid(), "host": platform.node(), "began": time.time()})
                return _sitting(spec, folder)
        finally:
            running.unlink(missing_ok=True)


def read(file: Path) -> dict[str, Any]:
    """Plain data from a file.

    Raises:
        RunError: It is damaged.
    """
    with expecting(file, RunError, f"Delete {file.parent} to compute it again."):
        return unsealed(read_object(file))


def write(file: Path, content: Mapping[str, Any]) -> None:
    """Plain data into a file, whole or not at all."""
    from mtm.core.atomic_write import write_atomically

    write_atomically(file, json.dumps(content, indent=2).encode())


def fail(folder: Path, reason: str) -> None:
    """Write down why a run failed."""
    write(folder / "failure.json", {"reason": reason, "when": time.time()})


def _sitting(spec: RunSpec, folder: Path) -> Outcome:
    import torch

    from mtm.research.experiments import provenance
    from mtm.research.experiments.methods import Stopped, find

    print(f"--- {time.strftime('%Y-%m-%d %H:%M:%S')} on {platform.node()}: {spec.label}")
    torch.set_num_threads(spec.threads)
    keys = read(folder / "spec.json")["needs"]
    try:
        (folder / "failure.json").unlink(missing_ok=True)
        needs = [folder.parent / key / "work" for key in keys]
        result = find(spec.method)(spec, folder / "work", needs)
        content = {"result": result, "provenance": provenance.here()}
        write(folder / "result.json", sealed(content))
    except (Stopped, KeyboardInterrupt):
        return "stopped"
    except Exception as error:  # whatever it is, it is this run's alone: tell it, and go on
        traceback.print_exc()
        bare = isinstance(error, MTMError)
        fail(folder, str(error) if bare else f"{type(error).__name__}: {error}")
        return "failed"
    return "done"


@contextmanager
def _printing_to(path: Path) -> Iterator[None]:
    """Send what this process and its children print to the end of a file."""
    numbers = (1, 2)
    kept = [os.dup(number) for number in numbers]
    with path.open("a", buffering=1) as file, redirect_stdout(file), redirect_stderr(file):
        for number in numbers:  # of libraries and children, which do not know Python's streams
            os.dup2(file.fileno(), number)
        try:
            yield
        finally:
            for number, descriptor in zip(numbers, kept, strict=True):
                os.dup2(descriptor, number)
                os.close(descriptor)
