"""Folders too large for memory: made into a store once, which is read through memory maps.

What is compressed in thousands of files cannot be read at random steps. A folder whose files have
more bytes than an eighth of the free memory (or than `MTM_STREAM_ABOVE` says) is therefore written
to a store, file by file, in `MTM_CACHE` (else `~/.cache/mtm`). It is made again when a file of the
folder changes, or when it is read in another way; the one before it is removed then.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from mtm.core.errors import ConfigError, DataError
from mtm.core.locks import locked
from mtm.core.progress import StepProgress, progress_console
from mtm.core.reading import Reading
from mtm.core.system import available_memory
from mtm.data.formats.store import VERSION, open_store, write_store
from mtm.data.trajectories import TrajectoryDataset

LIMIT_VARIABLE = "MTM_STREAM_ABOVE"
CACHE_VARIABLE = "MTM_CACHE"

SHARE_OF_MEMORY = 8
"""Files may have this part of the free memory: they are compressed, and are joined by copying."""

UNKNOWN_MEMORY = 1 << 33
"""Bytes that are free where nobody says."""


def is_large(files: Sequence[Path]) -> bool:
    """Whether files are too many bytes to hold them in memory.

    Raises:
        ConfigError: `MTM_STREAM_ABOVE` is no number of bytes.
    """
    return sum(file.stat().st_size for file in files) > _limit()


def through_store(
    folder: Path,
    files: Sequence[Path],
    reading: Reading,
    parts: Callable[[], Iterable[TrajectoryDataset]],
) -> TrajectoryDataset:
    """Open the store of a folder; it is made first if there is none of these very files.

    Args:
        folder: What is read.
        files: Its data files.
        reading: How they are read.
        parts: Reads them, one part for each.

    Raises:
        DataError: As `parts`, or the store cannot be written.
    """
    place = _place(folder, files, reading)
    place.parent.mkdir(parents=True, exist_ok=True)
    with locked(place.parent.with_suffix(".lock")):  # another process may be making it
        if not place.exists():
            for old in place.parent.iterdir():
                shutil.rmtree(old, ignore_errors=True)
            _make(folder, place, len(files), parts())
    return open_store(place)


def _make(folder: Path, place: Path, count: int, parts: Iterable[TrajectoryDataset]) -> None:
    console = progress_console(stderr=True)
    with StepProgress(f"{folder.name} to a store", count, 0, console) as progress:
        progress.say(
            f"{folder} is large: it is read from a store, made once in {place} ({CACHE_VARIABLE} "
            "chooses another place)"
        )
        try:
            write_store(_counted(parts, progress), place, folder.name)
        except DataError as error:
            if not isinstance(error.__cause__, OSError):
                raise
            raise DataError(f"{error} {CACHE_VARIABLE} names the place.") from error


def _counted(
    parts: Iterable[TrajectoryDataset], progress: StepProgress
) -> Iterator[TrajectoryDataset]:
    for done, part in enumerate(parts, 1):
        yield part
        progress.at(done)


def _place(folder: Path, files: Sequence[Path], reading: Reading) -> Path:
    """Where the store of these files is, by what they are called, how large and how old."""
    listed = [(str(file), (s := file.stat()).st_size, s.st_mtime_ns) for file in files]
    cache = Path(os.environ.get(CACHE_VARIABLE) or "~/.cache/mtm").expanduser()
    return (
        cache
        / "stores"
        / _digest([str(folder.resolve()), asdict(reading)])
        / _digest([VERSION, listed])
    )


def _digest(plain: object) -> str:
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:16]


def _limit() -> int:
    said = os.environ.get(LIMIT_VARIABLE)
    if said is None:
        return (available_memory() or UNKNOWN_MEMORY) // SHARE_OF_MEMORY
    if not said.strip().isdecimal():
        raise ConfigError(
            f"the environment variable {LIMIT_VARIABLE} is {said!r}, it must be a number of bytes. "
            "Unset it to go by the free memory."
        )
    return int(said)
