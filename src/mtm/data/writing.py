"""Writing a data set as a file or a store that every loader reads, with notes on its steps.

A note is a number per step that is no modality: it is written as `infos/NAME`, where no loader
takes it for one. It can still be read by that name, in HDF5 and `.npz` also as a column
(reading.columns). Whatever is written has a temporary name until it is whole.

Notes on the whole set, those of its metadata, are attributes in HDF5. In `.npz` they lie beside the
arrays, so one that has the name of an array is not written there.

An HDF5 file must say why an episode ended: see `mtm.data.terminations`. The others say it where it
is known.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import h5py
import numpy as np
from numpy.typing import NDArray

from mtm.core.atomic_write import appearing, refuse_existing
from mtm.core.errors import DataError, require
from mtm.data import concatenate
from mtm.data.columns import (
    INFOS,
    OFFSETS,
    PRESENT,
    ROLES,
    TERMINALS,
    TIMEOUTS,
    roles_to_state,
)
from mtm.data.environment_ids import is_adroit
from mtm.data.formats import lerobot_write, minari_write, store
from mtm.data.hdf5_output import hdf5_output
from mtm.data.modalities import BoolArray
from mtm.data.terminations import terminal_endings
from mtm.data.trajectories import TrajectoryDataset

Notes: TypeAlias = Mapping[str, NDArray[Any]]
Parts: TypeAlias = Iterable[tuple[TrajectoryDataset, Notes]]

HDF5_NAMES = {"states": "observations"}
"""What D4RL calls otherwise than we do."""

LEROBOT, MINARI = "lerobot:", "minari:"
"""What stands before a place that is written in another library's format."""

READ_ONLY = (".parquet", ".pickle", ".pkl")
"""Kinds of files that are read but not written."""


def check_destination(place: str | Path) -> None:
    """See that a data set can be written there.

    Raises:
        DataError: Something is there already, or it has the name of a kind of file that is not
            written.
        MissingExtraError: What writes it is not installed.
    """
    prefix, path = _prefix(place), place_of(place)
    if prefix == LEROBOT:
        require("pyarrow", extra=lerobot_write.EXTRA)
    refuse_existing(path)
    if path.suffix in READ_ONLY and not prefix:
        raise DataError(
            f"{path}: {path.suffix} is not written. Choose a name that ends in "
            f"{', '.join(_WRITERS)}, lerobot:DIR, minari:NAME, or any other for a store."
        )


def is_lerobot(place: str | Path) -> bool:
    """Whether a place is a folder for a data set of LeRobot's format, `lerobot:DIR`."""
    return _prefix(place) == LEROBOT


def place_of(place: str | Path) -> Path:
    """The file or folder that is written.

    Raises:
        DataError: Minari does not allow the name.
        MissingExtraError: Minari is not installed.
    """
    prefix = _prefix(place)
    name = str(place).removeprefix(prefix)
    return minari_write.place_of(name) if prefix == MINARI else Path(name).expanduser()


def with_rate(parts: Iterable[TrajectoryDataset], fps: float | None) -> Iterator[TrajectoryDataset]:
    """Parts that say how many steps a second has, if that is given."""
    for part in parts:
        notes = part.metadata.notes | ({} if fps is None else {lerobot_write.FPS: f"{fps:g}"})
        yield part.with_metadata(notes=notes)


def write(parts: Parts, place: str | Path, source: str) -> None:
    """Write episodes with notes, in the format that the place says.

    Parts are written as they come, so that one at a time is in memory; for `.npz`, all are.

    Args:
        parts: Episodes of one data set, one after the other, and notes on their steps.
        place: Where to: FILE.hdf5, FILE.npz, lerobot:DIR, minari:NAME, any other for a store.
        source: What the data come from.

    Raises:
        DataError: The place is taken or cannot be written to, or a modality has a name that the
            kind of file needs for something else.
    """
    check_destination(place)
    path, prefix = place_of(place), _prefix(place)
    try:
        with appearing(path) as temporary:
            if prefix:
                _write_elsewhere(parts, temporary, source, str(place).removeprefix(MINARI))
            else:
                _WRITERS.get(path.suffix, _write_store)(parts, temporary, source)
    except OSError as error:
        raise DataError(f"could not write {path}: {error}.") from error


def _write_hdf5(parts: Parts, path: Path, source: str) -> None:
    with hdf5_output(path, track_order=True) as file:  # modalities are read in this order
        marks: set[str] = set()
        for part, notes in parts:
            if not file.attrs:
                file.attrs.update(_attributes(part))
            for key, values in _columns(part, notes).items():
                _append(file, key, values)
            marks |= {HDF5_NAMES.get(name, name) + PRESENT for name in part.present}
        for key in marks:
            if file[key][()].all():
                del file[key]


