"""Acting: policies differ by what they show, and a batch is many single ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mtm.control import policies, return_targets
from mtm.control.masked_policy import act_together
from mtm.control.policies import MaskedPolicy, Way
from mtm.core.config import ReturnsConfig
from mtm.core.errors import ConfigError, DataError
from mtm.data.returns import add_returns
from mtm.inference import engine, queries
from mtm.inference.engine import ask
from mtm.runs.run import Run
from mtm.training.train import train


@pytest.fixture(scope="module")
def run(tmp_path_factory, point_mass) -> Run:
    from mtm.core.config import preset

    return train(point_mass, preset("tiny"), tmp_path_factory.mktemp("p") / "run", silent=True)


def drive(policy, states: np.ndarray, rewards: np.ndarray | None = None) -> np.ndarray:
    """Feed (S, n, 4) states; returns the (S, n, 2) actions."""
    actions = []
    for step, state in enumerate(states):
        actions.append(policy.act(state))
        gained = np.zeros(len(state)) if rewards is None else rewards[step]
        policy.observe(gained, np.zeros(len(state), bool))
    return np.stack(actions)


def some_states(steps: int, rows: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(steps, rows, 4)).astype(np.float32)


def test_cloning_shows_the_last_steps_and_its_own_actions(run) -> None:
    states = some_states(7, 1)
    policy = policies.behavior_cloning(run, history=2)
    actions = drive(policy, states)
    for now in (0, 1, 2, 6):
        first = max(now - 2, 0)
        expected = queries.behavior_cloning(
            run, states[first : now + 1, 0], actions[first:now, 0], history=2
        )
        np.testing.assert_allclose(actions[now, 0], expected, rtol=1e-4, atol=1e-5)


def test_without_history_only_the_current_state_counts(run) -> None:
    states = some_states(5, 1)
    policy = policies.return_conditioned(run, "fraction:1.0")
    policy.reset(1)
    after = drive(policy, states)[-1]
    policy.reset(1)
    np.testing.assert_allclose(policy.act(states[-1]), after, rtol=1e-4, atol=1e-6)


def test_queries_and_policies_of_one_name_show_the_same(run) -> None:
    """With their defaults, whatever came before."""
    states = some_states(6, 1)
    target = policies.return_conditioned(run).ways[0].target
    acted = drive(policies.return_conditioned(run), states)
    cloned = drive(policies.behavior_cloning(run), states)
    for now in range(6):
        past = states[: now + 1, 0]
        asked = queries.return_conditioned(run, past, target)
        np.testing.assert_allclose(acted[now, 0], asked, rtol=1e-4, atol=1e-5)
        asked = queries.behavior_cloning(run, past, cloned[:now, 0] if now else None)
        np.testing.assert_allclose(cloned[now, 0], asked, rtol=1e-4, atol=1e-5)


def test_return_conditioning_shows_the_target(run) -> None:
    states = some_states(6, 1)
    policy = policies.return_conditioned(run, "return:15", history=3)
    assert policy.ways[0].target == pytest.approx(15 / 20)  # an average over the horizon
    actions = drive(policy, states, rewards=np.full((6, 1), 0.7))  # less than was asked for
    # Its own actions are hidden.
    expected = queries.return_conditioned(run, states[2:6, 0], 15 / 20, history=3)
    np.testing.assert_allclose(actions[5, 0], expected, rtol=1e-4, atol=1e-5)


def test_guidance_goes_on_from_the_action_without_a_return(run) -> None:
    states = some_states(1, 3)[0]
    without = MaskedPolicy(run, [Way()])
    told = MaskedPolicy(run, [Way(target=20.0)])  # far from the data, so that it matters
    for policy in (without, told):
        policy.reset(3)
    u, c = without.act(states), told.act(states)
    assert np.abs(c - u).max() > 1e-4
    for weight in (0.0, 0.5, 2.0):
        guided = MaskedPolicy(run, [Way(target=20.0, guidance=weight)])
        guided.reset(3)
        np.testing.assert_allclose(guided.act(states), u + weight * (c - u), rtol=1e-4, atol=1e-6)
    mixed = policies.join([told, MaskedPolicy(run, [Way(target=20.0, guidance=2.0)]), without])
    mixed.reset(3)
    together = mixed.act(np.repeat(states[:1], 3, axis=0))
    np.testing.assert_allclose(together, [c[0], 2 * c[0] - u[0], u[0]], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("way", "message"),
    [
        (Way(guidance=2.0), "needs a target"),
        (Way(target=0.5, guidance=-1.0), "at least 0, got -1"),
        (Way(target=0.5, guidance=np.nan), "at least 0, got nan"),
    ],
)
def test_guidance_that_makes_no_sense(run, way, message) -> None:
    with pytest.raises(ConfigError, match=message):
        MaskedPolicy(run, [way])


def test_a_joined_policy_acts_as_its_parts(run) -> None:
    parts = [
        policies.behavior_cloning(run),
        policies.return_conditioned(run, "fraction:0.5"),
        policies.return_conditioned(run, "fraction:1.0"),
        policies.return_conditioned(run, "fraction:1.0", history=3),
        policies.two_stage(run, "fraction:1.0", future=2, history=1),
        policies.tracking(run, some_states(9, 1, seed=5)[:, 0]),
    ]
    states = some_states(8, 2)
    joined = policies.join(parts)
    joined.reset(12)
    together = drive(joined, np.tile(states, (1, 6, 1)))
    for i, part in enumerate(parts):
        part.reset(2)
        alone = drive(part, states)
        np.testing.assert_allclose(together[:, 2 * i : 2 * i + 2], alone, rtol=1e-3, atol=1e-4)


def test_policies_within_their_own_episodes_act_together(run) -> None:
    """Each at another step of its episode, and with another memory."""
    makers = [
        lambda: policies.behavior_cloning(run, history=2),
        lambda: policies.return_conditioned(run, "fraction:0.5", history=1),
        lambda: policies.two_stage(run),
    ]
    alone, joint = ([make() for make in makers] for _ in range(2))
    for rows, (one, other) in enumerate(zip(alone, joint, strict=True), start=1):
        for policy in (one, other):
            policy.reset(rows)
            drive(policy, some_states(rows, rows))
    for step in range(3):
        states = [some_states(1, rows, seed=step)[0] for rows in (1, 2, 3)]
        together = act_together(joint, states)
        for i, policy in enumerate(alone):
            np.testing.assert_allclose(together[i], policy.act(states[i]), rtol=1e-4, atol=1e-5)
            for p in (policy, joint[i]):
                p.observe(np.ones(i + 1), np.arange(i + 1) == 1)
    swapped = [states[1], states[0], states[2]]  # as many rows in all
    with pytest.raises(DataError, match="1 states of shape"):
        act_together(joint, swapped)


def test_a_batch_may_be_asked_in_parts(run, monkeypatch) -> None:
    """Also where a part wants nothing of a modality that another does: only two rows imagine."""
    joined = policies.join([policies.behavior_cloning(run), policies.two_stage(run)])
    states = some_states(3, 4)
    joined.reset(4)
    whole = drive(joined, states)
    monkeypatch.setattr(engine, "LARGEST_BATCH", 2)
    joined.reset(4)
    np.testing.assert_allclose(drive(joined, states), whole, rtol=1e-3, atol=1e-4)


def test_rows_go_on_alike_when_others_drop_out(run) -> None:
    states = some_states(8, 3)
    policy = policies.return_conditioned(run, "fraction:1.0", history=2)
    policy.reset(3)
    whole = drive(policy, states)
    policy.reset(3)
    drive(policy, states[:4])
    policy.keep(np.array([0, 2]))
    rest = drive(policy, states[4:, [0, 2]])
    np.testing.assert_allclose(rest, whole[4:, [0, 2]], rtol=1e-3, atol=1e-4)


def test_a_row_that_is_done_begins_anew(run) -> None:
    states = some_states(3, 2)
    policy = policies.behavior_cloning(run, history=3)
    policy.reset(2)
    drive(policy, states)
    policy.observe(np.zeros(2), np.array([True, False]))
    again = policy.act(states[0])[0]
    policy.reset(2)
    np.testing.assert_allclose(again, policy.act(states[0])[0], rtol=1e-4, atol=1e-5)


def test_two_stage_is_imagining_then_inverse_dynamics(run) -> None:
    state = some_states(1, 1)
    target = return_targets.resolve_target(run, "fraction:1.0")
    action = policies.two_stage(run, "fraction:1.0", future=2).act(state[0])[0]
    window = {"states": np.zeros((1, 4, 4), np.float32), "returns": np.full((1, 4), target, "f4")}
    window["states"][0, 0] = state[0, 0]
    visible = np.zeros((1, 4, 3), bool)
    visible[:, 0, :2] = True
    imagined = ask(run, window, visible, ["states"])["states"]
    window["states"][0, 1:3] = imagined[0, 1:3]
    visible[:] = False
    visible[:, :3, 0] = True
    expected = ask(run, window, visible, ["actions"])["actions"][0, 0]
    np.testing.assert_allclose(action, expected, rtol=1e-4, atol=1e-5)


def test_two_stage_looks_as_far_as_its_training_did(run, point_mass, tiny, tmp_path) -> None:
    assert [way.future for way in policies.two_stage(run).ways] == [2]
    assert [way.future for way in policies.two_stage(run, history=2).ways] == [1]
    config = replace(tiny, mask="random-autoregressive+id")
    taught = train(point_mass, config, tmp_path / "run", silent=True)
    assert [way.future for way in policies.two_stage(taught).ways] == [3]
    assert [way.future for way in policies.two_stage(taught, history=1).ways] == [2]


def test_tracking_looks_at_the_reference(run) -> None:
    reference = some_states(5, 1, seed=3)[:, 0]
    state = some_states(1, 1)[0]
    policy = policies.tracking(run, reference)
    action = policy.act(state)[0]
    path = np.stack([state[0], reference[1]])
    np.testing.assert_allclose(
        action, queries.inverse_dynamics(run, _padded(path, run))[0], rtol=1e-4, atol=1e-5
    )


def _padded(path: np.ndarray, run: Run) -> np.ndarray:
    """The policy's window has T steps; those after the future are hidden."""
    padded = np.full((4, 4), np.nan, np.float32)
    padded[: len(path)] = path
    return padded


