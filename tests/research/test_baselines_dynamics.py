"""The dynamics ensemble: what it predicts, how sure it is, and that it is saved whole."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from mtm.core.errors import DataError, RunError
from mtm.data.formats import builtin
from mtm.data.normalizer import Normalizer
from mtm.data.trajectories import TrajectoryDataset
from mtm.research.baselines.critic_settings import DynamicsConfig
from mtm.research.baselines.dynamics import DynamicsEnsemble
from mtm.research.baselines.dynamics_fit import DynamicsData, fit_dynamics
from mtm.research.baselines.replay import Scaling, Transitions

SMALL = DynamicsConfig(networks=3, elites=2, width=32, layers=2, learning_rate=3e-3)


@pytest.fixture(scope="module")
def ensemble() -> DynamicsEnsemble:
    data = builtin.point_mass(episodes=200, length=20)
    return fit_dynamics(data, SMALL, steps=300, batch_size=64)


def falling(terminated: bool) -> TrajectoryDataset:
    """A number that falls by one step until it is below 0, where the episode ends."""
    episodes = [np.arange(n, -1, -1, dtype=np.float32) for n in (3, 5, 8, 4) * 5]
    states = np.concatenate(episodes)
    return TrajectoryDataset.from_arrays(
        {
            "states": states[:, None],
            "actions": np.sin(states)[:, None],
            "rewards": 10 + states,
        },
        np.cumsum([0, *map(len, episodes)]),
        terminated=np.full(len(episodes), terminated),
    )


def test_it_predicts_the_next_state_and_the_reward(ensemble: DynamicsEnsemble) -> None:
    """On episodes that it has not seen; copying the state is the measure."""
    data = builtin.point_mass(episodes=20, length=20, seed=7)
    states, actions = data.arrays["states"], data.arrays["actions"]
    inside = np.setdiff1d(np.arange(len(states)), data.ends - 1)
    found = ensemble.predict(states[inside], actions[inside])
    truth = states[inside + 1]
    copied = ((states[inside] - truth) ** 2).mean()
    assert ((found.next_states - truth) ** 2).mean() < 0.03 * copied
    rewards = data.arrays["rewards"][inside]
    assert ((found.rewards - rewards) ** 2).mean() < 0.2 * rewards.var()
    assert found.std.shape == truth.shape


def test_its_std_is_that_of_its_errors(ensemble: DynamicsEnsemble) -> None:
    """The point mass is pushed with noise; the error in units of the std is about 1."""
    data = builtin.point_mass(episodes=20, length=20, seed=7)
    states, actions = data.arrays["states"], data.arrays["actions"]
    inside = np.setdiff1d(np.arange(len(states)), data.ends - 1)
    found = ensemble.predict(states[inside], actions[inside])
    off = (found.next_states - states[inside + 1]) / found.std
    assert 0.3 < np.sqrt((off**2).mean()) < 2


def test_it_is_less_sure_far_from_the_data(ensemble: DynamicsEnsemble) -> None:
    near = np.zeros((50, 4), np.float32)
    far = near + 50
    actions = np.zeros((50, 2), np.float32)
    assert (
        ensemble.predict(far, actions).std.mean() > 3 * ensemble.predict(near, actions).std.mean()
    )
    torch.manual_seed(0)
    scaled = ensemble.scaling.scale_actions(actions)
    unsure = [
        ensemble.imagine(ensemble.scaling.scale_states(x), scaled).uncertainty.mean()
        for x in (near, far)
    ]
    assert unsure[1] > unsure[0]


def test_the_end_of_an_episode_is_learned() -> None:
    data = falling(terminated=True)
    ensemble = fit_dynamics(data, replace(SMALL, learning_rate=1e-2), steps=600, batch_size=64)
    states = np.array([[0.0], [4.0]], np.float32).repeat(200, axis=0)
    scaling = ensemble.scaling
    torch.manual_seed(0)
    ended = ensemble.imagine(
        scaling.scale_states(states), scaling.scale_actions(np.sin(states))
    ).terminated.view(2, 200)
    assert ended[0].float().mean() > 0.8
    assert ended[1].float().mean() < 0.1


def test_what_follows_a_terminal_step_does_not_count() -> None:
    data = falling(terminated=True)
    scaling = Scaling.of(data.modalities, Normalizer.fit(data))
    ensemble = DynamicsEnsemble(SMALL, scaling)
    batch = DynamicsData(Transitions(data, scaling), 3, seed=0).batch(32, 0)
    assert batch.terminated.any()
    other = batch.next_states.clone()
    other[batch.terminated.squeeze(1)] = 1e6
    changed = type(batch)(**{**vars(batch), "next_states": other})
    assert torch.equal(ensemble.loss(batch), ensemble.loss(changed))


def test_networks_see_data_of_their_own_and_none_that_is_held_out() -> None:
    data = builtin.point_mass(episodes=5, length=20)
    scaling = Scaling.of(data.modalities, Normalizer.fit(data))
    batches = DynamicsData(Transitions(data, scaling), 3, seed=0)
    seen = torch.cat([batches.batch(200, step).states.view(3, 200, 4) for step in range(3)], dim=1)
    sets = [{tuple(row) for row in one.tolist()} for one in seen]
    held_out = {tuple(row) for row in batches.held_out().states.tolist()}
    assert len(held_out) == 19  # a fifth of the 95
    assert not held_out & set.union(*sets)
    assert sets[0] != sets[1]
    assert len(sets[0]) < 76  # some twice, others never
    again = DynamicsData(Transitions(data, scaling), 3, seed=0).batch(200, 0)
    assert torch.equal(again.states, batches.batch(200, 0).states)


def test_the_networks_of_least_error_predict() -> None:
    data = builtin.point_mass(episodes=20, length=20)
    ensemble = fit_dynamics(data, SMALL, steps=100, batch_size=32)
    scaling = ensemble.scaling
    held_out = DynamicsData(Transitions(data, scaling), 3, seed=0).held_out()
    ensemble.biases[-1].data[int(ensemble.elites[0])] += 10  # spoil one
    before = set(ensemble.elites.tolist())
    ensemble.choose_elites(held_out)
    assert set(ensemble.elites.tolist()) != before


def test_it_is_saved_and_loaded_whole(ensemble: DynamicsEnsemble, tmp_path: Path) -> None:
    file = tmp_path / "dynamics.safetensors"
    ensemble.save(file)
    again = DynamicsEnsemble.load(file)
    rng = np.random.default_rng(0)
    states = rng.normal(size=(9, 4)).astype(np.float32)
    actions = rng.uniform(-1, 1, (9, 2)).astype(np.float32)
    for mine, its in zip(
        ensemble.predict(states, actions), again.predict(states, actions), strict=True
    ):
        assert np.array_equal(mine, its)
    with pytest.raises(RunError, match="holds no readable dynamics ensemble"):
        DynamicsEnsemble.load(tmp_path / "none.safetensors")
    (tmp_path / "torn").write_bytes(file.read_bytes()[:500])
    with pytest.raises(RunError, match="torn holds no readable dynamics ensemble"):
        DynamicsEnsemble.load(tmp_path / "torn")


def test_what_does_not_fit_is_refused(ensemble: DynamicsEnsemble) -> None:
    states, actions = np.zeros((3, 4), np.float32), np.zeros((3, 2), np.float32)
    with pytest.raises(DataError, match=r"states must be \(n, 4\), got \(3, 5\)"):
        ensemble.predict(np.zeros((3, 5), np.float32), actions)
    with pytest.raises(DataError, match="3 states need as many actions, got 2"):
        ensemble.predict(states, actions[:2])
    lonely = TrajectoryDataset.from_arrays(
        {"states": np.zeros((2, 1)), "actions": np.zeros((2, 1)), "rewards": np.zeros(2)}, [0, 2]
    )
    with pytest.raises(DataError, match="the data have 1 "):
        fit_dynamics(lonely, SMALL, steps=1)


def test_it_leaves_the_callers_numbers_alone() -> None:
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    one, other = (
        fit_dynamics(builtin.point_mass(5, 10), SMALL, steps=3, batch_size=8) for _ in range(2)
    )
    assert torch.equal(torch.rand(1), expected)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
