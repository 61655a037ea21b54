"""Transitions for TD3: flat tensors, encoded once where the encoder is frozen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mtm.errors import ConfigError, DataError
from mtm.modalities import Modality, Role
from mtm.randomness import Purpose, generator
from mtm.trajectories import TrajectoryDataset

if TYPE_CHECKING:
    from tensordict import TensorDict

REWARDS = "rewards"


@dataclass(frozen=True)
class Transitions:
    """All steps of a data set; row i + 1 follows row i wherever `first` lists i.

    Attributes:
        observations: What the actor reads, (N, ...).
        states: What the critics read beside the action, (N, ...).
        actions: (N, A).
        rewards: (N, 1).
        pairs: What the critics read of state and action together, (N, F); None if it changes
            while training, and has to be made from `states` and `actions`.
        first: Rows that have a next one, (K,).
    """

    observations: Tensor
    states: Tensor
    actions: Tensor
    rewards: Tensor
    pairs: Tensor | None
    first: NDArray[np.int64]

    def batch(self, size: int, noise: tuple[float, float], seed: int, step: int) -> TensorDict:
        """The batch of an update, a pure function of (seed, step).

        Args:
            size: B.
            noise: Standard deviation and limit of the noise on the next action.
            seed: Of the training.
            step: The update, counted from 0.
        """
        from tensordict import TensorDict

        rng = generator(seed, Purpose.SEGMENTS, step)
        now = torch.from_numpy(self.first[rng.integers(len(self.first), size=size)])
        actions = self.actions[now]
        std, limit = noise
        drawn = torch.from_numpy(rng.standard_normal(actions.shape, np.float32))
        never = torch.zeros(size, 1, dtype=torch.bool)
        following = {
            "observation": self.observations[now + 1],
            "state": self.states[now + 1],
            "noise": drawn.mul_(std).clamp_(-limit, limit),
            "reward": self.rewards[now],
            "done": never,
            "terminated": never,
        }
        inputs = {
            "observation": self.observations[now],
            "state": self.states[now],
            "action": actions,
            "noise": torch.zeros_like(actions),
            "next": TensorDict(following, [size]),
        }
        if self.pairs is not None:
            inputs["pair"] = self.pairs[now]
        return TensorDict(inputs, [size])


def rows_with_next(data: TrajectoryDataset) -> NDArray[np.int64]:
    """Steps that are followed by another one of the same episode.

    Raises:
        DataError: There are none.
    """
    parts = [np.arange(start, end - 1) for start, end in zip(data.starts, data.ends, strict=True)]
    first = np.concatenate(parts)
    if not len(first):
        raise DataError("no episode has two steps, so there is no transition to learn from.")
    return first


def check_data(data: TrajectoryDataset) -> tuple[Modality, Modality]:
    """The modalities of states and actions of data that TD3 can learn from.

    Raises:
        ConfigError: There is not exactly one of each role.
        DataError: They are not vectors of numbers, there are no rewards, or values are missing.
    """
    states, actions = _one(data, "state"), _one(data, "action")
    faults = [
        f"modality {m.name!r} must be a vector of numbers, it is {m.kind} of shape {m.shape}."
        for m in (states, actions)
        if m.kind != "continuous" or len(m.shape) != 1
    ]
    if REWARDS not in data.names:
        faults.append(f"TD3 needs a modality {REWARDS!r}; the data have {', '.join(data.names)}.")
    faults += [
        f"modality {name!r} has gaps; TD3 needs every value."
        for name in (states.name, actions.name, REWARDS)
        if name in data.present
    ]
    if faults:
        raise DataError(*faults)
    return states, actions


def _one(data: TrajectoryDataset, role: Role) -> Modality:
    found = [m for m in data.modalities if m.role == role]
    if len(found) != 1:
        raise ConfigError(
            f"TD3 needs exactly one modality of role {role!r}, the data have "
            f"{', '.join(m.name for m in found) or 'none'}."
        )
    return found[0]
