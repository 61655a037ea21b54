"""Gaps in states are walked into from both sides, by the questions that training asked."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mtm.core.config import DeviceConfig, ModelConfig, OptimizerConfig, TrainConfig
from mtm.data.formats import builtin
from mtm.data.trajectories import TrajectoryDataset
from mtm.inference import queries
from mtm.inference.engine import Arrays, ask_with_certainty
from mtm.inference.inputs import Given
from mtm.inference.smoothing import UNASKED, smooth
from mtm.inference.windowing import fill, no_certainty
from mtm.masks import NAMED_MASKS
from mtm.runs.run import Run
from mtm.training.train import train

CONFIG = TrainConfig(
    steps=400,
    batch_size=32,
    validate_every=400,
    checkpoint_every=400,
    model=ModelConfig(width=32, heads=2, encoder_layers=1),
    optimizer=OptimizerConfig(warmup_steps=10),
)

ONE_THREAD = DeviceConfig(threads=1)


@pytest.fixture(scope="module")
def run(_one_thread, tmp_path_factory) -> Run:
    """A point mass's model, trained for seconds."""
    data = builtin.point_mass(60, 20)
    out = tmp_path_factory.mktemp("s") / "r"
    return train(data, CONFIG, out, device=ONE_THREAD, silent=True)


@pytest.fixture
def episodes() -> dict[str, np.ndarray]:
    """Four episodes that the run has not seen."""
    data = builtin.point_mass(episodes=4, length=20, seed=7)
    return {n: data.arrays[n].reshape(4, 20, -1) for n in ("states", "actions")}


def hidden(values: np.ndarray, *steps: int) -> np.ndarray:
    gappy = values.copy()
    gappy[:, list(steps)] = np.nan
    return gappy


def with_mask(run: Run, mask: str) -> Run:
    """The same weights, said to be trained with another mask."""
    train_config = replace(run.description.train, mask=mask)
    return replace(run, description=replace(run.description, train=train_config))


def error(run: Run, found: np.ndarray, truth: np.ndarray, *steps: int) -> float:
    units = run.normalizer.statistics["states"].std
    return float((((found - truth) / units)[:, list(steps)] ** 2).mean())


def test_it_errs_less_than_showing_all_that_is_known(run, episodes) -> None:
    gap = (5, 6, 7, 8, 9)
    given = {**episodes, "states": hidden(episodes["states"], *gap)}
    errors = [
        error(r, queries.predict(r, given, "states")["states"], episodes["states"], *gap)
        for r in (run, with_mask(run, "random-autoregressive"))
    ]
    assert errors[0] < 0.75 * errors[1]


def test_the_future_is_forward_dynamics(run, episodes) -> None:
    states, actions = episodes["states"], episodes["actions"]
    given = {"states": hidden(states, *range(8, 20)), "actions": actions}
    ahead = queries.predict(run, given, "states")["states"][:, 8:]
    expected = queries.forward_dynamics(run, states[:, :8], actions[:, :19])
    np.testing.assert_allclose(ahead, expected, rtol=1e-4, atol=1e-5)


def test_a_gap_of_one_step_is_the_mean_of_both_sides_by_how_sure_they_are(run, episodes) -> None:
    step, T = 9, run.segment_length
    given = {**episodes, "states": hidden(episodes["states"], step)}
    found = queries.predict(run, given, "states")["states"][:, step]
    answers, variances = [], []
    for name, start, moment in (("fd", step - T + 1, T - 2), ("bd", step, 0)):
        question = NAMED_MASKS[name].question(run.modalities, T, moment)
        window = {n: v[:, start : start + T] for n, v in episodes.items()}
        shown, wanted = (
            np.repeat(part[None], 4, axis=0) for part in (question.visible, question.wanted)
        )
        answer, deviation = ask_with_certainty(run, window, shown, ["states"], wanted)
        answers.append(answer["states"][:, step - start])
        variances.append(deviation["states"][:, step - start] ** 2)
    weights = 1 / variances[0], 1 / (UNASKED * variances[1])
    expected = (weights[0] * answers[0] + weights[1] * answers[1]) / sum(weights)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_doubt_grows_on_the_way_into_a_gap(run, episodes) -> None:
    states = hidden(episodes["states"], *range(12, 20))
    known = Given.of(run, {**episodes, "states": states}, {})
    stated = no_certainty(run, ["states"], states.shape[:2])
    fill(run, known, ["states"], stated=stated)
    doubt = stated["states"].mean(axis=(0, 2))
    assert np.isnan(doubt[:12]).all()
    assert (np.diff(doubt[12:]) > 0).all()


@pytest.mark.parametrize("known", [["actions"], []])
def test_what_stands_in_a_gap_does_not_matter(run, episodes, known) -> None:
    present = np.ones((4, 20), bool)
    present[:, 4:9] = present[:, 18:] = present[:, :2] = False
    found = []
    for value in (0.0, 1e6, np.nan):
        states = np.where(present[..., None], episodes["states"], np.float32(value))
        given = {"states": states} | {name: episodes[name] for name in known}
        found.append(queries.predict(run, given, "states", present={"states": present})["states"])
        assert np.isfinite(found[-1]).all()
        assert np.array_equal(found[-1][present], episodes["states"][present])
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])


