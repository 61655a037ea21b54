"""Runs that are no directory: the files of one that was packed, or that lies on a hub."""

from __future__ import annotations

from pathlib import Path

from mtm.runs import hub
from mtm.runs.bundle import EVALUATION, Files
from mtm.runs.packed import read_packed


def is_shared(path: Path) -> bool:
    """Whether a path names a run that is no directory."""
    return hub.is_place(path) or path.is_file()


def pinned(path: Path) -> Path:
    """What a path stands for now: of a run on a hub, the commit; all others stay as they are.

    Raises:
        RunError: It cannot be found.
        ConfigError: `hub:` is followed by what is no name on a hub.
    """
    return Path(str(hub.pin(hub.Place.of(path)))) if hub.is_place(path) else path


def read_shared(path: Path) -> Files | None:
    """The files of a shared run, checked; None if the path names no such run.

    Raises:
        RunError: They cannot be fetched or read, or are not what was shared.
        ConfigError: `hub:` is followed by what is no name on a hub.
    """
    if hub.is_place(path):
        return hub.read(hub.Place.of(path))
    return read_packed(path) if path.is_file() else None


def read_evaluation(path: Path) -> bytes | None:
    """The content of a run's `evaluation.json`, wherever the run is; None if it has none."""
    files = read_shared(path)
    if files is not None:
        return files.get(EVALUATION)
    file = path / EVALUATION
    return file.read_bytes() if file.exists() else None
