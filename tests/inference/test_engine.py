"""The one call: a question is asked at the places that it fits, and the answers are averaged."""

from __future__ import annotations

import numpy as np
import pytest

import mtm
from mtm.inference import engine
from mtm.inference.engine import ask, ask_at_places
from mtm.training.train import train


@pytest.fixture(scope="module")
def run(tmp_path_factory, point_mass) -> mtm.Run:
    return train(point_mass, mtm.preset("tiny"), tmp_path_factory.mktemp("e") / "run", silent=True)


def question(run: mtm.Run, place: int, steps: int = 1):
    """States at `steps` steps from a place on, and the actions there wanted; (3, T, M) each."""
    states = np.random.default_rng(0).normal(size=(3, steps, 4)).astype(np.float32)
    T, M = run.segment_length, len(run.modalities)
    window = {"states": np.zeros((3, T, 4), np.float32)}
    window["states"][:, place : place + steps] = states
    visible, wanted = np.zeros((3, T, M), bool), np.zeros((3, T, M), bool)
    visible[:, place : place + steps, run.modalities.place("states")] = True
    wanted[:, place : place + steps, run.modalities.place("actions")] = True
    return window, visible, wanted


@pytest.mark.parametrize("steps", [1, 2, 4])
def test_the_answer_is_the_mean_over_the_places_that_fit(run, steps) -> None:
    places = range(run.segment_length - steps + 1)
    alone = [
        ask(run, w, v, ["actions"], a)["actions"][:, p : p + steps]
        for p in places
        for w, v, a in [question(run, p, steps)]
    ]
    for p in places:  # wherever it is put by who asks
        window, visible, wanted = question(run, p, steps)
        mean = ask_at_places(run, window, visible, ["actions"], wanted)["actions"]
        np.testing.assert_allclose(
            mean[:, p : p + steps], np.mean(alone, axis=0), rtol=1e-4, atol=1e-5
        )


def test_a_long_segment_is_asked_at_a_few_places_with_both_ends_among_them() -> None:
    used = np.zeros((2, 32), bool)
    used[0, 3:5] = used[1] = True
    rows, shifts = engine._placements(used)
    assert rows.tolist() == [0] * engine.MOST_PLACES + [1]
    assert shifts.tolist() == [-3, 7, 17, 27, 0]


def test_a_question_without_tokens_is_asked_too() -> None:
    rows, shifts = engine._placements(np.zeros((3, 4), bool))
    assert rows.tolist() == [0, 1, 2]
    assert shifts.tolist() == [0, 0, 0]


def test_classes_are_chosen_by_their_mean_probability(discrete_run) -> None:
    run, name = discrete_run
    T, M = run.segment_length, len(run.modalities)
    state = run.modalities.of_role("state")[0]
    visible, wanted = np.zeros((T, T, M), bool), np.zeros((T, T, M), bool)
    for place in range(T):
        visible[place, place, run.modalities.place(state.name)] = True
        wanted[place, place, run.modalities.place(name)] = True
    window = {state.name: np.full((T, T, *state.shape), 0.3, np.float32)}
    shares = ask(run, window, visible, [name], wanted, probabilities=True)[name]
    mean = np.mean([shares[p, p] for p in range(T)], axis=0)
    np.testing.assert_allclose(mean.sum(), 1.0, rtol=1e-5)
    answer = ask_at_places(run, window, visible, [name], wanted)[name]
    assert [answer[p, p] for p in range(T)] == [mean.argmax()] * T


@pytest.fixture(scope="module")
def discrete_run(tmp_path_factory) -> tuple[mtm.Run, str]:
    rng = np.random.default_rng(0)
    position = rng.normal(size=(600, 2)).astype(np.float32)
    push = (position[:, 0] > 0).astype(np.int64) + (position[:, 1] > 0.5)
    data = mtm.TrajectoryDataset.from_arrays(
        {"states": position, "actions": push, "rewards": np.ones(600, np.float32)},
        np.arange(0, 601, 20),
    )
    out = tmp_path_factory.mktemp("d") / "run"
    return train(data, mtm.preset("tiny"), out, silent=True), "actions"