def _columns(part: TrajectoryDataset, notes: Notes) -> dict[str, NDArray[Any]]:
    """D4RL's arrays of some episodes."""
    part.check_stored()
    columns = [(HDF5_NAMES.get(n, n), part.arrays[n]) for n in part.names]
    columns += [(HDF5_NAMES.get(n, n) + PRESENT, mask) for n, mask in part.present.items()]
    terminated = terminal_endings(part)
    columns += [(TERMINALS, _flags(part, terminated)), (TIMEOUTS, _flags(part, ~terminated))]
    if is_adroit(str(part.metadata.env_id)) and "rewards" in part.names:
        columns.append((f"{INFOS}goal_achieved", part.arrays["rewards"]))
    return _by_name([*columns, *((INFOS + key, values) for key, values in notes.items())])


def _by_name(columns: Iterable[tuple[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """Arrays under their names; none replaces another."""
    found: dict[str, NDArray[Any]] = {}
    for name, values in columns:
        if name in found:
            raise DataError(
                f"two arrays of the file would be called {name!r}, one of them a modality. Give "
                "the modality another name, or write a store."
            )
        found[name] = values
    return found


def _flags(part: TrajectoryDataset, episodes: BoolArray) -> BoolArray:
    """Booleans that are set at the last step of some episodes, (N,)."""
    flags = np.zeros(part.num_steps, bool)
    flags[part.ends[episodes] - 1] = True
    return flags


def _append(file: h5py.File, key: str, values: NDArray[Any]) -> None:
    if key not in file:
        file.create_dataset(key, data=values, maxshape=(None, *values.shape[1:]), chunks=True)
        return
    column = file[key]
    begin = len(column)
    column.resize(begin + len(values), axis=0)
    column[begin:] = values


def _write_npz(parts: Parts, path: Path, source: str) -> None:
    collected = list(parts)
    joined = concatenate.join([part for part, _ in collected], source)
    arrays = list(joined.arrays.items())
    arrays += [(name + PRESENT, mask) for name, mask in joined.present.items()]
    arrays.append((OFFSETS, np.append(joined.starts, joined.num_steps)))
    if joined.terminated is not None:
        arrays.append((TERMINALS, _flags(joined, joined.terminated)))
    for key in collected[0][1]:
        arrays.append((INFOS + key, np.concatenate([notes[key] for _, notes in collected])))
    content: dict[str, Any] = _attributes(joined) | _by_name(arrays)
    with path.open("wb") as file:
        np.savez_compressed(file, **content)


def _write_store(parts: Parts, path: Path, source: str) -> None:
    kept: dict[str, list[NDArray[Any]]] = {}

    def episodes() -> Iterator[TrajectoryDataset]:
        for part, notes in parts:
            for key, values in notes.items():
                kept.setdefault(key, []).append(values)
            yield part

    store.write_into(episodes(), path, source)
    if kept:
        (path / INFOS).mkdir()
    for key, pieces in kept.items():
        np.save(path / INFOS / f"{key}.npy", np.concatenate(pieces))


def _write_elsewhere(parts: Parts, path: Path, source: str, name: str) -> None:
    """By way of a store: which modalities there are, and which have gaps, is known at its end."""
    path.mkdir()
    collected = path / "store"
    _write_store(parts, collected, source)
    notes = {file.stem: np.load(file, mmap_mode="r") for file in collected.glob(f"{INFOS}*.npy")}
    dataset = store.open_store(collected)
    if is_lerobot(name):
        lerobot_write.write_folder(dataset, notes, path)
    else:
        minari_write.write_folder(dataset, notes, path, name)
    shutil.rmtree(collected)


def _prefix(place: str | Path) -> str:
    return next((known for known in (LEROBOT, MINARI) if str(place).startswith(known)), "")


_WRITERS: dict[str, Callable[[Parts, Path, str], None]] = {
    ".hdf5": _write_hdf5,
    ".h5": _write_hdf5,
    ".npz": _write_npz,
}


def _attributes(dataset: TrajectoryDataset) -> dict[str, Any]:
    metadata = dataset.metadata
    found: dict[str, Any] = dict(metadata.notes)
    if roles := roles_to_state(dataset.modalities):
        found[ROLES] = roles
    if metadata.env_id is not None:
        found["env_id"] = metadata.env_id
    if metadata.horizon is not None:
        found["max_episode_steps"] = metadata.horizon
    return found