def test_returns_count_where_no_action_tells_where_it_goes(run, episodes) -> None:
    states = hidden(episodes["states"], *range(4, 20))
    ways = {}
    for name, given in (("free", {}), ("told", {"actions": episodes["actions"]})):
        low, high = (
            queries.predict(
                run, {"states": states, "returns": np.full((4, 20), r), **given}, "states"
            )["states"]
            for r in (0.1, 0.9)
        )
        ways[name] = np.array_equal(low, high)
    assert ways == {"free": False, "told": True}


def test_actions_between_known_states_are_inverse_dynamics(run, episodes) -> None:
    """Neither other actions nor returns change them; the last one leads to no known state."""
    alone = queries.inverse_dynamics(run, episodes["states"])
    given = {
        "states": episodes["states"],
        "actions": hidden(episodes["actions"], *range(3, 20)),
        "returns": np.full((4, 20), 0.5),
    }
    found = queries.predict(run, given, "actions")["actions"]
    np.testing.assert_allclose(found[:, 3:19], alone[:, 3:19], rtol=1e-4, atol=1e-5)
    assert not np.allclose(found[:, 19], alone[:, 19], rtol=1e-4)


@pytest.mark.parametrize("missing", [(0,), (2,), (0, 1), (1, 2)])
def test_trajectories_shorter_than_a_segment(run, episodes, missing) -> None:
    given = {n: v[:, :3] for n, v in episodes.items()}
    given["states"] = hidden(given["states"], *missing)
    assert np.isfinite(queries.predict(run, given, "states")["states"]).all()


def asked_of(run: Run, episodes: Arrays, gap: slice) -> dict:
    visible = np.zeros((4, 20, len(run.modalities)), bool)
    for name in episodes:
        visible[:, :, run.modalities.place(name)] = True
    visible[:, gap, run.modalities.place("states")] = False
    return smooth(run, episodes, visible, ["states"], ~visible, ask_with_certainty)


def test_it_is_for_runs_that_know_forward_dynamics_and_their_doubt(run, episodes) -> None:
    assert asked_of(run, episodes, slice(4, 6))["states"].found[:, 4:6].all()
    assert asked_of(with_mask(run, "balanced:0.5+random:0.5"), episodes, slice(4, 6))
    assert asked_of(with_mask(run, "random"), episodes, slice(4, 6)) == {}
    assert asked_of(with_mask(run, "custom"), episodes, slice(4, 6)) == {}
    sizes = replace(run.description.train.model, predict_variance=False)
    plain = replace(run.description.train, model=sizes)
    unsure = replace(run, description=replace(run.description, train=plain))
    assert asked_of(unsure, episodes, slice(4, 6)) == {}


def test_what_training_asked_counts_more(run, episodes) -> None:
    """A run that was trained on backward dynamics too trusts it as it trusts the other."""
    doubted = asked_of(run, episodes, slice(4, 6))["states"]
    trusted = asked_of(with_mask(run, "fd+bd"), episodes, slice(4, 6))["states"]
    assert (trusted.deviations < doubted.deviations)[:, 4:6].all()
    first = asked_of(run, episodes, slice(0, 2))["states"]  # nothing comes before
    both = asked_of(with_mask(run, "fd+bd"), episodes, slice(0, 2))["states"]
    np.testing.assert_allclose(first.values, both.values, rtol=1e-5)
    np.testing.assert_allclose(first.deviations, np.sqrt(UNASKED) * both.deviations, rtol=1e-5)


def test_what_training_cannot_have_asked_has_no_say(run, episodes) -> None:
    """A specialist of forward dynamics does not walk backwards, and nothing leads to the start."""
    alone = asked_of(with_mask(run, "fd"), episodes, slice(0, 2))["states"]
    assert not alone.found.any()
    assert asked_of(with_mask(run, "fd+random"), episodes, slice(0, 2))["states"].found.any()


def test_several_modalities_of_states_walk_together(tmp_path, episodes) -> None:
    whole = builtin.point_mass(60, 20)
    offsets = np.append(whole.starts, whole.ends[-1:])
    arrays = {
        "place": whole.arrays["states"][:, :2],
        "speed": whole.arrays["states"][:, 2:],
        "actions": whole.arrays["actions"],
    }
    roles = {"place": "state", "speed": "state", "actions": "action"}
    modalities = [replace(m, role=roles[m.name]) for m in _modalities(arrays, offsets)]
    data = TrajectoryDataset.from_arrays(arrays, offsets, modalities=modalities)
    settings = replace(CONFIG, steps=60)
    run = train(data, settings, tmp_path / "r", device=ONE_THREAD, silent=True)
    given = {
        "place": hidden(episodes["states"][:, :, :2], 5, 6, 7),
        "speed": hidden(episodes["states"][:, :, 2:], 6),
        "actions": episodes["actions"],
    }
    found = queries.predict(run, given, ["place", "speed"])
    assert all(np.isfinite(values).all() for values in found.values())
    assert np.array_equal(found["speed"][:, 5], episodes["states"][:, 5, 2:])


def _modalities(arrays: Arrays, offsets: np.ndarray) -> tuple:
    return tuple(TrajectoryDataset.from_arrays(arrays, offsets).modalities)
