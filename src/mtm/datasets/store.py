"""A data set on disk, read through memory maps: it opens at once, whatever its size.

    DIR/manifest.json        format, modalities, steps, metadata, fingerprint
    DIR/offsets.bin          where episodes begin, and the number of steps: int64, (E + 1,)
    DIR/NAME.bin             the values of a modality: float32 or int64, (N, *shape)
    DIR/NAME_present.bin     for a modality with gaps, a byte per step
    DIR/episode-ends.bin     where it is known, whether each episode ended in a terminal state

Values are checked when a store is written, so opening one compares only sizes with the manifest.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from mtm.datasets.directory import joint_endings, joint_metadata, joint_modality
from mtm.datasets.layout import OFFSETS, PRESENT
from mtm.errors import DataError
from mtm.modalities import BoolArray, Modality, in_autoregressive_order
from mtm.trajectories import Metadata, TrajectoryDataset

MANIFEST = "manifest.json"
FORMAT = "mtm-store"
VERSION = 1
ENDINGS = "episode-ends"


def is_store(path: Path) -> bool:
    """Whether a directory is a store."""
    return (path / MANIFEST).is_file()


def open_store(path: Path) -> TrajectoryDataset:
    """Open a store; its arrays stay on disk and are read as they are used.

    Raises:
        DataError: The manifest cannot be read, or the arrays do not agree with it.
    """
    manifest = _read_manifest(path)
    try:
        modalities = [Modality.from_json(m) for m in manifest["modalities"]]
        steps, episodes = int(manifest["steps"]), int(manifest["episodes"])
        gaps = [m.name for m in modalities if m.name in manifest["gaps"]]
        metadata = Metadata(**manifest["metadata"])
        fingerprint = str(manifest["fingerprint"])
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"{path / MANIFEST} is damaged: {type(error).__name__}: {error}. Convert again."
        ) from error
    arrays = {m.name: _map(path, m.name, _dtype(m), (steps, *m.shape)) for m in modalities}
    present = {name: _map(path, name + PRESENT, "bool", (steps,)) for name in gaps}
    offsets = np.array(_map(path, OFFSETS, "<i8", (episodes + 1,)))
    if offsets[0] != 0 or offsets[-1] != steps or (np.diff(offsets) <= 0).any():
        raise DataError(
            f"{path / OFFSETS}.bin does not cut {steps:,} steps into {episodes:,} episodes, as "
            f"{MANIFEST} says. Convert again."
        )
    ends = None
    if (path / f"{ENDINGS}.bin").exists():
        ends = np.array(_map(path, ENDINGS, "bool", (episodes,)))
    dataset = TrajectoryDataset(
        modalities, arrays, offsets[:-1], offsets[1:], present, metadata, ends
    )
    dataset.fingerprint = fingerprint  # known from the writing: nothing has to be read for it
    return dataset


def write_store(parts: Iterable[TrajectoryDataset], path: Path, source: str) -> None:
    """Write data sets one after the other into a new store; one at a time is in memory.

    A modality that a part lacks is absent there. Until all is written the store is called
    `PATH.partial`, which is removed when anything fails.

    Raises:
        DataError: The place is taken, or a modality differs between two parts.
    """
    if path.exists():
        raise DataError(f"{path} exists already; remove it, or choose another place.")
    partial = path.with_name(f"{path.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        with _Writer(partial) as writer:
            for part in parts:
                writer.append(part)
            writer.finish(source)
        partial.rename(path)
    except BaseException:
        shutil.rmtree(partial)
        raise


class _Writer:
    """Appends to the files of a store."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, BinaryIO] = {}
        self._modalities: dict[str, Modality] = {}
        self._gaps: set[str] = set()
        self._metadata: list[Metadata] = []
        self._lengths: list[NDArray[np.int64]] = []
        self._endings: list[BoolArray | None] = []
        self._steps = 0

    def __enter__(self) -> _Writer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for file in self._files.values():
            file.close()

    def append(self, part: TrajectoryDataset) -> None:
        """Write the episodes of one more part."""
        for m in part.modalities:
            known = self._modalities.get(m.name)
            self._modalities[m.name] = m if known is None else joint_modality(known, m, part)
            if known is None and self._steps:
                self._gaps.add(m.name)  # it was not there until now
        for name, m in self._modalities.items():
            if name not in part.names:
                self._gaps.add(name)
                continue
            begin = self._steps
            for episode in range(part.num_episodes):
                steps = slice(int(part.starts[episode]), int(part.ends[episode]))
                self._write(name, begin, part.arrays[name][steps].astype(_dtype(m), copy=False))
                here = part.known(name)[steps] if name in part.present else None
                if here is not None and not here.all():
                    self._gaps.add(name)
                marks = np.ones(steps.stop - steps.start, bool) if here is None else here
                self._write(name + PRESENT, begin, marks)
                begin += len(marks)
        self._lengths.append(part.lengths)
        self._endings.append(part.terminated)
        self._metadata.append(part.metadata)
        self._steps += part.num_steps

    def finish(self, source: str) -> None:
        """Write what is known at the end: offsets, lengths of files, the manifest."""
        if not self._steps:
            raise DataError(f"{source} holds no episodes; there is nothing to store.")
        offsets = np.append(0, np.cumsum(np.concatenate(self._lengths)))
        self._write(OFFSETS, 0, offsets.astype("<i8"))
        ends = joint_endings(self._endings)
        if ends is not None:
            self._write(ENDINGS, 0, ends)
        modalities = in_autoregressive_order(list(self._modalities.values()))
        for m in modalities:
            width = m.size * np.dtype(_dtype(m)).itemsize
            self._files[m.name].truncate(self._steps * width)
            self._files[m.name + PRESENT].truncate(self._steps)
        for file in self._files.values():
            file.flush()
        for m in modalities:
            if m.name not in self._gaps:
                (self._folder / f"{m.name}{PRESENT}.bin").unlink()
        manifest = {
            "format": FORMAT,
            "version": VERSION,
            "steps": self._steps,
            "episodes": len(offsets) - 1,
            "modalities": [m.to_json() for m in modalities],
            "gaps": sorted(self._gaps),
            "metadata": asdict(joint_metadata(self._metadata, source)),
            "fingerprint": "",
        }
        place = self._folder / MANIFEST
        place.write_text(json.dumps(manifest))
        opened = open_store(self._folder)
        del opened.fingerprint  # forget the empty one: it is worked out from the values
        manifest["fingerprint"] = opened.fingerprint
        place.write_text(json.dumps(manifest, indent=2) + "\n")

    def _write(self, name: str, step: int, values: NDArray[Any]) -> None:
        """Write rows from a step on; what lies between is zero, and takes no room on most disks."""
        if name not in self._files:
            self._files[name] = (self._folder / f"{name}.bin").open("wb")
        file = self._files[name]
        row = values.dtype.itemsize * int(np.prod(values.shape[1:], dtype=np.int64))
        file.seek(step * row)
        file.write(np.ascontiguousarray(values).data)


def _read_manifest(path: Path) -> dict[str, Any]:
    file = path / MANIFEST
    try:
        manifest = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise DataError(f"{file} cannot be read as JSON: {error}. Convert again.") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise DataError(f"{file} is no manifest of a store; `mtm data convert` writes one.")
    if manifest.get("version") != VERSION:
        raise DataError(
            f"{file} has version {manifest.get('version')}, this version of mtm reads {VERSION}. "
            "Convert again, or use the mtm that wrote it."
        )
    return manifest


def _map(path: Path, name: str, dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """A file as an array, after a look at its size."""
    file = path / f"{name}.bin"
    expected = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    found = file.stat().st_size if file.is_file() else None
    if found != expected:
        what = "is missing" if found is None else f"has {found:,} bytes"
        raise DataError(
            f"{file} {what}; {MANIFEST} speaks of {' x '.join(map(str, shape))} values of "
            f"{np.dtype(dtype).name}, which are {expected:,} bytes. Convert again."
        )
    return np.asarray(np.memmap(file, dtype=dtype, mode="r", shape=shape))


def _dtype(modality: Modality) -> str:
    return "<i8" if modality.kind == "discrete" else "<f4"
