"""Whether a store still holds what was written; data in memory were checked when they were made."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mtm.data.fingerprint import fingerprint_of
from mtm.data.trajectories import TrajectoryDataset
from mtm.data.validate_arrays import raise_if, value_faults


def verify(dataset: TrajectoryDataset) -> None:
    """Compare all of a store with its digests; without them, look at the values themselves.

    Raises:
        DataError: Listing every place that is not what was written.
    """
    if dataset.blocks is not None and dataset.blocks.have_digests:
        dataset.check_stored()
    else:
        raise_if(list(stored_faults(dataset)))


def stored_faults(dataset: TrajectoryDataset) -> Iterator[str]:
    """Everything that is wrong with an opened store: blocks, values, and the fingerprint."""
    if dataset.blocks is None:
        return
    damaged = list(dataset.blocks.faults())
    yield from damaged
    bounds = np.append(dataset.starts, dataset.ends[-1:])
    for m in dataset.modalities:
        yield from value_faults(m, dataset.arrays[m.name], dataset.present.get(m.name), bounds)
    if not damaged and (now := fingerprint_of(dataset)) != dataset.fingerprint:
        yield (
            f"{dataset.blocks.file}: the values have the fingerprint {now}, the manifest says "
            f"{dataset.fingerprint}. Copy the store again, or convert again."
        )
