"""A directory of data files, read as one data set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mtm.core.errors import DataError
from mtm.data.modalities import BoolArray, Modality, in_autoregressive_order
from mtm.data.trajectories import Metadata, TrajectoryDataset


def join(parts: Sequence[TrajectoryDataset], source: str) -> TrajectoryDataset:
    """Put freshly loaded files one after the other; a modality that a file lacks is absent there.

    Raises:
        DataError: A modality differs between two files.
    """
    found: dict[str, Modality] = {}
    for part in parts:
        part.check_stored()
        for m in part.modalities:
            found[m.name] = joint_modality(found.get(m.name, m), m, part)
    modalities = in_autoregressive_order(list(found.values()))
    arrays: dict[str, NDArray[Any]] = {}
    present: dict[str, BoolArray] = {}
    for m in modalities:
        arrays[m.name] = np.concatenate([_values(part, m) for part in parts])
        present[m.name] = np.concatenate([_known(part, m) for part in parts])
    lengths = np.concatenate([part.lengths for part in parts])
    return TrajectoryDataset.from_arrays(
        arrays,
        np.append(0, np.cumsum(lengths)),
        modalities=modalities,
        present=present,
        metadata=joint_metadata([part.metadata for part in parts], source),
        terminated=joint_endings([part.terminated for part in parts]),
    )


def joint_modality(known: Modality, m: Modality, part: TrajectoryDataset) -> Modality:
    """A modality that two files share; a discrete one has the classes of both.

    Raises:
        DataError: They differ in shape or kind.
    """
    if (known.shape, known.kind) != (m.shape, m.kind):
        raise DataError(
            f"{part.metadata.source}: modality {m.name!r} is {m.kind} of shape {m.shape}, but "
            f"{known.kind} of shape {known.shape} in an earlier file."
        )
    return replace(known, classes=max(known.classes, m.classes))


def joint_metadata(parts: Sequence[Metadata], source: str) -> Metadata:
    """What the files agree on; the longest horizon."""
    env_ids = {part.env_id for part in parts}
    horizons = [part.horizon for part in parts if part.horizon is not None]
    notes = parts[0].notes if all(part.notes == parts[0].notes for part in parts) else {}
    return Metadata(
        source=source,
        env_id=env_ids.pop() if len(env_ids) == 1 else None,
        horizon=max(horizons, default=None),
        notes=notes,
    )


def joint_endings(parts: Sequence[BoolArray | None]) -> BoolArray | None:
    """Which episodes ended in a terminal state, if all files say it."""
    said = [part for part in parts if part is not None]
    return np.concatenate(said) if len(said) == len(parts) else None


def _values(part: TrajectoryDataset, m: Modality) -> NDArray[Any]:
    if m.name in part.names:
        return part.arrays[m.name]
    return np.zeros((part.num_steps, *m.shape), np.int64 if m.kind == "discrete" else np.float32)


def _known(part: TrajectoryDataset, m: Modality) -> BoolArray:
    return part.known(m.name) if m.name in part.names else np.zeros(part.num_steps, bool)
