"""A warm process that forks: to import torch takes seconds, to fork a process that has it does not.

`python -m torture.warm` imports what the verbs need, and then forks a child for every request, a
line of JSON on its standard input. A child runs a verb of `mtm`, or a function, and is killed at a
moment: after so many seconds, or before so many things that it does to files.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtm.core.errors import MTMError
from mtm.core.system import thread_settings

LIBRARIES = (
    *("mtm.training.train", "mtm.research.baselines", "mtm.research.collect.behaviour"),
    *("mtm.research.collect.explore", "mtm.evaluation.report.page", "mtm.evaluation.evaluate"),
    *("mtm.deploy.exporter", "mtm.deploy.sharing", "mtm.inference.relabelling"),
    *("mtm.evaluation.report.pictures", "mtm.evaluation.report.tables", "mtm.data.verification"),
)
"""What is imported before the first fork."""

EXTRAS = (
    *("stable_baselines3", "gymnasium", "onnx", "onnxscript", "onnxruntime", "pyarrow.parquet"),
    *("torchrl", "matplotlib.pyplot", "torch.onnx", "torch.export"),
)
"""Likewise, where they are installed."""

SECONDS = 300.0
"""After which a child hangs."""


@dataclass(frozen=True)
class Ended:
    """How a child ended.

    Attributes:
        code: Its exit code; minus the number of a signal.
        seconds: It took.
        said: On standard output and error.
        events: Things that it did to files, if it came to its end.
        unflushed: What it renamed before it was on the disk, where that was watched.
    """

    code: int
    seconds: float
    said: str
    events: int = 0
    unflushed: tuple[str, ...] = ()

    @property
    def killed(self) -> bool:
        """Whether it was killed before its end."""
        return self.code == -signal.SIGKILL

    @property
    def is_foreign(self) -> bool:
        """Whether it ended by an error that is not one of ours."""
        return "Traceback (most recent call last)" in self.said or self.code not in (0, 2, 130)


class Warm:
    """Asks the warm process; one request at a time, though several children may run."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="mtm-torture-")
        self._number = 0
        self._process = subprocess.Popen(
            [sys.executable, "-m", "torture.warm"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | thread_settings(1),
        )
        self._lock = threading.Lock()

    def __enter__(self) -> Warm:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
        self._folder.cleanup()

    def run(
        self, job: Sequence[str] | str, *arguments: Any, seconds: float = SECONDS, **how: Any
    ) -> Ended:
        """Start a child and wait for its end; see `start`."""
        return self.wait(self.start(job, *arguments, **how), seconds)

    def start(
        self,
        job: Sequence[str] | str,
        *arguments: Any,
        after: float | None = None,
        event: int | None = None,
        watch: bool = False,
        cwd: Path | None = None,
    ) -> Child:
        """Start a child.

        Args:
            job: The words of a verb; or MODULE:FUNCTION, which gets the arguments.
            *arguments: Plain data.
            after: Kill it after so many seconds.
            event: Kill it before so many things that it does to files.
            watch: Note what is renamed before it is on the disk.
            cwd: Where it works.
        """
        self._number += 1
        place = Path(self._folder.name) / f"{self._number}"
        request = {
            "job": job if isinstance(job, str) else list(job),
            "arguments": arguments,
            "event": event,
            "watch": watch,
            "cwd": None if cwd is None else str(cwd),
            "place": str(place),
        }
        began = time.perf_counter()
        pid = self._ask(request)["pid"]
        timer = None
        if after is not None:
            timer = threading.Timer(after, _kill, [pid])
            timer.start()
        return Child(pid, place, began, timer)

    def wait(self, child: Child, seconds: float = SECONDS) -> Ended:
        """Wait for the end of a child; one that hangs is killed and told as a signal of time."""
        code = self._ask({"wait": child.pid, "seconds": seconds})["code"]
        took = time.perf_counter() - child.began
        if child.timer is not None:
            child.timer.cancel()
        if code is None:
            _kill(child.pid)
            self._ask({"wait": child.pid, "seconds": 60})
            code = -signal.SIGALRM
        words, notes = child.place.with_suffix(".said"), dict[str, Any]()
        # One that was killed may not have begun to say anything, or not have written its notes.
        said = words.read_text(errors="replace") if code >= 0 or words.exists() else ""
        if code >= 0:
            notes = json.loads(child.place.with_suffix(".json").read_text())
        for file in child.place.parent.glob(f"{child.place.name}.*"):
            file.unlink()
        return Ended(code, took, said, notes.get("events", 0), tuple(notes.get("unflushed", ())))

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            print(json.dumps(request), file=self._process.stdin, flush=True)
            answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer


@dataclass(frozen=True)
class Child:
    """A child under way."""

    pid: int
    place: Path
    began: float
    timer: threading.Timer | None


def _kill(pid: int) -> None:
    """Kill a child with all that it started."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def main() -> None:
    """Import, then fork for every request until the input ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    import torch

    torch.set_num_threads(1)  # a process with more threads cannot be forked safely
    for name in LIBRARIES:
        importlib.import_module(name)
    for name in EXTRAS:
        try:
            importlib.import_module(name)
        except ImportError:
            continue
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            print(json.dumps({"code": _waited(request["wait"], request["seconds"])}), file=answers)
            continue
        pid = os.fork()
        if not pid:
            _child(request)
        print(json.dumps({"pid": pid}), file=answers)


def _waited(pid: int, seconds: float) -> int | None:
    """The exit code of a child; None if it has none by then."""
    end = time.monotonic() + seconds
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > end:
            return None
        time.sleep(0.005)


def _child(request: dict[str, Any]) -> None:
    """Do what is asked for in this process, and end it."""
    from torture.file_events import FileEvents

    place = Path(request["place"])
    code = 1
    try:
        os.setsid()
        said = os.open(place.with_suffix(".said"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for number, descriptor in ((0, nothing), (1, said), (2, said)):
            os.dup2(descriptor, number)
        if request["cwd"] is not None:
            os.chdir(request["cwd"])
        events = FileEvents(request["event"], watch=request["watch"])
        code = _do(request["job"], request["arguments"])
        events.stop()
        place.with_suffix(".json").write_text(json.dumps(events.notes()))
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _do(job: list[str] | str, arguments: list[Any]) -> int:
    if isinstance(job, str):
        module, _, name = job.partition(":")
        try:
            return int(getattr(importlib.import_module(module), name)(*arguments) or 0)
        except MTMError as error:  # as the command line does
            print(f"error: {error}")
            return 2
    from mtm.cli import main as mtm

    return mtm(job)


if __name__ == "__main__":
    main()
