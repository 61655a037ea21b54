"""NumPy's `.npz`: an array per modality, and `offsets` or end flags."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from mtm.datasets.layout import split_arrays
from mtm.errors import DataError
from mtm.trajectories import Metadata, TrajectoryDataset

PRESENT = "_present"
"""`NAME_present` holds booleans that say where modality NAME is present."""


def load_file(path: Path, *, nan_is_absent: bool = False) -> TrajectoryDataset:
    """Read an `.npz` of flat arrays; object arrays are refused, never unpickled.

    Raises:
        DataError: The file is damaged, or does not say where episodes end.
    """
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            arrays = {key: file[key] for key in file.files}
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise DataError(
            f"{path} cannot be read: {error}. Only plain numeric arrays are allowed in it."
        ) from error
    present = {
        key.removesuffix(PRESENT): arrays.pop(key) for key in list(arrays) if key.endswith(PRESENT)
    }
    modalities, offsets = split_arrays(str(path), arrays)
    try:
        return TrajectoryDataset.from_arrays(
            modalities,
            offsets,
            present=present,
            metadata=Metadata(source=path.name),
            nan_is_absent=nan_is_absent,
        )
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
