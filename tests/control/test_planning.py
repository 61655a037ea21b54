"""Planning: each part apart, and all of them on a task that cloning cannot solve."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mtm.control import planning, policies, return_targets
from mtm.control.planning import Score, correlated_noise, weigh
from mtm.control.policies import PlanConfig, PlanningPolicy
from mtm.core.config import ReturnsConfig, TrainConfig, preset
from mtm.core.errors import ConfigError
from mtm.data.formats import builtin
from mtm.data.returns import add_returns
from mtm.data.trajectories import Metadata, TrajectoryDataset
from mtm.inference.imagination import Imagined
from mtm.inference.state_returns import expected_returns, reachable_returns
from mtm.runs.run import Run
from mtm.training.train import train

ALL = ("states", "returns", "actions", "rewards")
LENGTH = 20


def random_pushes(episodes: int = 200, seed: int = 0) -> TrajectoryDataset:
    """A point mass that is pushed at random: its policy goes nowhere, whatever the return."""
    rng = np.random.default_rng(seed)
    state = np.concatenate(
        [rng.uniform(-1.5, 1.5, (episodes, 2)), rng.uniform(-0.5, 0.5, (episodes, 2))], axis=1
    )
    states, actions = [], []
    for _ in range(LENGTH):
        action = rng.uniform(-1, 1, (episodes, 2))
        states.append(state)
        actions.append(action)
        state = builtin.step_point_mass(state, action)
    tracks = np.stack(states, axis=1)
    arrays = {
        "states": tracks.reshape(-1, 4),
        "actions": np.stack(actions, axis=1).reshape(-1, 2),
        "rewards": rewards_at(tracks).reshape(-1),
    }
    offsets = np.arange(episodes + 1) * LENGTH
    return TrajectoryDataset.from_arrays(arrays, offsets, metadata=Metadata(horizon=LENGTH))


def rewards_at(states: np.ndarray) -> np.ndarray:
    return np.exp(-(states[..., :2] ** 2).sum(axis=-1))


@pytest.fixture(scope="module")
def settings() -> TrainConfig:
    small = preset("tiny")
    return replace(
        small,
        steps=300,
        batch_size=64,
        validation_fraction=0,
        loss_on="all",  # rewards too, which forward dynamics do not want
        mask="random-autoregressive+fd",  # so few steps teach the dynamics only if they ask for it
        modalities=ALL,
        model=replace(small.model, values=0.9),
    )


@pytest.fixture(scope="module")
def pushed(tmp_path_factory, settings) -> Run:
    """Rewards and returns are modelled, and the returns that can be reached."""
    return train(random_pushes(), settings, tmp_path_factory.mktemp("p") / "run", silent=True)


@pytest.fixture(scope="module")
def plain_run(tmp_path_factory, point_mass) -> Run:
    """As the defaults are: no rewards, no expectile."""
    return train(point_mass, preset("tiny"), tmp_path_factory.mktemp("q") / "run", silent=True)


def start(rows: int, seed: int = 1) -> np.ndarray:
    """At rest, 1.2 from the origin."""
    angle = np.random.default_rng(seed).uniform(0, 2 * np.pi, rows)
    at = 1.2 * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return np.concatenate([at, np.zeros((rows, 2))], axis=1)


def earn(policy, rows: int = 8, steps: int = LENGTH) -> np.ndarray:
    """The last reward of each of some episodes with the true dynamics."""
    policy.reset(rows)
    state = start(rows)
    for _ in range(steps):
        action = np.clip(policy.act(state.astype(np.float32)), -1, 1)
        policy.observe(rewards_at(state), np.zeros(rows, bool))
        state = builtin.step_point_mass(state, action)
    return rewards_at(state)


def some_states(rows: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, 4)).astype(np.float32)


@pytest.mark.parametrize(
    "plan",
    [
        PlanConfig(candidates=65),
        PlanConfig(candidates=65, rewards=False),
        PlanConfig(candidates=65, tail=False, horizon=6),
        PlanConfig(candidates=65, horizon=6, per_pass=None),
        PlanConfig(candidates=33, iterations=3),
    ],
    ids=["all parts", "no rewards", "no tail", "beyond a segment, in long passes", "three rounds"],
)
def test_planning_reaches_what_cloning_of_random_actions_does_not(pushed, plan) -> None:
    cloned = earn(policies.behavior_cloning(pushed, history=0))
    assert cloned.mean() < 0.45  # 0.24 at the start
    plain = policies.behavior_cloning(pushed, history=0)
    planned = earn(policies.planning(pushed, plain, plan))
    assert planned.mean() > 0.8
    assert (planned > cloned).all()


@pytest.mark.parametrize("history", [0, 2])
def test_one_candidate_is_the_plain_policy_to_the_bit(plain_run, history: int) -> None:
    plain = policies.return_conditioned(plain_run, history=history)
    same = policies.planning(
        plain_run, policies.return_conditioned(plain_run, history=history), PlanConfig(candidates=1)
    )
    for policy in (plain, same):
        policy.reset(3)
    for step in range(6):
        states = some_states(3, step)
        assert np.array_equal(plain.act(states), same.act(states))
        for policy in (plain, same):
            policy.observe(np.full(3, 0.3), np.array([step == 3, False, False]))


def test_candidates_of_equal_scores_have_the_plain_action_as_their_mean(plain_run) -> None:
    config = PlanConfig(candidates=9, best=1.0, temperature=1e9, noise=0.1)
    states = 0.2 * some_states(2)  # where actions lie within the data's range
    plain = policies.return_conditioned(plain_run)
    plain.reset(2)
    policy = policies.planning(plain_run, plan=config)
    policy.reset(2)
    np.testing.assert_allclose(policy.act(states), plain.act(states), atol=1e-6)


def test_the_first_candidate_is_what_the_plain_policy_would_do(plain_run, monkeypatch) -> None:
    """At the states that it imagines, each from the one before."""
    seen = []
    imagine = planning.imagine
    monkeypatch.setattr(planning, "imagine", lambda *a, **k: seen.append(a) or imagine(*a, **k))
    policy = policies.planning(plain_run, plan=PlanConfig(candidates=4))
    states = some_states(2)
    policy.reset(2)
    policy.act(states)
    tried = seen[-1][2].reshape(2, 4, 3, 2)  # (n, N, H, 2)
    twin = policies.return_conditioned(plain_run)
    twin.reset(2)
    now = states
    for step in range(3):
        action = twin.act(now)
        np.testing.assert_allclose(tried[:, 0, step], action, atol=1e-6)
        now = imagine(plain_run, states[:, None], tried[:, 0, : step + 1]).states[:, -1]
        twin.observe(np.zeros(2), np.zeros(2, bool))
    known = plain_run.normalizer.statistics["actions"]
    assert (tried[:, 1:] <= known.high).all()
    assert (tried[:, 1:] >= known.low).all()


def test_noise_is_correlated_and_comes_in_pairs() -> None:
    noise = correlated_noise((2, 4001, 5, 3), 0.6, seed=4)
    assert not noise[:, 0].any()
    assert np.array_equal(noise[:, 1:2001], -noise[:, 2001:])
    half = noise[:, 1:2001].transpose(2, 0, 1, 3).reshape(5, -1)
    np.testing.assert_allclose(half.std(axis=1), 1, atol=0.03)
    together = np.corrcoef(half)
    np.testing.assert_allclose(np.diag(together, 1), 0.6, atol=0.03)
    np.testing.assert_allclose(np.diag(together, 2), 0.36, atol=0.03)
    assert np.array_equal(noise, correlated_noise((2, 4001, 5, 3), 0.6, seed=4))
    assert not np.array_equal(noise, correlated_noise((2, 4001, 5, 3), 0.6, seed=5))
    for few in (1, 2, 3, 4):
        found = correlated_noise((1, few, 2, 3), 0.0, seed=0)
        assert found.shape == (1, few, 2, 3)
        assert not found.sum(axis=1).any()


def test_weights_are_a_softmax_over_the_best() -> None:
    scores = np.array([[0.0, 1.0, 2.0, 3.0], [5.0, 5.0, 5.0, 0.0]])
    weights = weigh(scores, best=0.5, temperature=2.0)
    share = 1 / (1 + np.exp(-0.5))
    np.testing.assert_allclose(weights[0], [0, 0, 1 - share, share])
    np.testing.assert_allclose(weights[1], [1 / 3, 1 / 3, 1 / 3, 0])  # ties stay together
    np.testing.assert_allclose(weigh(scores, 0.01, 2.0)[0], [0, 0, 0, 1])
    np.testing.assert_allclose(weigh(scores, 1.0, 1e9)[0], np.full(4, 0.25))


def futures(run: Run, rows: int, ahead: int = 3, seed: int = 0) -> Imagined:
    rng = np.random.default_rng(seed)
    return Imagined(
        rng.normal(size=(rows, ahead, 4)).astype(np.float32),
        rng.uniform(size=(rows, ahead)).astype(np.float32),
        rng.uniform(size=(rows, ahead)).astype(np.float32),
    )


def test_scores_are_what_is_earned_on_the_way_and_after_it(pushed) -> None:
    steps, imagined = np.array([0, 11]), futures(pushed, 10)
    std = float(pushed.normalizer.statistics["returns"].std)
    unit = std * (LENGTH - steps)[:, None]
    left = (LENGTH - steps - 3)[:, None]  # an average over the steps that then remain
    tail = reachable_returns(pushed, imagined.states[:, -1]).reshape(2, 5) * left / unit
    rewards = imagined.rewards.sum(axis=1).reshape(2, 5) / unit
    doubt = imagined.doubt.mean(axis=1).reshape(2, 5)
    for config, expected in [
        (PlanConfig(), rewards + tail),
        (PlanConfig(tail=False), rewards),
        (PlanConfig(rewards=False), tail),
        (PlanConfig(rewards=False, tail=False, disagreement=2.0), -2 * doubt),
        (PlanConfig(disagreement=0.5), rewards + tail - 0.5 * doubt),
    ]:
        found = Score(pushed, config)(imagined, steps)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_after_the_last_step_of_the_horizon_nothing_is_left(pushed) -> None:
    imagined, steps = futures(pushed, 4), np.array([LENGTH - 3, LENGTH + 50])
    scores = Score(pushed, PlanConfig(rewards=False))(imagined, steps)
    assert np.array_equal(scores, np.zeros((2, 2)))


def test_without_an_expectile_the_tail_is_the_expected_return(plain_run) -> None:
    imagined, steps = futures(plain_run, 4), np.array([5])
    std = float(plain_run.normalizer.statistics["returns"].std)
    expected = expected_returns(plain_run, imagined.states[:, -1]) * (20 - 8) / (std * (20 - 5))
    found = Score(plain_run, PlanConfig())(replace(imagined, rewards=None), steps)
    np.testing.assert_allclose(found[0], expected, rtol=1e-4)


@pytest.mark.parametrize("kind", ["sum", "average"])
@pytest.mark.parametrize("discount", [1.0, 0.9])
def test_returns_are_sums_of_rewards_again(tiny, tmp_path, kind: str, discount: float) -> None:
    returns = ReturnsConfig(kind=kind, discount=discount)
    data = random_pushes(20)
    config = replace(tiny, steps=1, returns=returns)
    run = train(data, config, tmp_path / "run", silent=True)
    episode = add_returns(data, returns).episode(3)
    sums = return_targets.sum_to_come(run, episode["returns"], np.arange(LENGTH))
    rewards = episode["rewards"].astype(np.float64)
    for step in range(LENGTH):
        left = rewards[step:]
        expected = (left * discount ** np.arange(len(left))).sum()
        assert sums[step] == pytest.approx(expected, rel=1e-4)


def test_discounts_count_in_scores(tiny, tmp_path) -> None:
    config = replace(tiny, steps=1, modalities=ALL, returns=ReturnsConfig("sum", 0.5))
    run = train(random_pushes(20), config, tmp_path / "run", silent=True)
    imagined, steps = futures(run, 2), np.array([4])
    std = float(run.normalizer.statistics["returns"].std)
    earned = imagined.rewards @ np.array([1, 0.5, 0.25])
    tail = 0.125 * expected_returns(run, imagined.states[:, -1])
    found = Score(run, PlanConfig())(imagined, steps)[0]
    np.testing.assert_allclose(found, (earned + tail) / std, rtol=1e-4)


def test_a_batch_is_many_single_ones_and_rows_may_drop_out(plain_run) -> None:
    config = PlanConfig(candidates=8, best=1.0)  # rounding may change who is among the best
    states = np.stack([some_states(3, seed) for seed in range(4)])
    whole = policies.planning(plain_run, plan=config)
    whole.reset(3)
    parts = [policies.planning(plain_run, plan=config) for _ in range(3)]
    for policy in parts:
        policy.reset(1)
    for step, state in enumerate(states):
        rows = [0, 1, 2] if step < 2 else [0, 2]
        together = whole.act(state[rows])
        alone = [parts[row].act(state[[row]])[0] for row in rows]
        np.testing.assert_allclose(together, alone, atol=1e-4)
        whole.observe(np.full(len(rows), 0.5), np.zeros(len(rows), bool))
        for row in rows:
            parts[row].observe(np.array([0.5]), np.array([False]))
        if step == 1:
            whole.keep(np.array([0, 2]))


def test_the_history_holds_the_actions_that_were_taken(plain_run) -> None:
    plain = policies.behavior_cloning(plain_run, history=2)
    policy = policies.planning(plain_run, plain, PlanConfig(candidates=8, noise=2.0))
    policy.reset(2)
    taken = []
    for step in range(2):
        taken.append(policy.act(some_states(2, step)))
        policy.observe(np.zeros(2), np.zeros(2, bool))
    np.testing.assert_array_equal(plain._past_actions[:, :2], np.stack(taken, axis=1))


def test_a_run_that_predicts_no_variance_is_varied_as_the_data_are(tiny, tmp_path) -> None:
    config = replace(tiny, steps=1, model=replace(tiny.model, predict_variance=False))
    run = train(random_pushes(20), config, tmp_path / "run", silent=True)
    policy = policies.planning(run, plan=PlanConfig(candidates=4, noise=0.5))
    action = policy.act(some_states(1))
    expected = 0.5 * run.normalizer.statistics["actions"].std
    np.testing.assert_allclose(policy._deviations(action)[0], expected, rtol=1e-6)


def test_what_cannot_be_planned_with(plain_run, pushed, tiny, tmp_path, point_mass) -> None:
    with pytest.raises(ConfigError, match="acts in two stages or tracks states"):
        policies.planning(plain_run, policies.two_stage(plain_run))
    with pytest.raises(ConfigError, match="must be of the same run"):
        policies.planning(pushed, policies.behavior_cloning(plain_run))
    with pytest.raises(ConfigError, match="nothing to score candidates by: the run models states"):
        policies.planning(plain_run, plan=PlanConfig(tail=False))
    data = point_mass.select(["states", "actions"])
    silent = train(data, tiny, tmp_path / "silent", silent=True)
    with pytest.raises(ConfigError, match="plan.tail True"):
        policies.planning(silent)
    surest = policies.planning(silent, plan=PlanConfig(disagreement=1.0, candidates=4))
    assert surest.act(some_states(1)).shape == (1, 2)
    short = replace(tiny, steps=1, model=replace(tiny.model, segment_length=1))
    single = train(point_mass, short, tmp_path / "single", silent=True)
    with pytest.raises(ConfigError, match="segments have one step"):
        policies.planning(single)


def test_classes_cannot_be_varied(tiny, tmp_path) -> None:
    data = random_pushes(20)
    arrays = {name: data.arrays[name] for name in ("states", "rewards")}
    arrays["actions"] = (data.arrays["actions"][:, 0] > 0).astype(np.int64)
    chosen = TrajectoryDataset.from_arrays(arrays, np.arange(21) * LENGTH)
    run = train(chosen, replace(tiny, steps=1), tmp_path / "run", silent=True)
    with pytest.raises(ConfigError, match="'actions' are classes"):
        policies.planning(run)


def test_faults_of_settings_are_told_together() -> None:
    with pytest.raises(ConfigError) as told:
        PlanConfig(candidates=0, temperature=0.0, correlation=1.0, best=0.0, per_pass=0)
    for name in ("candidates", "temperature", "correlation", "best", "per_pass"):
        assert f"plan.{name} must be" in str(told.value)


def test_the_speed_is_measured(plain_run) -> None:
    policy = policies.planning(plain_run, plan=PlanConfig(candidates=4))
    assert isinstance(policy, PlanningPolicy)
    assert planning.actions_per_second(policy, 3, seconds=0.01) > 0
