"""Bad input to everything that reads: only errors of ours, soon, in bounded memory.

A batch of cases runs in a child of the warm process. A case that raises another error, takes more
than `SECONDS`, more memory than `MEMORY`, or ends the process, is a fault; the seed of a case makes
it again. What ends the process in a C library is read once more with `isolated=True`, where it must
be an error: that is what is promised.
"""

from __future__ import annotations

import json
import random
import resource
import signal
import tempfile
import traceback
import warnings
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from mtm.core.errors import MTMError
from torture.fuzz_kinds import DATA_FILES, KINDS, prepare
from torture.outcomes import Row, timed
from torture.warm import Warm

CASES = 20_000
"""Over all kinds."""

BATCH = 250
SECONDS = 10
"""For one case; most take milliseconds."""

MEMORY = 3 << 30
"""Bytes of address space that cases may take beyond what the process has."""


class TooLong(BaseException):
    """A case did not end in time; no `Exception`, or somebody might swallow it."""


def fuzz(
    warm: Warm,
    cases: int = CASES,
    only: Collection[str] = (),
    say: Callable[[Row], None] = lambda row: None,
) -> list[Row]:
    """Run so many cases, shared out among the kinds of input."""
    rows = []
    kinds = [kind for kind in KINDS if not only or kind in only]
    with tempfile.TemporaryDirectory(prefix="mtm-fuzz-") as name:
        ended = warm.run("torture.fuzz:make", name)
        assert ended.code == 0, ended.said
        for kind in kinds:
            row = Row("fuzz", kind)
            with timed(row):
                for first in range(0, max(cases // len(kinds), 1), BATCH):
                    last = min(first + BATCH, max(cases // len(kinds), 1))
                    _batches(warm, kind, first, last, Path(name), row)
            say(row)
            rows.append(row)
    return rows


def make(base: str) -> None:
    """Make what is mutated; in a child."""
    prepare(Path(base))


def _batches(warm: Warm, kind: str, first: int, last: int, base: Path, row: Row) -> None:
    """A batch in a child; where that dies, go on after the case that killed it."""
    while first < last:
        note = base / "note.json"
        note.unlink(missing_ok=True)
        ended = warm.run(
            "torture.fuzz:batch", kind, first, last, str(base), seconds=SECONDS * (last - first)
        )
        found: dict[str, Any] = json.loads(note.read_text()) if note.exists() else {}
        for outcome, count in found.get("outcomes", {}).items():
            row.cases += count
            row.outcomes[outcome] += count
        for fault in found.get("faults", []):
            row.broke(fault)
        if found.get("done"):
            return
        seed = int(found.get("seed", first))
        how = f"case {seed} ended its process ({ended.code}): {ended.said[-300:]}"
        if kind in DATA_FILES and ended.code < 0:
            apart = warm.run("torture.fuzz:isolated", kind, seed, str(base))
            if apart.code == 0:
                row.held("ended a library; an error with --isolated")
            else:
                row.broke(f"{how}; isolated: {apart.said[-300:]}")
        else:
            row.broke(how)
        first = seed + 1


def batch(kind: str, first: int, last: int, base: str) -> None:
    """The cases of some seeds; in a child, which notes how far it is."""
    note = Path(base) / "note.json"
    outcomes: dict[str, int] = {}
    faults: list[str] = []
    with tempfile.TemporaryDirectory(prefix="mtm-fuzz-case-") as name:
        case = KINDS[kind](Path(base), Path(name))
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, resource.RLIM_INFINITY))
        signal.signal(signal.SIGALRM, _too_long)
        for seed in range(first, last):
            state = {"seed": seed, "outcomes": outcomes, "faults": faults}
            note.write_text(json.dumps(state))
            outcome = _outcome(case, seed)
            if outcome.startswith("!"):
                faults.append(f"case {seed}: {outcome[1:]}")
            else:
                outcomes[outcome] = outcomes.get(outcome, 0) + 1
        note.write_text(json.dumps({"done": True, "outcomes": outcomes, "faults": faults}))


def isolated(kind: str, seed: int, base: str) -> int:
    """Whether a file that ends a process is an error where it is read in another one."""
    from mtm.data import loading

    with tempfile.TemporaryDirectory(prefix="mtm-fuzz-case-") as name:
        case = KINDS[kind](Path(base), Path(name))
        path = case(random.Random(seed), read=False)  # type: ignore[call-arg]
        try:
            loading.load(path, isolated=True)
        except MTMError:
            return 0
    return 1


def _too_long(*_: object) -> None:
    raise TooLong


def _outcome(case: Callable[[random.Random], object], seed: int) -> str:
    """How a case ended; with ! before what must not be."""
    signal.alarm(SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = case(random.Random(seed))
    except MTMError as error:
        return "refused" if str(error).strip() else "!an error that says nothing"
    except TooLong:
        return f"!it took more than {SECONDS} s"
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return f"!{type(error).__name__}: {error} ({where.filename}:{where.lineno})"
    finally:
        signal.alarm(0)
    return str(found) if isinstance(found, str) else "taken"
