"""Errors of forward dynamics many steps ahead, against states that are known to follow."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mtm.core.errors import ConfigError
from mtm.data.normalizer import Normalizer
from mtm.data.trajectories import TrajectoryDataset
from mtm.evaluation.open_loop import open_loop_errors, run_open_loop
from mtm.inference.run_data import held_out_of
from mtm.training.train import train


@pytest.fixture
def walk() -> TrajectoryDataset:
    """Each action is added to the state."""
    actions = np.random.default_rng(0).normal(size=(6, 30, 2)).astype(np.float32)
    states = np.concatenate([np.zeros((6, 1, 2)), actions[:, :-1].cumsum(axis=1)], axis=1)
    episodes = [
        {"states": s.astype(np.float32), "actions": a} for s, a in zip(states, actions, strict=True)
    ]
    return TrajectoryDataset.from_episodes(episodes)


def test_a_perfect_model_has_no_error_and_copying_has_that_of_the_walk(
    walk: TrajectoryDataset,
) -> None:
    seen = []

    def added_up(states, actions):
        seen.append((states.shape, actions.shape))
        return states[:, -1:] + actions[:, states.shape[1] - 1 :].cumsum(axis=1)

    normalizer = Normalizer.fit(walk)
    found = open_loop_errors(added_up, walk, normalizer, history=3, horizon=10, starts=200)
    assert found is not None
    assert seen[0][0][1:] == (3, 2)
    assert seen[0][1][1:] == (12, 2)
    np.testing.assert_allclose(found.model, 0, atol=1e-9)
    assert found.copied.shape == (10,)
    one = (np.diff(walk.arrays["states"].reshape(6, 30, 2), axis=1)) ** 2
    expected = (one / normalizer.statistics["states"].std ** 2).mean()
    assert found.copied[0] == pytest.approx(expected, rel=0.2)  # of the starts that were drawn
    assert found.copied[9] > 3 * found.copied[0]

    def copied(states, actions):
        return np.repeat(states[:, -1:], 10, axis=1)

    same = open_loop_errors(copied, walk, normalizer, history=3, horizon=10)
    np.testing.assert_allclose(same.model, same.copied)


def test_episodes_that_are_too_short(walk: TrajectoryDataset) -> None:
    normalizer = Normalizer.fit(walk)
    assert open_loop_errors(lambda s, a: s, walk, normalizer, history=3, horizon=28) is None


def test_classes_have_no_such_error() -> None:
    episodes = [{"states": np.zeros(9, int), "actions": np.zeros((9, 1), np.float32)}] * 2
    data = TrajectoryDataset.from_episodes(episodes)
    with pytest.raises(ConfigError, match="holds classes"):
        open_loop_errors(lambda s, a: s, data, Normalizer.fit(data), history=1, horizon=2)


def test_a_run_begins_with_what_fits_before_the_last_step(point_mass, tiny, out) -> None:
    run = train(point_mass, replace(tiny, steps=2), out, silent=True)
    found = run_open_loop(run, held_out_of(run, point_mass), 5, starts=8)
    assert found is not None
    assert found.model.shape == (5,)
    assert np.isfinite(found.model).all()
