"""A hash of everything that a data set says: same data, same fingerprint."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

from mtm.data.validate_arrays import CHUNK_STEPS

if TYPE_CHECKING:
    from mtm.data.trajectories import TrajectoryDataset


def fingerprint_of(dataset: TrajectoryDataset) -> str:
    """The fingerprint, from the values themselves."""
    dataset.check_stored()
    digest = hashlib.sha256()
    for modality in dataset.modalities:
        digest.update(repr(sorted(modality.to_json().items())).encode())
        array = dataset.arrays[modality.name]
        for start in range(0, len(array), CHUNK_STEPS):
            digest.update(np.ascontiguousarray(array[start : start + CHUNK_STEPS]).data)
        if modality.name in dataset.present:
            digest.update(np.packbits(dataset.present[modality.name]).data)
    digest.update(np.ascontiguousarray(dataset.starts).data)
    digest.update(np.ascontiguousarray(dataset.ends).data)
    return digest.hexdigest()[:16]
