"""Statistics of the training split, so that the network sees values of unit scale.

Only present values count: neither padding nor gaps enter. The statistics live in the run, so a
trained model takes and gives raw units without the data set.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mtm.core.errors import DataError
from mtm.data.modalities import Modality
from mtm.data.segments import SegmentBatch
from mtm.data.trajectories import TrajectoryDataset

SMALLEST_RELATIVE_STD = 4 * float(np.finfo(np.float32).eps)
"""Up to this share of its largest value, a feature's standard deviation is rounding: it counts as
constant, and is centred, not scaled."""

SMALLEST_STD = 1e-15
"""Up to this a feature around 0 counts as constant: that is what double precision leaves of 0."""

MADE_OF_REWARDS = (
    " If it is made of rewards, it needs every reward from its step on: fill in those that are "
    "absent (0 where nothing was earned)."
)


@dataclass(frozen=True)
class Statistics:
    """Mean, standard deviation and range of one modality's features, each of shape `shape`."""

    mean: NDArray[np.float32]
    std: NDArray[np.float32]
    low: NDArray[np.float32]
    high: NDArray[np.float32]


class Normalizer:
    """Maps raw values to unit scale and back; discrete modalities pass unchanged."""

    def __init__(self, statistics: Mapping[str, Statistics]) -> None:
        self.statistics = dict(statistics)
        self._tensors: dict[tuple[str, torch.device], tuple[Tensor, Tensor]] = {}

    @classmethod
    def fit(cls, dataset: TrajectoryDataset) -> Normalizer:
        """Measure the continuous modalities of a data set, in one pass with bounded memory.

        Raises:
            DataError: A modality is absent everywhere.
        """
        statistics = {}
        for modality in dataset.modalities:
            if dataset.count_present(modality.name) == 0:
                made = "" if modality.role != "return" else MADE_OF_REWARDS
                raise DataError(
                    f"modality {modality.name!r} is absent in every step of the training split; "
                    f"nothing can be learned of it.{made} Leave it out of `modalities`, take away "
                    "less of it (drop, gaps), or add episodes that have it."
                )
            if modality.kind == "continuous":
                statistics[modality.name] = _measure(dataset, modality.name)
        return cls(statistics)

    def normalize(self, name: str, values: Tensor) -> Tensor:
        """Raw units to unit scale, (..., *shape)."""
        if name not in self.statistics:
            return values
        mean, std = self._on(name, values.device)
        return (values - mean) / std

    def tensors(self, batch: SegmentBatch) -> dict[str, Tensor]:
        """A batch as normalised tensors, (B, T, *shape); absent values become zero."""
        tensors = {}
        for i, (name, values) in enumerate(batch.values.items()):
            tensors[name] = self.normalize(name, torch.from_numpy(values))
            here = batch.present[:, :, i]
            if not here.all():
                known = torch.from_numpy(here).view(*here.shape, *[1] * (values.ndim - 2))
                tensors[name] = tensors[name].masked_fill(~known, 0)
        return tensors

    def denormalize(self, name: str, values: Tensor) -> Tensor:
        """Unit scale to raw units, (..., *shape)."""
        if name not in self.statistics:
            return values
        mean, std = self._on(name, values.device)
        return values * std + mean

    def to_json(self) -> dict[str, Any]:
        """Plain data, for a run's `config.json`; float32 survives the way there and back."""
        return {
            name: {key: getattr(s, key).tolist() for key in ("mean", "std", "low", "high")}
            for name, s in self.statistics.items()
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any], modalities: Iterable[Modality]) -> Normalizer:
        """The inverse of `to_json`.

        Raises:
            ValueError: These are no statistics of these modalities; so is a KeyError, a TypeError.
        """
        statistics = {}
        for m in modalities:
            if m.kind == "continuous":
                of = {key: np.asarray(v, np.float32) for key, v in data[m.name].items()}
                for key, values in of.items():
                    if values.shape != m.shape or not np.isfinite(values).all():
                        raise ValueError(f"{key} of {m.name} must be {m.shape} finite numbers")
                statistics[m.name] = Statistics(**of)
                if not (statistics[m.name].std > 0).all():
                    raise ValueError(f"std of {m.name} must be above 0")
        return cls(statistics)

    def _on(self, name: str, device: torch.device) -> tuple[Tensor, Tensor]:
        if (name, device) not in self._tensors:
            s = self.statistics[name]
            self._tensors[name, device] = (
                torch.as_tensor(s.mean, device=device),
                torch.as_tensor(s.std, device=device),
            )
        return self._tensors[name, device]


def _measure(dataset: TrajectoryDataset, name: str) -> Statistics:
    """Mean and variance merged chunk by chunk (Chan et al.), in double precision."""
    shape = dataset.modality(name).shape
    count, mean, squares = 0, np.zeros(shape), np.zeros(shape)
    low, high = np.full(shape, np.inf), np.full(shape, -np.inf)
    for chunk in dataset.chunks(name):
        values = chunk.astype(np.float64)
        chunk_mean = values.mean(axis=0)
        delta, total = chunk_mean - mean, count + len(values)
        squares += ((values - chunk_mean) ** 2).sum(axis=0)
        squares += delta**2 * count * len(values) / total
        mean += delta * len(values) / total
        count = total
        low, high = np.minimum(low, values.min(axis=0)), np.maximum(high, values.max(axis=0))
    std = np.sqrt(squares / count)
    largest = np.maximum(np.abs(low), np.abs(high))
    std = np.where(std <= np.maximum(SMALLEST_RELATIVE_STD * largest, SMALLEST_STD), 1.0, std)
    return Statistics(*(np.asarray(v, np.float32) for v in (mean, std, low, high)))
