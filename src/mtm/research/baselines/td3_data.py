"""What TD3's updates draw from: flat tensors, encoded once where the encoder is frozen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from tensordict import TensorDict
from torch import Tensor

from mtm.core.randomness import Purpose, generator
from mtm.research.baselines.transitions import TransitionIndex


@dataclass(frozen=True)
class EncodedTransitions:
    """All steps of a data set.

    Attributes:
        observations: What the actor reads, (N, ...).
        states: What the critics read beside the action, (N, ...).
        actions: (N, A).
        rewards: (N, 1).
        pairs: What the critics read of state and action together, (N, F); None if it changes
            while training, and has to be made from `states` and `actions`.
        index: Which steps are transitions.
    """

    observations: Tensor
    states: Tensor
    actions: Tensor
    rewards: Tensor
    pairs: Tensor | None
    index: TransitionIndex

    def batch(self, size: int, noise: tuple[float, float], seed: int, step: int) -> TensorDict:
        """The batch of an update, a pure function of (seed, step).

        Args:
            size: B.
            noise: Standard deviation and limit of the noise on the next action.
            seed: Of the training.
            step: The update, counted from 0.
        """
        rng = generator(seed, Purpose.SEGMENTS, step)
        now, after, ended = (torch.from_numpy(part) for part in self.index.draw(size, rng))
        actions = self.actions[now]
        std, limit = noise
        drawn = torch.from_numpy(rng.standard_normal(actions.shape, np.float32))
        following = {
            "observation": self.observations[after],
            "state": self.states[after],
            "noise": drawn.mul_(std).clamp_(-limit, limit),
            "reward": self.rewards[now],
            "done": ended[:, None],
            "terminated": ended[:, None],
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
