"""NumPy's `.npz`: an array per modality, and `offsets` or end flags.

A single text describes the set: `env_id` is used, others are kept as notes; `max_episode_steps` is
the one single number. As in HDF5, `infos/NAME` is no modality unless it is named as a column.
"""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path

import numpy as np

from mtm.core.errors import DataError
from mtm.core.reading import AS_IT_IS, Reading
from mtm.data.columns import INFOS, as_horizon, dataset_of
from mtm.data.trajectories import Metadata, TrajectoryDataset

HORIZON = "max_episode_steps"

DAMAGE = (
    *(OSError, ValueError, EOFError, LookupError, TypeError, RuntimeError, MemoryError),
    *(zipfile.BadZipFile, zlib.error),
)
"""What NumPy raises when it meets a damaged file."""


def load_file(path: Path, reading: Reading = AS_IT_IS) -> TrajectoryDataset:
    """Read an `.npz` of flat arrays; object arrays are refused, never unpickled.

    Raises:
        DataError: The file is damaged, or does not say where episodes end.
    """
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            arrays = {key: file[key] for key in file.files}
    except DAMAGE as error:
        raise DataError(
            f"{path} cannot be read: {error}. Only plain numeric arrays are allowed in it."
        ) from error
    single = {key: arrays.pop(key) for key in list(arrays) if np.ndim(arrays[key]) == 0}
    horizon = as_horizon(path, single.pop(HORIZON).item() if HORIZON in single else None)
    for key, value in single.items():
        if value.dtype.kind != "U":
            raise DataError(f"{path}: {key!r} is a single number; a row per step is needed.")
    notes = {key: str(value) for key, value in single.items()}
    asked = [column for columns in reading.columns_of().values() for column in columns]
    arrays = {k: a for k, a in arrays.items() if k in asked or not k.startswith(INFOS)}
    metadata = Metadata(path.name, notes.pop("env_id", None), horizon, notes)
    return dataset_of(str(path), arrays, reading, metadata)
