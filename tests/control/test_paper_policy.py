"""Acting as the original code does: what is shown, token by token."""

from __future__ import annotations

import numpy as np
import pytest

from mtm.control import policies
from mtm.control.paper_policy import PaperPolicy, paper_target
from mtm.core.config import preset
from mtm.core.errors import ConfigError, DataError
from mtm.inference.engine import ask
from mtm.runs.run import Run
from mtm.training.train import train

T = 4


@pytest.fixture(scope="module")
def run(tmp_path_factory, point_mass) -> Run:
    return train(point_mass, preset("tiny"), tmp_path_factory.mktemp("p") / "run", silent=True)


def states_of(rows: int, steps: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(steps, rows, 4)).astype(np.float32)


def drive(policy: PaperPolicy, states: np.ndarray) -> np.ndarray:
    policy.reset(states.shape[1])
    actions = []
    for state in states:
        actions.append(policy.act(state))
        policy.observe(np.ones(len(state)), np.zeros(len(state), bool))
    return np.stack(actions)


def picture(text: str) -> np.ndarray:
    """(1, T, M) of lines of states, returns and actions; `#` is shown."""
    rows = [line.split() for line in text.strip().splitlines()]
    assert [row[0] for row in rows] == ["states", "returns", "actions"]
    return np.array([[cell == "#" for cell in row[1]] for row in rows]).T[None]


def asked(run: Run, window: dict[str, np.ndarray], text: str, now: int) -> np.ndarray:
    return ask(run, window, picture(text), ["actions"])["actions"][0, now]


def window_of(states: np.ndarray, actions: np.ndarray, target: float) -> dict[str, np.ndarray]:
    """States and actions from the first position on; the target everywhere."""
    window = {
        "states": np.zeros((1, T, 4), np.float32),
        "actions": np.zeros((1, T, 2), np.float32),
        "returns": np.full((1, T), target, np.float32),
    }
    window["states"][0, : len(states)] = states
    window["actions"][0, : len(actions)] = actions
    return window


def test_returns_are_asked_for_at_all_steps_and_the_past_is_shown(run) -> None:
    states = states_of(1, 6)
    policy = policies.as_published(run, "rcbc", "fraction:0.9")
    actions = drive(policy, states)
    target = policy.target
    assert target is not None
    first = window_of(states[:1, 0], actions[:0, 0], target)
    found = asked(run, first, "states #...\n returns ####\n actions ....", now=0)
    np.testing.assert_allclose(actions[0, 0], found, rtol=1e-4, atol=1e-5)
    third = window_of(states[:3, 0], actions[:2, 0], target)
    found = asked(run, third, "states ###.\n returns ####\n actions ##..", now=2)
    np.testing.assert_allclose(actions[2, 0], found, rtol=1e-4, atol=1e-5)
    last = window_of(states[2:6, 0], actions[2:5, 0], target)
    found = asked(run, last, "states ####\n returns ####\n actions ###.", now=3)
    np.testing.assert_allclose(actions[5, 0], found, rtol=1e-4, atol=1e-5)


def test_cloning_shows_the_current_state_only(run) -> None:
    states = states_of(1, 5)
    actions = drive(policies.as_published(run, "bc"), states)
    for now in range(5):
        window = window_of(states[now], states[:0, 0, :2], 0.0)
        found = asked(run, window, "states #...\n returns ....\n actions ....", now=0)
        np.testing.assert_allclose(actions[now, 0], found, rtol=1e-4, atol=1e-5)


def test_two_stages_show_what_was_imagined_with_its_returns(run) -> None:
    states = states_of(1, 3)
    policy = policies.as_published(run, "two_stage")
    actions = drive(policy, states)
    assert policy.target is not None
    for now in range(3):
        window = window_of(states[now], actions[:0, 0], policy.target)
        shown = picture("states #...\n returns #...\n actions ....")
        imagined = ask(run, window, shown, ["states", "returns"])
        for name in ("states", "returns"):
            window[name][:, 1:] = imagined[name][:, 1:]
        found = asked(run, window, "states ####\n returns ####\n actions ....", now=0)
        np.testing.assert_allclose(actions[now, 0], found, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("task", ["bc", "rcbc", "two_stage"])
def test_rows_are_episodes_of_their_own(run, task) -> None:
    states = states_of(3, 6)
    policy = policies.as_published(run, task)
    alone = drive(policy, states[:, 1:2])
    policy.reset(3)
    for step, state in enumerate(states[:2]):
        together = policy.act(state)
        np.testing.assert_allclose(together[1], alone[step, 0], rtol=1e-3, atol=1e-5)
        policy.observe(np.zeros(3), np.array([True, False, False]))
    first = policy.act(states[2])[0]
    policy.observe(np.zeros(3), np.zeros(3, bool))
    policy.keep(np.array([1]))
    for step in range(3, 6):
        np.testing.assert_allclose(
            policy.act(states[step, 1:2])[0], alone[step, 0], rtol=1e-3, atol=1e-5
        )
        policy.observe(np.zeros(1), np.zeros(1, bool))
    policy.reset(1)  # a row that was done has begun anew
    np.testing.assert_allclose(policy.act(states[2, :1])[0], first, rtol=1e-3, atol=1e-5)


def test_targets_lie_in_the_range_of_all_returns(run) -> None:
    known = run.normalizer.statistics["returns"]
    low, high = float(known.low), float(known.high)
    assert paper_target(run) == pytest.approx(high)
    assert paper_target(run, "fraction:0") == pytest.approx(low)
    assert paper_target(run, "fraction:1.1") == pytest.approx(low + 1.1 * (high - low))
    assert paper_target(run, "return:15") == pytest.approx(15 / 20)  # an average over the horizon
    with pytest.raises(ConfigError, match="cannot understand the target"):
        paper_target(run, "much")


def test_what_makes_no_sense(run) -> None:
    with pytest.raises(ConfigError, match="cloning asks for no return"):
        PaperPolicy(run, "bc", 0.5)
    with pytest.raises(ConfigError, match="cloning asks for no return"):
        PaperPolicy(run, "rcbc")
    policy = policies.as_published(run, "bc")
    policy.reset(2)
    with pytest.raises(DataError, match=r"2 states of shape \(4,\) are expected"):
        policy.act(np.zeros((3, 4), np.float32))
