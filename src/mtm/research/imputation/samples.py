"""Logs as windows of sensors: what all methods are trained on, and what they are asked.

All observed columns (no actions, rewards or returns) are dealt out to a few sensors. Each sensor is
a modality of its own, so that one can be lost while the others go on. Actions are always known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mtm.core.config import TrainConfig
from mtm.core.errors import DataError
from mtm.core.randomness import Purpose, generator
from mtm.data.modalities import BoolArray, Modality
from mtm.data.normalizer import Normalizer
from mtm.data.preparation import Split, split
from mtm.data.trajectories import TrajectoryDataset

Floats = NDArray[np.float32]

SENSOR = "sensor_{}"
ACTIONS = "actions"


@dataclass(frozen=True)
class Logs:
    """A data set of sensors, split as a run of a seed splits it.

    Attributes:
        data: All episodes.
        parts: Training, validation and test episodes.
        normalizer: Of the training episodes.
        widths: Columns of each sensor, (K,).
    """

    data: TrajectoryDataset
    parts: Split
    normalizer: Normalizer
    widths: tuple[int, ...]

    @classmethod
    def of(cls, source: TrajectoryDataset, sensors: int, config: TrainConfig) -> Logs:
        """The logs of a data set, with so many sensors.

        Raises:
            DataError: There are fewer columns than sensors, no test episodes, or test episodes that
                are validation episodes, too.
        """
        data = as_sensors(source, sensors)
        parts = split(data, config)
        if parts.test is None or parts.validation is None:
            raise DataError("gaps are filled in held-out episodes: validation_fraction is 0.")
        if parts.in_both:
            raise DataError(
                f"{data.metadata.source} has too few episodes: {parts.in_both} held-out one(s) "
                "would both choose weights and be reported on. Bring more episodes, or raise "
                "validation_fraction."
            )
        widths = tuple(m.size for m in data.modalities if m.role == "state")
        return cls(data, parts, Normalizer.fit(parts.training), widths)

    @property
    def columns(self) -> int:
        """D: of sensors and actions together."""
        return sum(m.size for m in self.data.modalities)

    @property
    def steps(self) -> int:
        """Of all training episodes."""
        return self.parts.training.num_steps

    def windows(
        self, episodes: TrajectoryDataset, length: int, most: int, seed: int, *, dense: bool = False
    ) -> Floats:
        """Normalised windows without gaps, (N, W, D), drawn from episodes that are long enough.

        Args:
            episodes: Of these logs.
            length: W.
            most: How many at most.
            seed: Of the draw.
            dense: Begin anywhere; otherwise windows of an episode do not overlap.

        Raises:
            DataError: No episode is long enough.
        """
        rng = generator(seed, Purpose.SYNTHETIC, most)
        long = np.flatnonzero(episodes.lengths >= length)
        if not len(long):
            raise DataError(
                f"no held-out or training episode has {length} steps; the longest of "
                f"{episodes.num_episodes} has {int(episodes.lengths.max())}."
            )
        if dense:
            counts = episodes.lengths[long] - length + 1
            e = rng.choice(long, size=most, p=counts / counts.sum())
            starts = episodes.starts[e] + rng.integers(episodes.lengths[e] - length + 1)
        else:
            starts = np.concatenate(
                [np.arange(episodes.starts[e], episodes.ends[e] - length + 1, length) for e in long]
            )
            starts = np.sort(rng.permutation(starts)[:most])
        return self.normalised(episodes, starts[:, None] + np.arange(length))

    def normalised(self, episodes: TrajectoryDataset, steps: NDArray[np.int64]) -> Floats:
        """The columns of some steps, sensors first, then actions: (..., D)."""
        parts = []
        for m in self.data.modalities:
            s = self.normalizer.statistics[m.name]
            values = episodes.arrays[m.name][steps].reshape(*steps.shape, m.size)
            parts.append((values - s.mean.ravel()) / s.std.ravel())
        joined: Floats = np.concatenate(parts, axis=-1).astype(np.float32)
        return joined

    def hidden_columns(self, hidden: BoolArray) -> BoolArray:
        """Lost sensors, (N, W, K), as lost columns, (N, W, D)."""
        lost = np.repeat(hidden, self.widths, axis=2)
        rest = np.zeros((*lost.shape[:2], self.columns - lost.shape[2]), bool)
        return np.concatenate([lost, rest], axis=2)


def as_sensors(source: TrajectoryDataset, sensors: int) -> TrajectoryDataset:
    """A data set with its observations dealt out to sensors, and its actions.

    Raises:
        DataError: There are fewer columns than sensors, values are absent, or nothing is observed.
    """
    observed = [m for m in source.modalities if m.role == "state" and m.kind == "continuous"]
    acted = [m for m in source.modalities if m.role == "action" and m.kind == "continuous"]
    size = sum(m.size for m in observed)
    if size < sensors:
        raise DataError(
            f"{source.metadata.source} has {size} columns of observed numbers, too few for "
            f"{sensors} sensors. Ask for fewer."
        )
    absent = [
        m.name for m in (*observed, *acted) if source.count_present(m.name) < len(_of(source, m))
    ]
    if absent:
        raise DataError(
            f"{source.metadata.source} lacks values of {', '.join(absent)}; errors of filled gaps "
            "are measured where the truth is known: bring a set without gaps."
        )
    streams = dict(zip(_names(sensors), _dealt(source, observed, sensors), strict=True))
    modalities = [Modality(name, values.shape[1:]) for name, values in streams.items()]
    if acted:
        streams[ACTIONS] = _joined(source, acted)
        modalities.append(Modality(ACTIONS, streams[ACTIONS].shape[1:], role="action"))
    offsets = np.append(source.starts, source.ends[-1:])
    return TrajectoryDataset.from_arrays(
        streams, offsets, modalities=modalities, metadata=source.metadata
    )


def _names(sensors: int) -> list[str]:
    return [SENSOR.format(k) for k in range(sensors)]


def _of(source: TrajectoryDataset, m: Modality) -> NDArray[np.float32]:
    values: NDArray[np.float32] = source.arrays[m.name]
    return values.reshape(len(values), m.size)


def _joined(source: TrajectoryDataset, modalities: Sequence[Modality]) -> NDArray[np.float32]:
    return np.concatenate([_of(source, m) for m in modalities], axis=1)


def _dealt(
    source: TrajectoryDataset, modalities: Sequence[Modality], sensors: int
) -> list[NDArray[np.float32]]:
    """Neighbouring columns stay together."""
    return np.array_split(_joined(source, modalities), sensors, axis=1)
