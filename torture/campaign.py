"""The parts of the campaign as tasks for two workers or more, each a process on a core.

A worker has a warm process of its own (`torture.warm`). Tasks are independent of each other, so
that the rows are the same whoever does them; the long ones come first, so that no core idles at the
end while another works on.
"""

from __future__ import annotations

import multiprocessing
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing.util import Finalize
from pathlib import Path

from torture import damage, disk, fuzz, guided, hosts, kill, load, numbers, supply, together, unsafe
from torture.fuzz_kinds import KINDS
from torture.outcomes import Row
from torture.verbs import VERBS
from torture.warm import Warm

CASES = {
    "kill": kill.KILLS,
    "disk": disk.CASES,
    "damage": damage.CASES,
    "fuzz": fuzz.CASES,
    "guided": guided.RUNS,
    "together": together.CASES,
}
"""How many cases of a part there are if nobody says: of each verb or kind; of `fuzz`, of all."""

SHARES: dict[str, tuple[Sequence[str], int]] = {
    "kill": (VERBS, 1),
    "disk": (VERBS, 3),
    "fuzz": (tuple(KINDS), 4),
    "guided": (tuple(guided.TARGETS), 2),
    "together": (VERBS, 4),
    "hosts": (tuple(hosts.CASES), 1),
}
"""What a part is about, and how much of it a task is; other parts are a task each."""

PARTS = (
    *("soak", "kill", "hosts", "fuzz", "guided", "disk", "damage", "together", "load"),
    *("numbers", "unsafe", "supply"),
)
"""In the order in which they begin."""


@dataclass(frozen=True)
class Task:
    """Some work of a part.

    Attributes:
        part: Of the campaign.
        about: The verbs or kinds; none where the part is a task.
        cases: How many of each; 0 where the part has its own.
        minutes: Of the soak.
        advisories: Where known vulnerabilities are listed, see `torture.advisories`.
    """

    part: str
    about: tuple[str, ...] = ()
    cases: int = 0
    minutes: float = 0.0
    advisories: Path | None = None


def tasks(
    parts: Sequence[str], counts: Mapping[str, int], minutes: float, advisories: Path | None
) -> list[Task]:
    """All that is to be done for some parts, in the order in which to begin."""
    found = []
    for part in (part for part in PARTS if part in parts):
        cases = counts.get(part, CASES.get(part, 0))
        names, size = SHARES.get(part, ((), 1))
        if part == "fuzz":
            cases = -(-cases // len(KINDS))  # no fewer in all than were asked for
        for first in range(0, max(len(names), 1), size):
            about = tuple(names[first : first + size])
            found.append(Task(part, about, cases, minutes, advisories))
    return found


def run(
    todo: Sequence[Task], workers: int, say: Callable[[Task, list[Row]], None]
) -> Iterator[list[Row]]:
    """Do tasks, so many at a time; after each, all rows there are, in the order of the tasks.

    A task whose worker died is a fault, as are those that were then under way or waited: a pool
    without one of its workers takes no more. Whatever else is raised here, such as by Ctrl-C, drops
    the tasks that have not begun.
    """
    found: dict[int, list[Row]] = {}
    context = multiprocessing.get_context("spawn")  # a fork of this process would share its pipes
    pool = ProcessPoolExecutor(workers, context)
    try:
        places: dict[Future[list[Row]], int] = {
            pool.submit(do, task): place for place, task in enumerate(todo)
        }
        for done in as_completed(places):
            place = places[done]
            try:
                found[place] = done.result()
            except BrokenProcessPool as error:
                found[place] = [_not_tried(todo[place], str(error))]
            say(todo[place], found[place])
            yield [row for _, rows in sorted(found.items()) for row in rows]
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()


def do(task: Task) -> list[Row]:
    """Do a task; one that cannot even be prepared is a fault, and the others go on."""
    warnings.simplefilter("ignore")
    if _interrupted.is_set():  # the pool hands one out beforehand
        raise KeyboardInterrupt
    try:
        return _do(task)
    except KeyboardInterrupt:
        _interrupted.set()
        raise
    except Exception:
        return [_not_tried(task, traceback.format_exc()[-2000:])]


def _not_tried(task: Task, reason: str) -> Row:
    row = Row(task.part, ", ".join(task.about) or "all of it")
    row.broke(f"it could not be tried: {reason}")
    return row


def _do(task: Task) -> list[Row]:
    cases, about = task.cases, task.about
    match task.part:
        case "kill":
            return kill.kill(_warm(), cases, about)
        case "disk":
            return disk.disk(_warm(), cases, about)
        case "damage":
            return damage.damage(_warm(), cases)
        case "fuzz":
            return fuzz.fuzz(_warm(), cases * len(about), about)
        case "guided":
            return guided.guided(cases, about)
        case "together":
            return together.together(_warm(), cases, about)
        case "numbers":
            return numbers.numbers(_warm())
        case "unsafe":
            return unsafe.unsafe(_warm())
        case "hosts":
            return hosts.hosts(about)
        case "load":
            return load.load(_warm())
        case "soak":
            return load.soaked(_warm(), task.minutes)
        case _:
            return supply.supply(task.advisories)


_interrupted = threading.Event()
_processes: list[Warm] = []


def _warm() -> Warm:
    """The warm process of this worker, which ends with it."""
    if not _processes:
        _processes.append(Warm())
        Finalize(None, _processes[0].__exit__, exitpriority=10)
    return _processes[0]
