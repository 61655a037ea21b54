"""NumPy's `.npz`: an array per modality, and `offsets` or end flags."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path

import numpy as np

from mtm.config import AS_IT_IS, Reading
from mtm.datasets.layout import dataset_of
from mtm.errors import DataError
from mtm.trajectories import Metadata, TrajectoryDataset

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
    single = [key for key, values in arrays.items() if np.ndim(values) == 0]
    if single:
        raise DataError(f"{path}: {single[0]!r} is a single number; a row per step is needed.")
    return dataset_of(str(path), arrays, reading, Metadata(source=path.name))
