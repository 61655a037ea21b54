"""What agents learn from, in their units: the transitions of a split.

States are normalised as for a run. Actions are scaled so that the range of the training split is
[-1, 1], which is also all that an agent can do. The batch of step k is a function of (seed, k).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mtm.core.randomness import Purpose, generator
from mtm.data.modalities import BoolArray, IntArray, Modalities, Modality
from mtm.data.normalizer import Normalizer
from mtm.data.returns import reward_of
from mtm.data.trajectories import TrajectoryDataset
from mtm.research.baselines.transitions import TransitionIndex, only_continuous


@dataclass(frozen=True)
class Scaling:
    """Raw units to those of an agent and back; values are flat vectors there."""

    states: Modality
    actions: Modality
    normalizer: Normalizer

    @classmethod
    def of(cls, modalities: Modalities, normalizer: Normalizer) -> Scaling:
        """The scaling of data with these modalities.

        Raises:
            DataError: They are not what an agent can learn from.
        """
        return cls(
            only_continuous(modalities, "state"), only_continuous(modalities, "action"), normalizer
        )

    def scale_states(self, raw: NDArray[Any]) -> Tensor:
        """(n, *shape) to (n, S)."""
        values = torch.from_numpy(np.ascontiguousarray(raw, np.float32))
        return self.normalizer.normalize(self.states.name, values).reshape(len(raw), -1)

    def scale_actions(self, raw: NDArray[Any]) -> Tensor:
        """(n, *shape) to (n, A), within [-1, 1] for actions of the training split."""
        middle, reach = self._range()
        values = np.asarray((raw - middle) / reach, np.float32)
        return torch.from_numpy(values).reshape(len(raw), -1)

    def raw_actions(self, scaled: Tensor) -> NDArray[np.float32]:
        """(n, A) to (n, *shape), within the range of the training split."""
        middle, reach = self._range()
        values = scaled.clamp(-1, 1).cpu().numpy().reshape(len(scaled), *self.actions.shape)
        return np.asarray(values * reach + middle, np.float32)

    def _range(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        known = self.normalizer.statistics[self.actions.name]
        middle = np.asarray((known.high + known.low) / 2, np.float32)
        reach = np.asarray((known.high - known.low) / 2, np.float32)
        return middle, np.where(reach > 0, reach, np.float32(1))


@dataclass(frozen=True)
class TransitionBatch:
    """B transitions.

    Attributes:
        states: (B, S).
        actions: (B, A).
        rewards: In the units of the data, (B, 1).
        next_states: (B, S); any where the episode is over.
        terminated: Whether the transition ended its episode in a terminal state, (B, 1).
        next_actions: (B, A); zeros where they are not known.
        next_known: Whether the data have the next action, (B, 1).
    """

    states: Tensor
    actions: Tensor
    rewards: Tensor
    next_states: Tensor
    terminated: Tensor
    next_actions: Tensor
    next_known: Tensor

    def to(self, device: torch.device) -> TransitionBatch:
        """The same on a device."""
        return TransitionBatch(*(tensor.to(device) for tensor in vars(self).values()))


class Transitions:
    """The transitions of a data set, drawn and scaled batch by batch.

    Raises:
        DataError: There is no complete transition.
    """

    def __init__(self, dataset: TrajectoryDataset, scaling: Scaling) -> None:
        self.dataset, self.scaling = dataset, scaling
        dataset.check_stored()
        self._rewards = dataset.arrays[reward_of(dataset).name].reshape(-1)
        self._acted = dataset.known(scaling.actions.name)
        self.index = TransitionIndex(dataset, scaling.states, scaling.actions)

    def draw(self, batch_size: int, seed: int, step: int) -> TransitionBatch:
        """The transitions of one step: uniform, a pure function of (seed, step)."""
        rng = generator(seed, Purpose.SEGMENTS, step)
        return self._gather(*self.index.draw(batch_size, rng))

    def at(self, numbers: IntArray) -> TransitionBatch:
        """The transitions of these numbers, from 0 to the length of the index."""
        return self._gather(*self.index.at(numbers))

    def _gather(self, steps: IntArray, after: IntArray, ended: BoolArray) -> TransitionBatch:
        arrays, scaling = self.dataset.arrays, self.scaling
        states, actions = arrays[scaling.states.name], arrays[scaling.actions.name]
        followed = torch.from_numpy(self._acted[after] & ~ended).unsqueeze(1)
        following = scaling.scale_actions(actions[after])
        return TransitionBatch(
            scaling.scale_states(states[steps]),
            scaling.scale_actions(actions[steps]),
            torch.from_numpy(self._rewards[steps]).unsqueeze(1),
            scaling.scale_states(states[after]),
            torch.from_numpy(ended).unsqueeze(1),
            following.masked_fill(~followed, 0.0),
            followed,
        )
