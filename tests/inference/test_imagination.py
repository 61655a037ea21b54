"""Imagination is forward dynamics, in as many passes as asked for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from mtm.core.config import preset
from mtm.inference import engine
from mtm.inference.engine import ask
from mtm.inference.forward import tensors
from mtm.inference.imagination import imagine
from mtm.runs.run import Run
from mtm.training.train import train

ALL = ("states", "returns", "actions", "rewards")
STATES, ACTIONS, REWARDS = 0, 2, 3


@pytest.fixture(scope="module")
def run(tmp_path_factory, point_mass) -> Run:
    config = replace(preset("tiny"), modalities=ALL)
    return train(point_mass, config, tmp_path_factory.mktemp("i") / "run", silent=True)


def some(rows: int, past: int, ahead: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    states = rng.normal(size=(rows, past, 4)).astype(np.float32)
    actions = rng.uniform(-1, 1, size=(rows, past - 1 + ahead, 2)).astype(np.float32)
    return states, actions


def asked(run: Run, states: np.ndarray, actions: np.ndarray) -> dict[str, np.ndarray]:
    """What the model says of a segment that shows these states and these actions first."""
    rows = len(states)
    window = {"states": np.zeros((rows, 4, 4), "f4"), "actions": np.zeros((rows, 4, 2), "f4")}
    window["states"][:, : states.shape[1]] = states
    window["actions"][:, : actions.shape[1]] = actions
    visible = np.zeros((rows, 4, 4), bool)
    visible[:, : states.shape[1], STATES] = True
    visible[:, : actions.shape[1], ACTIONS] = True
    return ask(run, window, visible, ["states", "rewards"])


def test_in_one_pass_the_actions_alone_tell_what_follows(run) -> None:
    states, actions = some(5, 1, 3)
    found, expected = imagine(run, states, actions, per_pass=None), asked(run, states, actions)
    np.testing.assert_allclose(found.states, expected["states"][:, 1:], atol=1e-5)
    np.testing.assert_allclose(found.rewards, expected["rewards"][:, :3], atol=1e-5)


@pytest.mark.parametrize("past", [1, 2, 6])
def test_chained_each_state_follows_from_the_one_before(run, past: int) -> None:
    """Also beyond a segment, and after a history that is longer than one."""
    states, actions = some(5, past, 7)
    found = imagine(run, states, actions)
    assert found.states.shape == (5, 7, 4)
    known = states
    for step in range(7):
        shown = known[:, -3:]
        first = known.shape[1] - shown.shape[1]
        answer = asked(run, shown, actions[:, first : known.shape[1]])
        here = shown.shape[1]
        np.testing.assert_allclose(
            found.rewards[:, step], answer["rewards"][:, here - 1], atol=1e-4
        )
        known = np.concatenate([known, answer["states"][:, [here]]], axis=1)
        np.testing.assert_allclose(found.states[:, step], known[:, -1], atol=1e-4)


def test_two_states_in_a_pass(run) -> None:
    states, actions = some(3, 1, 3)
    found = imagine(run, states, actions, per_pass=2)
    first = asked(run, states, actions[:, :2])
    np.testing.assert_allclose(found.states[:, :2], first["states"][:, 1:3], atol=1e-5)
    known = np.concatenate([states, found.states[:, :2]], axis=1)
    second = asked(run, known, actions)
    np.testing.assert_allclose(found.states[:, 2], second["states"][:, 3], atol=1e-5)


def test_a_batch_may_be_imagined_in_parts(run, monkeypatch) -> None:
    states, actions = some(7, 1, 5)
    whole = imagine(run, states, actions)
    monkeypatch.setattr(engine, "LARGEST_BATCH", 3)
    parts = imagine(run, states, actions)
    for name in ("states", "doubt", "rewards"):
        np.testing.assert_allclose(getattr(parts, name), getattr(whole, name), atol=1e-4)


def test_doubt_is_the_predicted_variance(run, point_mass, tiny, tmp_path) -> None:
    states, actions = some(4, 1, 1)
    found = imagine(run, states, actions)
    window = {"states": np.zeros((4, 4, 4), "f4"), "actions": np.zeros((4, 4, 2), "f4")}
    window["states"][:, 0], window["actions"][:, 0] = states[:, 0], actions[:, 0]
    visible = np.zeros((4, 4, 4), bool)
    visible[:, 0, [STATES, ACTIONS]] = True
    inputs = tensors(run, window, visible.shape[:2])
    with torch.no_grad():
        predicted = run.model(inputs, torch.from_numpy(visible)).log_variances["states"][:, 1]
    expected = predicted.exp().mean(dim=1).numpy()
    np.testing.assert_allclose(found.doubt[:, 0], expected, rtol=1e-4)
    assert found.doubt.std() > 0

    config = replace(tiny, steps=1, model=replace(tiny.model, predict_variance=False))
    silent = train(point_mass, config, tmp_path / "run", silent=True)
    unsure = imagine(silent, states, actions)
    assert not unsure.doubt.any()
    assert unsure.rewards is None
