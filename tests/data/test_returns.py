"""Returns against a naive loop."""

from __future__ import annotations

import numpy as np
import pytest

import mtm
from mtm.cli import main
from mtm.core.config import Reading, ReturnsConfig, TrainConfig
from mtm.core.errors import DataError
from mtm.data.lint import lint
from mtm.data.modalities import Modality
from mtm.data.normalizer import Normalizer
from mtm.data.preparation import prepare
from mtm.data.returns import add_returns, episode_returns, return_to_go
from mtm.data.trajectories import TrajectoryDataset
from mtm.inference.episode_batches import shown_to
from mtm.inference.run_data import reported_episodes


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
    with pytest.raises(
        DataError, match=r"one modality of role 'reward'.* have states\[3\] \(state\)\."
    ):
        add_returns(dataset.select(["states"]), ReturnsConfig())


PAY = Modality("pay", (), role="reward")


def with_pay(dataset: TrajectoryDataset, *others: Modality) -> TrajectoryDataset:
    """The same rewards under another name, and more of that role."""
    data = dataset.select(["states", "actions"])
    data = data.with_modality(PAY, dataset.arrays["rewards"])
    for m in others:
        values = np.ones((dataset.num_steps, *m.shape), np.float32)
        data = data.with_modality(m, values)
    return data


def test_rewards_are_known_by_their_role(dataset: TrajectoryDataset) -> None:
    """One of another name was left out, and no returns were made, without a word."""
    data = with_pay(dataset)
    usual = prepare(dataset, TrainConfig())
    for config in (TrainConfig(), TrainConfig(modalities=("states", "returns", "actions"))):
        prepared = prepare(data, config)
        assert prepared.names == ("states", "returns", "actions")
        assert np.array_equal(prepared.arrays["returns"], usual.arrays["returns"])
    assert np.array_equal(episode_returns(data), episode_returns(dataset))
    known = np.ones(dataset.num_steps, bool)
    known[5] = False
    assert np.isnan(episode_returns(data.with_present({"pay": known}))[0])


def test_no_returns_are_made_beside_those_of_the_data(dataset: TrajectoryDataset) -> None:
    to_go = Modality("to_go", (), role="return")
    data = with_pay(dataset).with_modality(to_go, dataset.arrays["rewards"])
    assert prepare(data, TrainConfig()).names == ("states", "to_go", "actions")


@pytest.mark.parametrize("other", [Modality("bonus", (), role="reward"), None])
def test_what_no_returns_can_be_made_of(dataset, tmp_path, capsys, other) -> None:
    """Several of the role, or several numbers per step: say so rather than choose one."""
    if other is None:
        data = dataset.select(["states"]).with_modality(
            Modality("pay", (2,), role="reward"), dataset.arrays["actions"]
        )
    else:
        data = with_pay(dataset, other)
    with pytest.raises(DataError, match=r"the one modality of role 'reward'.* pay.*reading\.roles"):
        prepare(data, TrainConfig())
    assert prepare(data, TrainConfig(modalities=("states",))).names == ("states",)
    assert any(line.startswith("no returns can be made of pay[") for line in lint(data))
    np.savez(
        tmp_path / "a.npz",
        **data.arrays,
        offsets=[0, *data.ends],
        mtm_roles="pay=reward bonus=reward",
    )
    assert main(["data", "info", str(tmp_path / "a.npz")]) == 0
    assert "not known: a reward is the one" in " ".join(capsys.readouterr().out.split())


def test_whole_numbers_of_role_reward_are_numbers(dataset, tmp_path) -> None:
    arrays = dict(dataset.arrays)
    pay = 5000 * arrays.pop("rewards").astype(np.int64)  # too many for classes
    np.savez(tmp_path / "a.npz", **arrays, pay=pay, offsets=[0, *dataset.ends])
    data = mtm.load_dataset(tmp_path / "a.npz", Reading(roles={"pay": "reward"}))
    assert data.modality("pay") == PAY
    np.testing.assert_allclose(episode_returns(data), 5000 * episode_returns(dataset))


def test_a_run_of_rewards_of_another_name(point_mass, tiny, tmp_path, capsys) -> None:
    data = with_pay(point_mass).with_metadata(horizon=20)
    np.savez(
        tmp_path / "a.npz",
        **data.arrays,
        offsets=[0, *data.ends],
        mtm_roles="pay=reward",
        max_episode_steps=20,
    )
    run = mtm.train(tmp_path / "a.npz", tiny, tmp_path / "run", silent=True)
    assert [m.name for m in run.modalities] == ["states", "returns", "actions"]
    assert reported_episodes(run).names == ("states", "returns", "actions")
    assert shown_to(run, data).names == shown_to(run, point_mass).names
    usual = mtm.train(point_mass, tiny, tmp_path / "usual", silent=True)
    for one, other in zip(run.model.parameters(), usual.model.parameters(), strict=True):
        assert bool((one == other).all())
    assert main(["data", "info", str(tmp_path / "a.npz")]) == 0
    assert "episode return" in capsys.readouterr().out
