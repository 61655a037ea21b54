"""What agents learn from: the split's transitions, or segments with returns-to-go.

States are normalised as for a run. Actions are scaled so that the range of the training split is
[-1, 1], which is also all that an agent can do. The batch of step k is a function of (seed, k).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mtm.errors import DataError
from mtm.modalities import BoolArray, IntArray, Modality, Role
from mtm.normalizer import Normalizer
from mtm.randomness import Purpose, generator
from mtm.trajectories import TrajectoryDataset

REWARDS = "rewards"


@dataclass(frozen=True)
class Scaling:
    """Raw units to those of an agent and back; values are flat vectors there."""

    states: Modality
    actions: Modality
    normalizer: Normalizer

    @classmethod
    def of(cls, modalities: tuple[Modality, ...], normalizer: Normalizer) -> Scaling:
        """The scaling of data with these modalities.

        Raises:
            DataError: They are not what an agent can learn from.
        """
        return cls(_one(modalities, "state"), _one(modalities, "action"), normalizer)

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
        values = scaled.clamp(-1, 1).numpy().reshape(len(scaled), *self.actions.shape)
        return np.asarray(values * reach + middle, np.float32)

    def _range(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        known = self.normalizer.statistics[self.actions.name]
        middle = np.asarray((known.high + known.low) / 2, np.float32)
        reach = np.asarray((known.high - known.low) / 2, np.float32)
        return middle, np.where(reach > 0, reach, np.float32(1))


@dataclass(frozen=True)
class Batch:
    """B transitions.

    Attributes:
        states: (B, S).
        actions: (B, A).
        rewards: In the units of the data, (B, 1).
        next_states: (B, S); any where the episode is over.
        terminated: Whether the transition ended its episode in a terminal state, (B, 1).
    """

    states: Tensor
    actions: Tensor
    rewards: Tensor
    next_states: Tensor
    terminated: Tensor


class Transitions:
    """The transitions of a data set, each equally likely.

    The last step of an episode has no next state. It is used if the episode terminated there, for
    then nothing follows; if the time was up, what would have followed is not known, and it is not.

    Raises:
        DataError: There is no complete transition.
    """

    def __init__(self, dataset: TrajectoryDataset, scaling: Scaling) -> None:
        self.dataset, self.scaling = dataset, scaling
        lengths = dataset.lengths
        steps = np.repeat(dataset.starts - np.cumsum(lengths) + lengths, lengths)
        steps = steps + np.arange(len(steps))
        lasts = np.zeros(len(dataset.arrays[REWARDS]), bool)
        lasts[dataset.ends - 1] = True
        terminal = np.zeros_like(lasts)
        terminal[dataset.ends[endings(dataset)] - 1] = True
        states, actions = (dataset.known(m.name) for m in (scaling.states, scaling.actions))
        followed = ~lasts & np.append(states[1:], False)
        complete = states & actions & dataset.known(REWARDS) & (followed | terminal)
        self._steps: IntArray = steps[complete[steps]]
        self._terminal: BoolArray = terminal
        if not len(self._steps):
            raise DataError(
                "no step has a state, an action, a reward and a next state; there is nothing that "
                "an agent could learn from."
            )

    def __len__(self) -> int:
        return len(self._steps)

    def draw(self, batch_size: int, seed: int, step: int) -> Batch:
        """The transitions of one step: uniform, a pure function of (seed, step)."""
        rng = generator(seed, Purpose.SEGMENTS, step)
        steps = self._steps[rng.integers(len(self), size=batch_size)]
        ended = self._terminal[steps]
        arrays, scaling = self.dataset.arrays, self.scaling
        states, rewards = arrays[scaling.states.name], arrays[REWARDS].reshape(-1)
        return Batch(
            scaling.scale_states(states[steps]),
            scaling.scale_actions(arrays[scaling.actions.name][steps]),
            torch.from_numpy(rewards[steps]).unsqueeze(1),
            scaling.scale_states(states[np.where(ended, steps, steps + 1)]),
            torch.from_numpy(ended).unsqueeze(1),
        )


def endings(dataset: TrajectoryDataset) -> BoolArray:
    """Which episodes ended in a terminal state, (E,).

    The source says it, as D4RL's and Minari's do. Where it does not, an episode that is shorter
    than the horizon of the environment has terminated; without a horizon, none has.
    """
    if dataset.terminated is not None:
        return dataset.terminated
    if dataset.metadata.horizon is not None:
        shorter: BoolArray = dataset.lengths < dataset.metadata.horizon
        return shorter
    if len(np.unique(dataset.lengths)) > 1:
        warnings.warn(
            f"{dataset.metadata.source} says neither which episodes ended in a terminal state nor "
            "how long they can get; all are taken as ended by time. Add flags named terminals.",
            stacklevel=2,
        )
    return np.zeros(dataset.num_episodes, bool)


def check_modalities(dataset: TrajectoryDataset) -> tuple[Modality, Modality]:
    """The states and actions of data that an agent can learn from.

    Raises:
        DataError: There are no rewards, or not one continuous modality each of states and actions.
    """
    if REWARDS not in dataset.names:
        raise DataError(
            f"an agent learns from rewards, and the data have none: {', '.join(dataset.names)}."
        )
    return _one(dataset.modalities, "state"), _one(dataset.modalities, "action")


def _one(modalities: tuple[Modality, ...], role: Role) -> Modality:
    found = [m for m in modalities if m.role == role]
    if len(found) != 1 or found[0].kind != "continuous":
        listed = ", ".join(f"{m.name} ({m.kind})" for m in found) or "none"
        raise DataError(
            f"an agent needs exactly one continuous modality of role {role!r}, the data have "
            f"{listed}. Join or choose columns with reading.columns."
        )
    return found[0]
