"""Returns against a naive loop."""

from __future__ import annotations

import numpy as np
import pytest

from mtm.core.config import ReturnsConfig
from mtm.core.errors import DataError
from mtm.data.normalizer import Normalizer
from mtm.data.returns import add_returns, episode_returns, return_to_go
from mtm.data.trajectories import TrajectoryDataset


def naive(rewards, starts, ends, discount, horizon):
    result = np.zeros(len(rewards))
    for start, end in zip(starts, ends, strict=True):
        for t in range(end - start):
            total = sum(discount**k * rewards[start + t + k] for k in range(end - start - t))
            result[start + t] = total / (horizon - t) if horizon else total
    return result


@pytest.mark.parametrize("discount", [1.0, 0.9])
@pytest.mark.parametrize("horizon", [None, 20])
def test_against_a_naive_loop(dataset: TrajectoryDataset, discount, horizon) -> None:
    rng = np.random.default_rng(0)
    rewards = rng.normal(size=dataset.num_steps).astype(np.float32)
    found = return_to_go(rewards, dataset.starts, dataset.ends, discount=discount, horizon=horizon)
    expected = naive(rewards, dataset.starts, dataset.ends, discount, horizon)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_average_uses_the_environment_s_horizon(dataset: TrajectoryDataset) -> None:
    data = add_returns(dataset, ReturnsConfig())
    assert data.names == ("states", "returns", "actions", "rewards")
    expected = naive(data.arrays["rewards"], data.starts, data.ends, 1.0, 20)
    np.testing.assert_allclose(data.arrays["returns"], expected, rtol=1e-6)


def test_an_episode_longer_than_the_horizon_is_refused(dataset: TrajectoryDataset) -> None:
    with pytest.raises(DataError, match="episode 4 has 12 steps, the horizon .* is 10"):
        add_returns(dataset, ReturnsConfig(horizon=10))


def test_a_missing_reward_hides_the_returns_before_it(dataset: TrajectoryDataset) -> None:
    known = np.ones(dataset.num_steps, bool)
    known[5] = False  # in the first episode, steps 0 to 8
    data = TrajectoryDataset.from_arrays(
        dataset.arrays, [0, *dataset.ends], present={"rewards": known}, metadata=dataset.metadata
    )
    present = add_returns(data, ReturnsConfig(kind="sum")).present["returns"]
    assert np.flatnonzero(~present).tolist() == [0, 1, 2, 3, 4, 5]


def test_a_reward_that_every_episode_lacks_is_named(dataset: TrajectoryDataset) -> None:
    known = np.ones(dataset.num_steps, bool)
    known[dataset.ends - 1] = False
    data = add_returns(dataset.with_present({"rewards": known}), ReturnsConfig())
    assert data.count_present("returns") == 0
    with pytest.raises(DataError, match="'returns' is absent in every .* needs every reward from"):
        Normalizer.fit(data)


def test_the_return_of_an_episode_needs_all_of_its_rewards(dataset: TrajectoryDataset) -> None:
    known = np.ones(dataset.num_steps, bool)
    known[5] = False  # in the first episode
    found = episode_returns(dataset.with_present({"rewards": known}))
    rewards = dataset.arrays["rewards"]
    assert np.isnan(found[0])
    for episode in range(1, dataset.num_episodes):
        steps = slice(dataset.starts[episode], dataset.ends[episode])
        assert found[episode] == pytest.approx(rewards[steps].sum(), rel=1e-5)


def test_own_returns_are_kept_and_missing_rewards_named(dataset: TrajectoryDataset) -> None:
    own = dataset.with_modality(
        add_returns(dataset, ReturnsConfig()).modality("returns"), dataset.arrays["rewards"]
    )
    assert add_returns(own, ReturnsConfig()) is own
    with pytest.raises(DataError, match="made from a modality 'rewards'"):
        add_returns(dataset.select(["states"]), ReturnsConfig())