def test_sums_of_returns_are_counted_down(point_mass, tiny, tmp_path) -> None:
    config = replace(tiny, returns=ReturnsConfig(kind="sum"))
    own = train(point_mass, config, tmp_path / "run", silent=True)
    policy = policies.return_conditioned(own, 12.0)
    policy.act(np.zeros((1, 4), np.float32))
    policy.observe(np.array([5.0]), np.array([False]))
    assert policy._asked_returns()[0].tolist() == [7.0] * 4
    policy.observe(np.array([1e6]), np.array([False]))
    lowest = own.normalizer.statistics["returns"].low
    assert policy._asked_returns()[0].tolist() == [lowest] * 4  # never beyond what the data know


def test_an_average_is_asked_for_all_along(run) -> None:
    policy = policies.return_conditioned(run, "fraction:0.6")
    for reward in (0.0, 5.0, -3.0):
        assert policy._asked_returns()[0].tolist() == [np.float32(policy.ways[0].target)] * 4
        policy.observe(np.array([reward]), np.array([False]))


@pytest.fixture(scope="module", params=["sum", "average"])
def discounted(request, tmp_path_factory, point_mass) -> Run:
    from mtm.core.config import preset

    returns = ReturnsConfig(kind=request.param, discount=0.9)
    config = replace(preset("tiny"), steps=2, returns=returns)
    return train(point_mass, config, tmp_path_factory.mktemp("d") / "run", silent=True)


