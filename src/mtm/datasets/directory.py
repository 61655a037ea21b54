"""A directory of data files, read as one data set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mtm.errors import DataError
from mtm.trajectories import (
    BoolArray,
    Metadata,
    Modality,
    TrajectoryDataset,
    in_autoregressive_order,
)


def join(parts: Mapping[Path, TrajectoryDataset], source: str) -> TrajectoryDataset:
    """Put freshly loaded files one after the other; a modality that a file lacks is absent there.

    Raises:
        DataError: A modality differs between two files.
    """
    modalities = _joint_modalities(parts)
    arrays: dict[str, NDArray[Any]] = {}
    present: dict[str, BoolArray] = {}
    for m in modalities:
        arrays[m.name] = np.concatenate([_values(part, m) for part in parts.values()])
        present[m.name] = np.concatenate([_known(part, m) for part in parts.values()])
    lengths = np.concatenate([part.lengths for part in parts.values()])
    return TrajectoryDataset.from_arrays(
        arrays,
        np.append(0, np.cumsum(lengths)),
        modalities=modalities,
        present=present,
        metadata=_joint_metadata([part.metadata for part in parts.values()], source),
    )


def _joint_modalities(parts: Mapping[Path, TrajectoryDataset]) -> tuple[Modality, ...]:
    found: dict[str, Modality] = {}
    for file, part in parts.items():
        for m in part.modalities:
            known = found.get(m.name, m)
            if (known.shape, known.kind) != (m.shape, m.kind):
                raise DataError(
                    f"{file}: modality {m.name!r} is {m.kind} of shape {m.shape}, but {known.kind} "
                    f"of shape {known.shape} in an earlier file."
                )
            found[m.name] = replace(known, classes=max(known.classes, m.classes))
    return in_autoregressive_order(list(found.values()))


def _values(part: TrajectoryDataset, m: Modality) -> NDArray[Any]:
    if m.name in part.names:
        return part.arrays[m.name]
    return np.zeros((part.num_steps, *m.shape), np.int64 if m.kind == "discrete" else np.float32)


def _known(part: TrajectoryDataset, m: Modality) -> BoolArray:
    return part.known(m.name) if m.name in part.names else np.zeros(part.num_steps, bool)


def _joint_metadata(parts: list[Metadata], source: str) -> Metadata:
    """What the files agree on; the longest horizon."""
    env_ids = {part.env_id for part in parts}
    horizons = [part.horizon for part in parts if part.horizon is not None]
    return Metadata(
        source=source,
        env_id=env_ids.pop() if len(env_ids) == 1 else None,
        horizon=max(horizons, default=None),
    )
