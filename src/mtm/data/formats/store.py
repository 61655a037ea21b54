"""A data set on disk, read through memory maps: it opens at once, whatever its size.

    DIR/manifest.json       format, modalities, steps, metadata, fingerprint
    DIR/offsets.bin         where episodes begin, and the number of steps: int64, (E + 1,)
    DIR/steps.bin           a record per step, all of its modalities side by side (see `_record`)
    DIR/episode-ends.bin    where it is known, whether each episode ended in a terminal state
    DIR/digests.bin         of the blocks of steps.bin, see mtm.data.stored_blocks

A step lies in one piece and the next one follows it, so a random segment is one or two pages of the
disk, where a file for each modality would make it as many pages as there are modalities. The arrays
of the data set are fields of these records; `mtm.data.segments` reads whole records.

Values are checked when a store is written, so opening one compares only sizes, and the digests of
the small files, with the manifest. Records are compared with their digests when they are read.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mtm.core.atomic_write import appearing
from mtm.core.errors import DataError
from mtm.core.plain_data import expecting, text, whole
from mtm.data.columns import OFFSETS
from mtm.data.concatenate import joint_endings, joint_metadata, joint_modality
from mtm.data.modalities import BoolArray, Modality, in_autoregressive_order
from mtm.data.stored_blocks import BLOCK, DIGEST, StoredBlocks, digests_of
from mtm.data.trajectories import Metadata, TrajectoryDataset

MANIFEST = "manifest.json"
STEPS = "steps"
FORMAT = "mtm-store"
VERSION = 2
ENDINGS = "episode-ends"
DIGESTS = "digests"

CHUNK_RECORDS = 1 << 16
"""Records copied together when the steps written so far get another layout."""


def is_store(path: Path) -> bool:
    """Whether a directory is a store."""
    return (path / MANIFEST).is_file()


def open_store(path: str | Path) -> TrajectoryDataset:
    """Open a store; its arrays stay on disk and are read as they are used.

    Raises:
        DataError: The manifest cannot be read, or the arrays do not agree with it.
    """
    path = Path(path)
    manifest = _read_manifest(path)
    with expecting(path / MANIFEST, DataError, "Convert again."):
        modalities = [Modality.from_json(m) for m in manifest["modalities"]]
        steps, episodes = whole(manifest, "steps", 1), whole(manifest, "episodes", 1)
        gaps = [m.name for m in modalities if m.name in list(manifest["gaps"])]
        record = _record(modalities, gaps)
        if _places(record) != manifest["fields"]:
            raise ValueError(f"modalities and gaps give the fields {_places(record)}")
        metadata = Metadata.from_json(manifest["metadata"])
        fingerprint = text(manifest, "fingerprint")
    records = _map(path, STEPS, record, steps)
    arrays = {m.name: records[m.name] for m in modalities}
    present = {name: records[_mark(name)] for name in gaps}
    offsets = np.array(_map(path, OFFSETS, np.dtype("<i8"), episodes + 1))
    if offsets[0] != 0 or offsets[-1] != steps or (np.diff(offsets) <= 0).any():
        raise DataError(
            f"{path / OFFSETS}.bin does not cut {steps:,} steps into {episodes:,} episodes, as "
            f"{MANIFEST} says. Convert again."
        )
    ends = None
    if (path / f"{ENDINGS}.bin").exists():
        ends = np.array(_map(path, ENDINGS, np.dtype("?"), episodes))
    blocks = StoredBlocks(path / f"{STEPS}.bin", records, _digests(path, manifest), offsets)
    dataset = TrajectoryDataset(
        modalities, arrays, offsets[:-1], offsets[1:], present, metadata, ends, blocks
    )
    dataset.fingerprint = fingerprint  # known from the writing: nothing has to be read for it
    return dataset


def write_store(parts: Iterable[TrajectoryDataset], path: str | Path, source: str) -> None:
    """Write data sets one after the other into a new store; one at a time is in memory.

    A modality that a part lacks is absent there. The store appears when all is written.

    Raises:
        DataError: The place is taken or cannot be written to, or a modality differs between two
            parts. Nothing is left of it.
    """
    try:
        with appearing(Path(path)) as folder:
            write_into(parts, folder, source)
    except OSError as error:
        raise DataError(
            f"could not write {path}: {error}. Make room, or choose another place."
        ) from error


def write_into(parts: Iterable[TrajectoryDataset], folder: Path, source: str) -> None:
    """Write as `write_store` does, into a folder that is made and that others may see half done.

    Raises:
        DataError: A modality differs between two parts.
    """
    folder.mkdir()
    with _Writer(folder) as writer:
        for part in parts:
            writer.append(part)
        writer.finish(source)


class _Writer:
    """Appends records; where a later part brings something new, those before it are widened."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._modalities: dict[str, Modality] = {}
        self._gaps: set[str] = set()
        self._metadata: list[Metadata] = []
        self._lengths: list[NDArray[np.int64]] = []
        self._endings: list[BoolArray | None] = []
        self._record = _record([], [])
        self._file = self._place(STEPS).open("wb")

    def __enter__(self) -> _Writer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self._file.close()
            return
        with suppress(OSError):  # on a full disk, closing fails as writing did
            self._file.close()

    def append(self, part: TrajectoryDataset) -> None:
        """Write the episodes of one more part."""
        part.check_stored()
        self._admit(part)
        for start, end in zip(part.starts, part.ends, strict=True):
            records = np.zeros(end - start, self._record)
            for name in part.names:
                records[name] = part.arrays[name][start:end]
                if name in self._gaps:
                    here = part.present.get(name)
                    records[_mark(name)] = True if here is None else here[start:end]
            self._file.write(records.view(np.uint8).data)
        self._lengths.append(part.lengths)
        self._endings.append(part.terminated)
        self._metadata.append(part.metadata)

    def finish(self, source: str) -> None:
        """Write what is known at the end: offsets and the manifest."""
        self._file.close()
        if not self._lengths:
            raise DataError(f"{source} holds no episodes; there is nothing to store.")
        offsets = np.append(0, np.cumsum(np.concatenate(self._lengths))).astype("<i8")
        self._place(OFFSETS).write_bytes(offsets.tobytes())
        ends = joint_endings(self._endings)
        if ends is not None:
            self._place(ENDINGS).write_bytes(ends.tobytes())
        modalities = in_autoregressive_order(list(self._modalities.values()))
        self._place(DIGESTS).write_bytes(digests_of(self._place(STEPS)))
        small = [name for name in (OFFSETS, ENDINGS, DIGESTS) if self._place(name).exists()]
        manifest = {
            "format": FORMAT,
            "version": VERSION,
            "steps": int(offsets[-1]),
            "episodes": len(offsets) - 1,
            "modalities": [m.to_json() for m in modalities],
            "gaps": sorted(self._gaps),
            "fields": _places(self._record),
            "metadata": joint_metadata(self._metadata, source).to_json(),
            "sha256": {name: _sha256(self._place(name)) for name in small},
            "fingerprint": "",
        }
        place = self._folder / MANIFEST
        place.write_text(json.dumps(manifest))
        opened = open_store(self._folder)
        del opened.fingerprint  # forget the empty one: it is worked out from the values
        manifest["fingerprint"] = opened.fingerprint
        place.write_text(json.dumps(manifest, indent=2) + "\n")

    def _admit(self, part: TrajectoryDataset) -> None:
        """Make room in the records for what this part has: modalities, and marks of gaps."""
        before = set(self._modalities)
        for m in part.modalities:
            known = self._modalities.get(m.name)
            self._modalities[m.name] = m if known is None else joint_modality(known, m, part)
        if self._lengths:
            self._gaps |= before ^ set(part.names)  # absent here, or until now
        self._gaps |= {n for n in part.present if part.count_present(n) < part.num_steps}
        record = _record(self._modalities.values(), self._gaps)
        if record != self._record:
            self._widen(record, before)
            self._record = record

    def _widen(self, record: np.dtype[np.void], known: set[str]) -> None:
        """Give all records so far another layout; what they lack is zero, and so absent."""
        self._file.close()
        old, new = self._place(STEPS), self._place("widened")
        with old.open("rb") as source, new.open("wb") as target:
            size = self._record.itemsize
            while block := source.read(CHUNK_RECORDS * size):
                narrow = np.frombuffer(block, self._record)
                wide = np.zeros(len(narrow), record)
                for name in known:
                    wide[name] = narrow[name]
                    if name in self._gaps:
                        had_marks = _mark(name) in (self._record.names or ())
                        wide[_mark(name)] = narrow[_mark(name)] if had_marks else True
                target.write(wide.view(np.uint8).data)
        new.replace(old)
        self._file = old.open("ab")

    def _place(self, name: str) -> Path:
        return self._folder / f"{name}.bin"


