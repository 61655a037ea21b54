"""The return of a state: in the mean, and the one that can be reached."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mtm.core.config import TrainConfig, preset
from mtm.core.errors import ConfigError, DataError
from mtm.data.trajectories import Metadata, TrajectoryDataset
from mtm.inference.engine import ask
from mtm.inference.state_returns import expected_returns, reachable_returns
from mtm.runs.run import Run
from mtm.training.train import train

LENGTH = 4
EXPECTILE = 0.9
OF_UNIFORM = 0.75
"""Of 0 to 1, the expectile of 0.9: 0.9 (1 - e)^2 = 0.1 e^2."""


def gamble(episodes: int = 1500) -> TrajectoryDataset:
    """In state 0 every reward of an episode is 0.5, in state 1 all are drawn, the same for all."""
    rng = np.random.default_rng(0)
    state = rng.integers(2, size=episodes)
    reward = np.where(state == 0, 0.5, rng.uniform(size=episodes))
    arrays = {
        "states": np.repeat(state, LENGTH).astype(np.float32)[:, None],
        "actions": rng.normal(size=(episodes * LENGTH, 1)),
        "rewards": np.repeat(reward, LENGTH),
    }
    offsets = np.arange(episodes + 1) * LENGTH
    return TrajectoryDataset.from_arrays(arrays, offsets, metadata=Metadata(horizon=LENGTH))


@pytest.fixture(scope="module")
def settings() -> TrainConfig:
    small = preset("tiny")
    model = replace(small.model, values=EXPECTILE)
    return replace(small, steps=250, batch_size=128, validation_fraction=0, model=model)


@pytest.fixture(scope="module")
def gambler(tmp_path_factory, settings) -> Run:
    return train(gamble(), settings, tmp_path_factory.mktemp("g") / "run", silent=True)


def test_what_can_be_reached_is_more_than_what_is_expected_where_luck_differs(gambler) -> None:
    states = np.array([[0.0], [1.0]], np.float32)
    np.testing.assert_allclose(expected_returns(gambler, states), [0.5, 0.5], atol=0.06)
    np.testing.assert_allclose(reachable_returns(gambler, states), [0.5, OF_UNIFORM], atol=0.06)


def test_the_state_alone_is_shown_and_leading_axes_stay(gambler) -> None:
    states = np.random.default_rng(1).uniform(size=(2, 3, 1)).astype(np.float32)
    found = expected_returns(gambler, states)
    assert found.shape == reachable_returns(gambler, states).shape == (2, 3)
    window = np.zeros((6, LENGTH, 1), np.float32)
    window[:, 0] = states.reshape(6, 1)
    visible = np.zeros((6, LENGTH, 3), bool)
    visible[:, 0, 0] = True
    expected = ask(gambler, {"states": window}, visible, ["returns"])["returns"][:, 0]
    np.testing.assert_allclose(found.reshape(-1), expected, atol=1e-6)
    assert expected_returns(gambler, states[0, 0]).shape == ()


def test_what_is_not_known_is_told(gambler, tiny, tmp_path) -> None:
    plain = train(gamble(50), replace(tiny, steps=1), tmp_path / "plain", silent=True)
    with pytest.raises(ConfigError, match=r"without model.values.* Train with --model.values 0.9"):
        reachable_returns(plain, np.zeros((1, 1)))
    with pytest.raises(DataError, match="has shape"):
        expected_returns(plain, np.zeros((1, 2)))
    data = gamble(50).select(["states", "actions"])
    silent = train(data, replace(tiny, steps=1), tmp_path / "silent", silent=True)
    with pytest.raises(ConfigError, match="exactly one modality of role 'return'"):
        expected_returns(silent, np.zeros((1, 1)))