def test_discounted_returns_are_counted_down_as_in_the_data(discounted, point_mass) -> None:
    """Whoever earns what an episode of the data did is asked for the returns of that episode."""
    data = add_returns(point_mass, discounted.description.train.returns)
    known = discounted.normalizer.statistics["returns"]
    episode = data.episode(7)
    policy = MaskedPolicy(discounted, [Way(target=float(episode["returns"][0]))])
    for asked, reward in zip(episode["returns"], episode["rewards"], strict=True):
        expected = np.clip(asked, known.low, known.high)
        np.testing.assert_allclose(policy._asked_returns()[0], expected, rtol=1e-4)
        policy.observe(np.array([reward]), np.array([False]))
    for _ in range(20_000):  # the worth of a reward falls below what a number can hold
        policy.observe(np.zeros(1), np.array([False]))
    assert np.isfinite(policy._asked_returns()).all()


def test_targets_of_discounted_returns(discounted) -> None:
    quantiles = return_targets.first_returns(discounted)
    assert return_targets.resolve_target(discounted, "fraction:1.0") == quantiles[-1]
    assert quantiles[0] < return_targets.resolve_target(discounted, "auto") <= quantiles[-1]
    with pytest.warns(UserWarning, match="asks for a discounted episode return of"):
        return_targets.resolve_target(discounted, "fraction:1.5")
    for spec in (5.0, "return:5", "score:100"):
        with pytest.raises(ConfigError, match=r"not discounted; .* 0\.9.* Say auto or fraction"):
            return_targets.resolve_target(discounted, spec)


