"""Disks that are full, read-only, or stop in the middle of a file; files that vanish or change.

A full and a read-only disk are small file systems in memory, which only root may mount. A file that
may not grow beyond a size (RLIMIT_FSIZE) ends a write in the middle, for everybody.
"""

from __future__ import annotations

import os
import random
import resource
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from torture.kill import material
from torture.outcomes import Row, timed
from torture.verbs import Verb
from torture.warm import Ended, Warm
from torture.whole import half_written, strays

CASES = 3
"""Sizes at which each verb finds its disk full."""

PLENTY = "256m"


def disk(
    warm: Warm,
    cases: int = CASES,
    only: Collection[str] = (),
    say: Callable[[Row], None] = lambda row: None,
) -> list[Row]:
    """Every verb that writes, on bad disks."""
    rows, reason = [], why_not()
    with material(warm, only) as known:
        for name, verb in known.items():
            for what, cause in (("full", _full), ("read-only", _read_only), ("cut off", _cut)):
                row = Row("disk", f"{what}: {name}")
                if cause is not _cut and reason:
                    row.skipped = reason
                else:
                    with timed(row):
                        cause(warm, verb, 1 if cause is _read_only else cases, row)
                say(row)
                rows.append(row)
    return rows


def why_not() -> str:
    """Why no file system can be mounted here; empty if one can."""
    if os.geteuid():
        return "only root may mount a file system"
    try:  # the root of a container may have no such right
        with _mounted("64k"):
            return ""
    except subprocess.CalledProcessError as error:
        return f"{shlex.join(error.cmd)}: {error.stderr.strip()}"


def limited(size: int, words: list[Any]) -> int:
    """A verb none of whose files may grow beyond a size; in a process of its own."""
    from torture.warm import _do

    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    try:
        return _do(words[0], words[1:])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)


def _full(warm: Warm, verb: Verb, cases: int, row: Row) -> None:
    """A disk that is full somewhere on the way; then there is room, and the verb goes on."""
    rng = random.Random(verb.name)
    wanted, size, _ = _without_faults(warm, verb)
    for _ in range(cases):
        room = max(int(size * rng.uniform(0.02, 0.95)) // 4096, 4) * 4
        with _mounted(PLENTY) as folder:
            verb.before(folder)
            _remount(folder, f"size={_used(folder) // 1024 + room}k")
            ended = warm.run(*verb.job(folder))
            faults = _refused(ended, folder)
            _remount(folder, f"size={PLENTY}")
            _again(warm, verb, folder, wanted, faults, f"with room for {room} KiB", row)


def _read_only(warm: Warm, verb: Verb, cases: int, row: Row) -> None:
    """A disk that takes nothing at all."""
    wanted, _, _ = _without_faults(warm, verb)
    for _ in range(cases):
        with _mounted(PLENTY) as folder:
            verb.before(folder)
            _remount(folder, "ro")
            before = sorted(map(str, folder.rglob("*")))
            ended = warm.run(*verb.job(folder))
            faults = _refused(ended, folder)
            if not ended.code:
                faults.append("it said that all was well")
            if sorted(map(str, folder.rglob("*"))) != before:
                faults.append("something changed")
            _remount(folder, "rw")
            _again(warm, verb, folder, wanted, faults, "read-only", row)


def _cut(warm: Warm, verb: Verb, cases: int, row: Row) -> None:
    """A write that stops in the middle of a file."""
    rng = random.Random(verb.name)
    wanted, _, largest = _without_faults(warm, verb)
    for _ in range(cases):
        size = rng.randint(0, largest)
        with tempfile.TemporaryDirectory(prefix="mtm-disk-") as name:
            folder = Path(name)
            verb.before(folder)
            ended = warm.run("torture.disk:limited", size, list(verb.job(folder)))
            faults = _refused(ended, folder)
            _again(warm, verb, folder, wanted, faults, f"files of {size} bytes", row)


def _without_faults(warm: Warm, verb: Verb) -> tuple[Any, int, int]:
    """The result of a verb where nothing is wrong, its bytes, and those of its largest file."""
    with tempfile.TemporaryDirectory(prefix="mtm-disk-") as name:
        folder = Path(name)
        verb.before(folder)
        before = _used(folder)
        ended = warm.run(*verb.job(folder))
        assert ended.code == 0, ended.said
        largest = max(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        return verb.result(folder), _used(folder) - before, largest


def _refused(ended: Ended, folder: Path) -> list[str]:
    """What is wrong with how a verb ended that met a fault: an error of ours, or none."""
    faults = []
    if ended.is_foreign:
        faults.append(f"exit code {ended.code}: {ended.said[-600:]}")
    elif ended.code == 2 and "error: " not in ended.said:
        faults.append(f"it did not say why: {ended.said[-300:]}")
    return faults + half_written(folder)


def _again(
    warm: Warm, verb: Verb, folder: Path, wanted: Any, faults: list[str], where: str, row: Row
) -> None:
    """Give the same command where nothing is wrong any more, and compare."""
    verb.before(folder)
    ended = warm.run(*verb.job(folder))
    if ended.code:
        faults.append(f"again: exit code {ended.code}: {ended.said[-300:]}")
    elif verb.result(folder) != wanted:
        faults.append("again: the result is another")
    faults += [f"{stray} was left behind" for stray in strays(folder)]
    if faults:
        row.broke(f"{where}: {faults}")
    else:
        row.held("told, then went on")


def _used(folder: Path) -> int:
    """Bytes of a folder, in blocks as a disk counts them."""
    return sum((path.lstat().st_size // 4096 + 1) * 4096 for path in folder.rglob("*"))


@contextmanager
def _mounted(size: str) -> Iterator[Path]:
    """A small file system in memory."""
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="mtm-disk-"))
        stack.callback(folder.rmdir)
        _called("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder))
        stack.callback(_called, "umount", "--lazy", str(folder))
        yield folder


def _called(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, text=True)


def _remount(folder: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", str(folder)], check=True)
