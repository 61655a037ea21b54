"""What is shared of a run: a few files, in memory, each with its digest.

    README.md                                       the model card
    config.json                                     see mtm.runs.description
    evaluation.json                                 what `mtm eval` measured of these weights
    checkpoints/step-000002500/model.safetensors    the weights
    checkpoints/step-000002500/state.json           see mtm.runs.checkpoint
    manifest.json                                   size and SHA-256 of each of the others

They lie as in a run directory, so that a copy of them on a disk is one. There is one checkpoint,
without the optimizer's averages: it answers, and cannot be trained on. Of paths on the machine that
trained only the last name is kept.
"""

from __future__ import annotations

import hashlib
import json
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from mtm.core.errors import RunError
from mtm.core.plain_data import SEAL
from mtm.data.loading import short
from mtm.runs import checkpoint
from mtm.runs.checkpoint import MODEL_FILE, STATE_FILE, Checkpoint, Which
from mtm.runs.description import read_description

Files: TypeAlias = dict[str, bytes]
"""Name, with folders, -> content."""

MANIFEST, CARD = "manifest.json", "README.md"
CONFIG, EVALUATION = "config.json", "evaluation.json"

FORMAT = 1
"""Of the manifest; raised when an old reader could not read a new one."""

LARGEST_TEXT = 1 << 24
LARGEST_WEIGHTS = (1 << 32) - (1 << 27)
"""Bytes of one file: all of them together fit into a zip without extensions."""

MOST_FILES = 6

_FOLDER = r"checkpoints/step-\d{9}"
_WEIGHTS = re.compile(f"{_FOLDER}/{re.escape(MODEL_FILE)}")
_STATE = re.compile(f"{_FOLDER}/{re.escape(STATE_FILE)}")


def largest(name: str) -> int | None:
    """Bytes that a file of a name may have; None if no such file is shared."""
    if _WEIGHTS.fullmatch(name):
        return LARGEST_WEIGHTS
    known = name in (MANIFEST, CARD, CONFIG, EVALUATION) or _STATE.fullmatch(name)
    return LARGEST_TEXT if known else None


def gather(path: Path, which: Which = "last") -> Files:
    """The files of a run directory that are worth sharing, without card and manifest.

    Warns where the run's evaluation is of other weights, and leaves it out.

    Raises:
        RunError: The directory holds no readable run.
    """
    read_description(path)
    saved = checkpoint.load(path / "checkpoints", which, optimizer=False)
    encoded = checkpoint.encode(saved)
    folder = f"checkpoints/step-{saved.state.step:09d}"
    files = {f"{folder}/{name}": content for name, content in encoded.items()}
    files[CONFIG] = _without_paths((path / CONFIG).read_bytes())
    file = path / EVALUATION
    if file.exists():
        measured = _plain(file.read_bytes(), str(file))
        if measured.get("weights") == hashlib.sha256(encoded[MODEL_FILE]).hexdigest():
            short_names = {"run": path.resolve().name, "data": short(str(measured["data"]))}
            files[EVALUATION] = _json(measured | short_names)
        else:
            warnings.warn(
                f"{file} is of other weights than those of step {saved.state.step}, and is left "
                f"out. To have it, first run: mtm eval {path} --checkpoint {which}",
                stacklevel=2,
            )
    return files


def seal(files: Mapping[str, bytes]) -> Files:
    """The files with a manifest of them; the manifest comes first, the others by name."""
    listed = {
        name: {"bytes": len(files[name]), "sha256": hashlib.sha256(files[name]).hexdigest()}
        for name in sorted(files)
    }
    manifest = _json({"format": FORMAT, "files": listed})
    return {MANIFEST: manifest, **{name: files[name] for name in listed}}


def sizes_in(manifest: bytes, place: str) -> dict[str, int]:
    """What a manifest says that there is: name -> bytes.

    Raises:
        RunError: It is damaged, of a newer format, or names what is not shared.
    """
    return {name: size for name, (size, _) in _listed(manifest, place).items()}


def check(files: Mapping[str, bytes], place: str) -> None:
    """Compare files with the manifest among them, of which nothing may be missing.

    Args:
        files: All that there is.
        place: Where they come from, for messages.

    Raises:
        RunError: A file is missing, unknown, or not what was written.
    """
    if MANIFEST not in files:
        raise RunError(f"{place} has no {MANIFEST}: it was not written by mtm pack or mtm push.")
    listed = _listed(files[MANIFEST], place)
    for name in files:
        if name != MANIFEST and name not in listed:
            raise RunError(f"{place} holds {name!r}, which its {MANIFEST} does not name.")
    for name, (size, digest) in listed.items():
        if name not in files:
            raise RunError(f"{place} lacks {name}, which its {MANIFEST} names.")
        if len(files[name]) != size or hashlib.sha256(files[name]).hexdigest() != digest:
            raise RunError(f"{place} is damaged: {name} is not what was written. Fetch it again.")


def checkpoint_in(files: Mapping[str, bytes], place: str) -> Checkpoint:
    """The checkpoint among files that were checked.

    Raises:
        RunError: It cannot be read.
    """
    weights, state = (
        next(content for name, content in files.items() if form.fullmatch(name))
        for form in (_WEIGHTS, _STATE)
    )
    try:
        return checkpoint.decode({MODEL_FILE: weights, STATE_FILE: state})
    except (*checkpoint.DAMAGE, RecursionError) as error:
        raise RunError(f"the checkpoint in {place} cannot be read: {error}.") from error


def _listed(manifest: bytes, place: str) -> dict[str, tuple[int, str]]:
    """Name -> bytes and digest."""
    plain = _plain(manifest, f"the {MANIFEST} of {place}")
    try:
        if plain["format"] > FORMAT:
            raise RunError(
                f"{place} has format {plain['format']}, this version of mtm reads up to {FORMAT}; "
                "upgrade mtm."
            )
        listed = {n: (int(f["bytes"]), str(f["sha256"])) for n, f in plain["files"].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RunError(f"the {MANIFEST} of {place} is damaged: {error!r}.") from error
    for name, (size, _) in listed.items():
        most = None if name == MANIFEST else largest(name)
        if most is None:
            raise RunError(f"{place} names the file {name!r}, which is no part of a shared run.")
        if not 0 <= size <= most:
            raise RunError(f"{place}: {name} has {size:,} bytes; allowed are up to {most:,}.")
    checkpoints = [[n for n in listed if form.fullmatch(n)] for form in (_WEIGHTS, _STATE)]
    folders = {name.rpartition("/")[0] for names in checkpoints for name in names}
    if CONFIG not in listed or len(folders) != 1 or any(len(names) != 1 for names in checkpoints):
        raise RunError(f"{place} does not hold {CONFIG} and one checkpoint, so it is no run.")
    return listed


def _without_paths(config: bytes) -> bytes:
    """A `config.json` that does not tell where on a machine the data were.

    It has no digest of its own: the manifest has one of every file.
    """
    plain = {k: v for k, v in _plain(config, CONFIG).items() if k != SEAL}
    data = plain["data"]
    metadata = data["metadata"] | {"source": short(data["metadata"]["source"])}
    return _json(plain | {"data": data | {"spec": short(data["spec"]), "metadata": metadata}})


def _plain(text: bytes, what: str) -> dict[str, Any]:
    try:
        plain = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RunError(f"{what} is damaged: {error}.") from error
    if not isinstance(plain, dict):
        raise RunError(f"{what} is damaged: it holds {type(plain).__name__}, not a table.")
    return plain


def _json(plain: Mapping[str, Any]) -> bytes:
    return json.dumps(plain, indent=2).encode()
