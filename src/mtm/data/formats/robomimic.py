"""robomimic's HDF5: a group per demonstration.

    data/demo_N/actions, rewards, dones    a row per step
    data/demo_N/obs/NAME                   what was observed, a row per step
    data/demo_N/states                     the simulator's own state
    data (attribute env_args)              the environment, as JSON

The observations of one axis, side by side in the order of their names, are `states`; without any,
the simulator's are. Images are left out. Every array can be named as a column, such as
`obs/robot0_eef_pos`. How a demonstration ended is not said: `dones` means several things there.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from mtm.core.errors import DataError
from mtm.core.reading import AS_IT_IS, Reading
from mtm.data.columns import OFFSETS, asked_columns, dataset_of
from mtm.data.formats import hdf5
from mtm.data.memory_limits import Allowance
from mtm.data.trajectories import Metadata, TrajectoryDataset

GROUP = "data"
OBSERVATIONS = "obs/"
LARGEST_TEXT = 1 << 20
"""Characters of a description of an environment."""

_DEMO = re.compile(r"demo_(\d{1,18})")


def is_robomimic(path: Path) -> bool:
    """Whether an HDF5 file holds demonstrations in robomimic's layout.

    Raises:
        DataError: It is damaged.
    """
    with hdf5.opened(path) as file:
        group = file.get(GROUP)
        return isinstance(group, h5py.Group) and any(_DEMO.fullmatch(str(key)) for key in group)


def load_file(path: Path, reading: Reading = AS_IT_IS) -> TrajectoryDataset:
    """Read a file of demonstrations, in the order of their numbers.

    Raises:
        DataError: The file is damaged, or a demonstration lacks an array that others have.
    """
    left = Allowance(path)
    with hdf5.opened(path) as file:
        demos = _demos(file[GROUP])
        shapes = _arrays(demos[0][1])
        columns = reading.columns_of() or _usual(path, shapes)
        asked_columns(str(path), shapes, replace(reading, columns={**columns}))
        names = list(dict.fromkeys(name for parts in columns.values() for name in parts))
        pieces = [_read(path, name, demo, names, left) for name, demo in demos]
        notes = _notes(file[GROUP])
    arrays = {name: _joined(path, name, [piece[name] for piece in pieces]) for name in names}
    lengths = [len(piece[names[0]]) for piece in pieces]
    arrays[OFFSETS] = np.append(0, np.cumsum(lengths))
    chosen = replace(reading, columns={**columns}, episode=None)
    return dataset_of(str(path), arrays, chosen, Metadata(path.name, notes=notes))


def _demos(group: h5py.Group) -> list[tuple[str, h5py.Group]]:
    """The demonstrations in the order of their numbers."""
    found = [(int(m[1]), str(key)) for key in group if (m := _DEMO.fullmatch(str(key)))]
    return [(f"{GROUP}/{key}", group[key]) for _, key in sorted(found)]


def _arrays(demo: h5py.Group) -> dict[str, tuple[int, ...]]:
    """The arrays of numbers of a demonstration, and the shape of a step of each."""
    found: dict[str, tuple[int, ...]] = {}

    def look(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and item.shape and item.dtype.kind in "fiub":
            found[name] = item.shape[1:]

    demo.visititems(look)
    return found


def _usual(path: Path, shapes: dict[str, tuple[int, ...]]) -> dict[str, tuple[str, ...]]:
    """Modality -> its arrays, where the user names none."""
    seen = sorted(name for name in shapes if name.startswith(OBSERVATIONS))
    flat = tuple(name for name in seen if len(shapes[name]) <= 1)
    if len(flat) < len(seen):
        images = ", ".join(name for name in seen if name not in flat)
        warnings.warn(f"{path}: {images} left out: images are no modalities yet.", stacklevel=4)
    columns = {"states": flat or (("states",) if "states" in shapes else ())}
    columns |= {name: (name,) for name in ("actions", "rewards") if name in shapes}
    found = {name: parts for name, parts in columns.items() if parts}
    if not found:
        raise DataError(
            f"{path}: {GROUP}/demo_N hold neither obs, states, actions nor rewards, but "
            f"{', '.join(shapes) or 'nothing'}. Name the columns to read (--reading.columns)."
        )
    return found


def _read(
    path: Path, place: str, demo: h5py.Group, names: Sequence[str], left: Allowance
) -> dict[str, NDArray[Any]]:
    """Arrays of one demonstration, each with a row per step."""
    arrays = {}
    for name in names:
        item = demo.get(name)
        if not isinstance(item, h5py.Dataset):
            raise DataError(
                f"{path}: {place} has no array {name!r}, which others have. Leave it out by naming "
                "the columns to read (--reading.columns), or remove the demonstration."
            )
        arrays[name] = hdf5.read_array(path, f"{place}/{name}", item, left)
    lengths = {name: len(values) for name, values in arrays.items()}
    if len(set(lengths.values())) > 1 or 0 in lengths.values():
        listed = ", ".join(f"{name} {count:,}" for name, count in lengths.items())
        raise DataError(f"{path}: {place}: all arrays need one row per step, but have: {listed}.")
    return arrays


def _joined(path: Path, name: str, pieces: Sequence[NDArray[Any]]) -> NDArray[Any]:
    shapes = {piece.shape[1:] for piece in pieces}
    if len(shapes) > 1:
        raise DataError(f"{path}: {name!r} differs in shape between demonstrations: {shapes}.")
    return np.concatenate(pieces)


def _notes(group: h5py.Group) -> dict[str, str]:
    """The name of the environment and its steps of a second, if it says them."""
    said = group.attrs.get("env_args")
    if not isinstance(said, str) or len(said) > LARGEST_TEXT:
        return {}
    try:
        plain = json.loads(said)
        rate = plain.get("env_kwargs", {}).get("control_freq")
        notes = {"env_name": plain.get("env_name"), "fps": None if rate is None else f"{rate:g}"}
    except (ValueError, AttributeError, TypeError, RecursionError):
        return {}  # a note at most: nothing depends on it
    return {key: text for key, text in notes.items() if isinstance(text, str)}
