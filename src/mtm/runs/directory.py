"""The directory that a training writes to: held by one process, made, replaced or gone on with.

    RUN/config.json     what it is, see mtm.runs.description
    RUN/checkpoints/    see mtm.runs.checkpoint
    RUN/metrics.csv     a row per logged step
    RUN/.lock           locked while a training writes here

What is trained differs: a masked model, an agent, TD3.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from mtm.core.atomic_write import unfinished, write_atomically
from mtm.core.errors import ConfigError, RunError
from mtm.core.locks import LOCK, held
from mtm.core.plain_data import sealed

BELONGINGS = ("metrics.csv", "evaluation.json", "report", "tensorboard", "curve.csv", "checkpoints")
"""What mtm writes next to a `config.json`; it goes when another run takes the place."""


class Describing(Protocol):
    """What can be written as a `config.json`."""

    def to_json(self) -> dict[str, Any]:
        """Plain data."""


@contextmanager
def opened(
    path: Path,
    description: Describing,
    differences: Callable[[], Sequence[str]],
    *,
    resume: bool = False,
    overwrite: bool = False,
) -> Iterator[bool]:
    """Hold the directory of a training: made, replaced, or gone on with; nobody else writes there.

    Args:
        path: The directory.
        description: Of what is about to be trained.
        differences: Lists what differs from what the directory holds, where it matters; asked for
            when that is resumed.
        resume: Go on with what the directory holds; begin if it holds nothing.
        overwrite: Replace what the directory holds.

    Yields:
        Whether to go on from a checkpoint.

    Raises:
        ConfigError: Both are wanted.
        RunError: Another process trains there, or the directory holds something else.
    """
    if resume and overwrite:
        raise ConfigError("--resume and --overwrite exclude each other; choose one.")
    _refuse_foreign(path)  # also before the lock is put there
    with held(path, "training"):
        resuming = resume and (path / "config.json").exists()
        if resuming:
            _refuse_differences(path, differences())
            write_description(path, description)
        else:
            _create(path, description, overwrite=overwrite)
        yield resuming


def write_description(path: Path, description: Describing) -> None:
    """Write a run's `config.json`, atomically."""
    text = json.dumps(sealed(description.to_json()), indent=2)
    write_atomically(path / "config.json", text.encode())


def _create(path: Path, description: Describing, *, overwrite: bool) -> None:
    """Make the directory of a new run."""
    _refuse_foreign(path)
    if (path / "config.json").exists() and not overwrite:
        raise RunError(
            f"{path} already holds a run. Continue it with --resume, replace it with "
            "--overwrite, or choose another --out."
        )
    try:
        _clear(path)
        (path / "checkpoints").mkdir()
    except OSError as error:
        raise _cannot_make(path, error) from error
    write_description(path, description)


def _cannot_make(path: Path, error: OSError) -> RunError:
    return RunError(f"cannot make the run directory {path}: {error}.")


def _refuse_foreign(path: Path) -> None:
    """Raise a `RunError` if something is there that is not a run."""
    if path.exists() and not (path / "config.json").exists() and not _is_unfinished(path):
        raise RunError(f"{path} exists and is not a run; choose another --out.")


def _refuse_differences(path: Path, found: Sequence[str]) -> None:
    """Raise a `RunError` that says what differs, if anything does."""
    if found:
        listed = "\n".join(f"  - {line}" for line in found)
        raise RunError(
            f"{path} cannot be resumed, it was trained with something else:\n{listed}\n"
            "Give the same settings and data, or choose another --out."
        )


def _is_unfinished(path: Path) -> bool:
    """Whether a folder holds no more than `opened` leaves where it is killed."""
    if not path.is_dir():
        return False
    folder, mine = path / "checkpoints", {path / LOCK, *unfinished(path / "config.json")}
    if folder.is_dir() and not any(folder.iterdir()):
        mine.add(folder)
    return set(path.iterdir()) <= mine


def _clear(path: Path) -> None:
    """Remove all of a run but its description: as long as that is there, it is known as a run."""
    names = ("config.json", *BELONGINGS)
    unwritten = [file for name in names for file in unfinished(path / name)]
    for file in [*unwritten, *(path / name for name in BELONGINGS)]:
        if file.is_dir() and not file.is_symlink():
            shutil.rmtree(file)
        else:
            file.unlink(missing_ok=True)
