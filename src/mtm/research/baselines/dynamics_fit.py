"""What the dynamics ensemble learns from, and its training by itself."""

from __future__ import annotations

import numpy as np
import torch

from mtm.core.errors import DataError
from mtm.core.randomness import Purpose, generator
from mtm.data import loading
from mtm.data.loading import DataSpec
from mtm.data.modalities import IntArray
from mtm.data.normalizer import Normalizer
from mtm.data.returns import reward_of
from mtm.data.trajectories import TrajectoryDataset
from mtm.research.baselines.critic_settings import DynamicsConfig
from mtm.research.baselines.dynamics import DynamicsEnsemble
from mtm.research.baselines.replay import Scaling, TransitionBatch, Transitions
from mtm.research.baselines.transitions import check_modalities

HELD_OUT_SHARE, MOST_HELD_OUT = 0.2, 1000
"""Of the transitions, those that choose the elites."""

MEASURED = 100_000
"""Transitions at most that say how large changes and rewards are."""


class DynamicsData:
    """Batches for each network of its own: each has drawn its transitions, some of them twice.

    Args:
        transitions: To learn from.
        networks: E.
        seed: Decides what each network sees.

    Raises:
        DataError: There are too few transitions.
    """

    def __init__(self, transitions: Transitions, networks: int, seed: int) -> None:
        self._transitions, self._seed = transitions, seed
        count = len(transitions.index)
        if count < 2:
            raise DataError(
                f"dynamics are learned from some transitions and tried on others; the data have "
                f"{count} (steps with a state, an action, a reward and a next state)."
            )
        rng = generator(seed, Purpose.SPLIT)
        order = rng.permutation(count)
        held = max(min(int(HELD_OUT_SHARE * count), MOST_HELD_OUT), 1)
        self._held_out: IntArray = order[:held]
        self._learned: IntArray = order[held:]
        self._own = rng.integers(count - held, size=(networks, count - held), dtype=np.int64)

    def batch(self, size: int, step: int) -> TransitionBatch:
        """`size` transitions for each network, (E * size, ...), network by network."""
        rng = generator(self._seed, Purpose.SEGMENTS, step)
        places = rng.integers(self._own.shape[1], size=(len(self._own), size))
        numbers = np.take_along_axis(self._own, places, axis=1)
        return self._transitions.at(self._learned[numbers.reshape(-1)])

    def held_out(self) -> TransitionBatch:
        """Transitions that no network learns from."""
        return self._transitions.at(self._held_out)

    def sample(self) -> TransitionBatch:
        """Transitions that say how large changes and rewards are."""
        return self._transitions.at(self._learned[:MEASURED])


def fit_dynamics(
    data: DataSpec | TrajectoryDataset,
    config: DynamicsConfig | None = None,
    *,
    steps: int = 3000,
    batch_size: int = 256,
    seed: int = 0,
    normalizer: Normalizer | None = None,
) -> DynamicsEnsemble:
    """Train an ensemble by itself, as MOPO trains it.

    Args:
        data: Episodes to learn from (all of them: split before), with rewards.
        config: Settings.
        steps: Of Adam.
        batch_size: Transitions of each network per step.
        seed: Makes weights and batches.
        normalizer: Of states and actions; measured on the data if None.

    Raises:
        DataError: The data have no transitions to learn from.
    """
    config = config or DynamicsConfig()
    dataset = loading.as_dataset(data)
    states, actions = check_modalities(dataset)
    dataset = dataset.select([states.name, actions.name, reward_of(dataset).name])
    scaling = Scaling.of(dataset.modalities, normalizer or Normalizer.fit(dataset))
    batches = DynamicsData(Transitions(dataset, scaling), config.networks, seed)
    with torch.random.fork_rng(devices=[]):  # the caller's generator is left alone
        torch.manual_seed(seed)
        ensemble = DynamicsEnsemble(config, scaling)
    ensemble.measure(batches.sample())
    adam = torch.optim.Adam(ensemble.parameters(), lr=config.learning_rate, fused=True)
    for step in range(steps):
        loss = ensemble.loss(batches.batch(batch_size, step))
        adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        adam.step()
    ensemble.choose_elites(batches.held_out())
    return ensemble.eval()