def _record(modalities: Iterable[Modality], gaps: Iterable[str]) -> np.dtype[np.void]:
    """How a step lies in the file: classes, then numbers, then a byte for each mark of presence.

    The widest come first and the whole is rounded up, so that every value is aligned.
    """
    fields = [(m.name, _dtype(m), m.shape) for m in modalities]
    fields.sort(key=lambda field: (-np.dtype(field[1]).itemsize, field[0]))
    names = [name for name, _, _ in fields] + [_mark(name) for name in sorted(gaps)]
    formats = [(kind, shape) for _, kind, shape in fields]
    formats += [("?", ())] * (len(names) - len(fields))
    sizes = [np.dtype(form).itemsize for form in formats]
    widest = max((np.dtype(kind).itemsize for _, kind, _ in fields), default=1)
    return np.dtype(
        {
            "names": names,
            "formats": formats,
            "offsets": np.cumsum([0, *sizes])[:-1].tolist(),
            "itemsize": -(-sum(sizes) // widest) * widest,
        }
    )


def _places(record: np.dtype[np.void]) -> dict[str, int]:
    """At which byte of a record each field begins."""
    return {name: record.fields[name][1] for name in record.names or ()}  # type: ignore[index]


def _mark(name: str) -> str:
    """The field that says where a modality is present."""
    return f"present:{name}"


def _read_manifest(path: Path) -> dict[str, Any]:
    file = path / MANIFEST
    try:
        manifest = json.loads(file.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{file} cannot be read as JSON: {error}. Convert again.") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise DataError(f"{file} is no manifest of a store; `mtm data convert` writes one.")
    if manifest.get("version") != VERSION:
        raise DataError(
            f"{file} has version {manifest.get('version')}, this version of mtm reads {VERSION}. "
            "Convert again, or use the mtm that wrote it."
        )
    return manifest


def _map(path: Path, name: str, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
    """A file as an array, after a look at its size."""
    file = path / f"{name}.bin"
    found = file.stat().st_size if file.is_file() else None
    if found != count * dtype.itemsize:
        what = "is missing" if found is None else f"has {found:,} bytes"
        raise DataError(
            f"{file} {what}; {MANIFEST} speaks of {count:,} x {dtype.itemsize:,} bytes. "
            "Convert again."
        )
    return np.asarray(np.memmap(file, dtype=dtype, mode="r", shape=(count,)))


def _digests(path: Path, manifest: dict[str, Any]) -> NDArray[np.uint8] | None:
    """The digests of the blocks, after a look at the small files; None if there are none.

    Raises:
        DataError: A file is not what was written.
    """
    said = manifest.get("sha256")
    if said is None:
        warnings.warn(
            f"{path} was written by an earlier version of mtm, without digests: damage to its "
            "values can go unnoticed. Convert again to have them.",
            stacklevel=4,
        )
        return None
    known = {OFFSETS, DIGESTS} | ({ENDINGS} if (path / f"{ENDINGS}.bin").exists() else set())
    if not isinstance(said, dict) or set(said) != known:
        raise DataError(f"{path / MANIFEST} is damaged: its digests are of {said}. Convert again.")
    for name, digest in said.items():
        file = path / f"{name}.bin"
        if not file.is_file() or _sha256(file) != digest:
            raise DataError(f"{file} is not what was written; it is damaged. Convert again.")
    count = -(-(path / f"{STEPS}.bin").stat().st_size // BLOCK)
    return _map(path, DIGESTS, np.dtype("u1"), count * DIGEST).reshape(count, DIGEST)


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _dtype(modality: Modality) -> str:
    return "<i8" if modality.kind == "discrete" else "<f4"