def test_targets_in_every_unit(run) -> None:
    quantiles = return_targets.first_returns(run)
    assert return_targets.resolve_target(run, "fraction:1.0") == quantiles[-1]
    assert return_targets.resolve_target(run, "fraction:0") == quantiles[0]
    best = return_targets.episode_return(run, quantiles[-1])
    assert return_targets.resolve_target(run, best) == pytest.approx(quantiles[-1])
    assert return_targets.resolve_target(run, f"return:{best}") == pytest.approx(quantiles[-1])
    assert quantiles[0] < return_targets.resolve_target(run, "auto") <= quantiles[-1]


def test_a_target_beyond_the_data_warns_and_goes_on(run) -> None:
    with pytest.warns(UserWarning, match=r"asks for an episode return of 1,000.0; episodes of the"):
        assert return_targets.resolve_target(run, 1000.0) == pytest.approx(50)


@pytest.mark.parametrize("spec", ["automatic", "score:", "percent:4", "nan", "return:inf"])
def test_targets_that_cannot_be_understood(run, spec: str) -> None:
    with pytest.raises(ConfigError, match="cannot understand the target"):
        return_targets.resolve_target(run, spec)


def test_a_score_needs_a_reference(run) -> None:
    with pytest.raises(ConfigError, match="needs reference returns"):
        return_targets.resolve_target(run, "score:100")


def test_bad_policies(run, tiny, point_mass, tmp_path) -> None:
    with pytest.raises(ConfigError, match="history 2 .* future 2 must fit .* segment_length 4"):
        policies.two_stage(run, future=2, history=2)
    with pytest.raises(ConfigError, match="predicts at least one state, got 0"):
        policies.two_stage(run, future=0)
    with pytest.raises(ConfigError, match="3 environments cannot be shared out among 2"):
        MaskedPolicy(run, [Way(), Way()]).reset(3)
    with pytest.raises(DataError, match=r"1 states of shape \(4,\) are expected, got \(2, 4\)"):
        policies.behavior_cloning(run).act(np.zeros((2, 4)))
    data = point_mass.select(["states", "actions"])
    silent = train(data, tiny, tmp_path / "run", silent=True)
    with pytest.raises(ConfigError, match="trained without returns"):
        policies.return_conditioned(silent)
    assert policies.behavior_cloning(silent).act(np.zeros((1, 4))).shape == (1, 2)
    known = np.ones(point_mass.num_steps, bool)
    known[point_mass.starts] = False
    late = train(point_mass.with_present({"rewards": known}), tiny, tmp_path / "late", silent=True)
    with pytest.raises(ConfigError, match="no first step has a return"):
        policies.return_conditioned(late)


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        (np.zeros((5, 3)), r"has shape \(5, 3\)"),
        (np.zeros((0, 4)), "has no steps"),
        (np.full((5, 4), np.nan), r"has a gap \(NaN\)"),
        (np.zeros((2, 5, 4)), "a reference is one trajectory"),
    ],
)
def test_a_reference_that_cannot_be_followed(run, reference, message: str) -> None:
    with pytest.raises(DataError, match=message):
        policies.tracking(run, reference)
