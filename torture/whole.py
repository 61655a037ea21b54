"""Whether what has a final name is whole, whatever happened while it was written."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mtm.core.errors import MTMError
from mtm.data import loading
from mtm.data.formats.npz import read_members
from mtm.data.formats.store import is_store, open_store
from mtm.data.verification import stored_faults
from mtm.deploy.policy_file import FILE_NAME, read_policy_file
from mtm.runs import checkpoint
from mtm.runs.packed import read_packed
from mtm.training.trackers import read_metrics

UNDER_WAY = ("under-way",)
"""Folders whose files mean nothing before another one says so."""


def half_written(folder: Path) -> list[str]:
    """What in a folder has a final name and is not whole."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [f"{path}: {fault}" for path, fault in _faults(folder)]


def strays(folder: Path) -> list[str]:
    """Temporary files that nobody will look at again."""
    found = [path for path in folder.rglob("*") if path.name.startswith(".")]
    found += [path for path in folder.rglob("*.tmp") if not path.name.startswith(".")]
    return sorted(str(path.relative_to(folder)) for path in found if path.name != ".lock")


def digests(folder: Path, *names: str) -> dict[str, str]:
    """SHA-256 of the files of a folder that some patterns name."""
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for name in names
        for file in sorted(folder.glob(name))
        if file.is_file()
    }


def _faults(folder: Path) -> Iterator[tuple[Path, object]]:
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        if any(part.startswith(".") or part in UNDER_WAY for part in relative.parts):
            continue
        try:
            for fault in _looked_at(path):
                yield path, fault
        except (MTMError, ValueError, OSError) as error:
            yield path, error


def _looked_at(path: Path) -> Iterator[Any]:
    if path.is_dir():
        if is_store(path):
            yield from stored_faults(open_store(path))
        elif (path / FILE_NAME).exists():
            described = read_policy_file(path)
            for graphs in described.graphs.values():
                for graph in graphs:
                    found = hashlib.sha256((path / graph.file).read_bytes()).hexdigest()
                    if found != graph.sha256:
                        yield f"{graph.file} is not what was written"
        elif path.name.startswith("step-") and not _is_sound(path):
            yield "the checkpoint is not sound"
    elif path.suffix == ".json":
        json.loads(path.read_text())
    elif path.name == "metrics.csv":
        read_metrics(path)
    elif path.suffix == ".hdf5":
        loading.load(path)
    elif path.suffix == ".npz":
        read_members(path)
    elif path.suffix == ".mtm":
        read_packed(path)
    elif path.suffix == ".png" and not path.read_bytes().endswith(b"IEND\xaeB`\x82"):
        yield "the picture is cut off"
    elif path.suffix == ".html" and not path.read_text().rstrip().endswith("</html>"):
        yield "the page is cut off"


def _is_sound(path: Path) -> bool:
    try:
        checkpoint.load(path.parent, int(path.name.removeprefix("step-")))
    except MTMError:
        return False
    return True
