"""Questions to a trained model."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

import mtm
from mtm.core.config import ModelConfig, OptimizerConfig, TrainConfig
from mtm.core.errors import ConfigError, DataError
from mtm.data.formats import builtin
from mtm.data.trajectories import TrajectoryDataset
from mtm.inference import queries
from mtm.inference.engine import ask
from mtm.inference.windowing import _best_windows
from mtm.runs.run import Run
from mtm.training.train import train


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Run:
    """A point mass's model, trained for a few seconds."""
    config = TrainConfig(
        steps=60,
        batch_size=32,
        validate_every=60,
        checkpoint_every=60,
        model=ModelConfig(width=32, heads=2, encoder_layers=1),
        optimizer=OptimizerConfig(learning_rate=3e-3, warmup_steps=10),
    )
    return train(
        builtin.point_mass(60, 20), config, tmp_path_factory.mktemp("q") / "r", silent=True
    )


@pytest.fixture
def episodes(point_mass) -> dict[str, np.ndarray]:
    """Three episodes as a batch: states (3, 20, 4), actions (3, 20, 2)."""
    parts = [point_mass.episode(i) for i in range(3)]
    return {name: np.stack([p[name] for p in parts]) for name in ("states", "actions")}


def test_given_values_are_kept_and_gaps_are_filled(run, episodes) -> None:
    states = episodes["states"].copy()
    states[1, 4:7] = np.nan
    out = queries.predict(run, {"states": states, "actions": episodes["actions"]}, "states")
    known = ~np.isnan(states)
    assert np.array_equal(out["states"][known], states[known])
    assert np.isfinite(out["states"]).all()


@pytest.mark.parametrize("value", [1e24, -3e38])
def test_no_answer_is_better_than_one_that_is_no_number(run, episodes, value: float) -> None:
    """What is far outside of the data overflows; of the others, each is answered as before."""
    states = episodes["states"].copy()
    whole = queries.predict(run, {"states": states}, "actions")["actions"]
    assert np.isfinite(whole).all()
    states[1, 3, 2] = value
    message = (
        rf"'actions' is no number: 'states' holds {value:.3g}, which is .* deviations".replace(
            "+", r"\+"
        )
    )
    with pytest.raises(DataError, match=message):
        queries.predict(run, {"states": states}, "actions")
    with pytest.raises(DataError, match=message):
        queries.behavior_cloning(run, states[:, :4])


def test_weights_that_are_no_numbers_are_not_blamed_on_the_data(run, episodes) -> None:
    broken = copy.deepcopy(run)
    with torch.no_grad():
        next(broken.model.parameters()).fill_(np.nan)
    with pytest.raises(DataError, match="so the weights of the run may be no numbers"):
        queries.behavior_cloning(broken, episodes["states"])


def test_one_trajectory_is_a_batch_of_one(run, episodes) -> None:
    given = {"states": episodes["states"], "actions": episodes["actions"]}
    batch = queries.predict(run, given, ["returns"])["returns"]
    single = queries.predict(run, {k: v[2] for k, v in given.items()}, "returns")["returns"]
    assert single.shape == (20,)
    np.testing.assert_allclose(single, batch[2], rtol=1e-4, atol=1e-5)


def test_what_stands_in_a_gap_does_not_matter(run, episodes) -> None:
    known = np.ones((3, 20), bool)
    known[:, 5:9] = False
    answers = []
    for value in (0.0, 1e6):
        states = np.where(known[..., None], episodes["states"], np.float32(value))
        given = {"states": states, "actions": episodes["actions"]}
        answers.append(queries.predict(run, given, "states", present={"states": known})["states"])
    assert np.array_equal(*answers)


def test_a_query_equals_the_model_asked_by_hand(run, episodes) -> None:
    window = {k: v[:, :4] for k, v in episodes.items()}
    visible = np.zeros((3, 4, 3), bool)
    visible[:, :, 0] = True
    by_hand = ask(run, window, visible, ["actions"], specialised=False)["actions"]
    found = queries.inverse_dynamics(run, window["states"])
    np.testing.assert_allclose(found, by_hand, rtol=1e-4, atol=1e-5)


def windows(run: Run, known: list[int], missing: list[int]) -> tuple[list[int], list[bool]]:
    """Where the states of some steps are asked, when those of others are known."""
    visible = np.zeros((1, len(known), len(run.modalities)), bool)
    visible[0, :, run.modalities.place("states")] = known
    starts, both = _best_windows(run, visible, "states", np.array([[0, s] for s in missing]))
    return starts.tolist(), both.tolist()


def test_a_gap_is_asked_where_both_of_its_sides_are_seen(run) -> None:
    known = [1, 0, 0, 1, 0, 0, 0, 0, 1, 1]
    starts, both = windows(run, known, [1, 2])
    assert (starts, both) == ([0, 0], [True, True])
    starts, both = windows(run, known, [4, 7])
    assert both == [False, False]  # too wide for a window of 4
    assert starts == [2, 6]  # so the one that shows most


def test_what_nobody_knows_is_asked_in_the_middle_of_a_window(run) -> None:
    starts, both = windows(run, [0] * 8, list(range(8)))
    assert starts == [0, 0, 0, 1, 2, 3, 4, 4]
    assert not any(both)


def test_a_wide_gap_is_closed_from_its_edges(run, episodes) -> None:
    """Each answer is what asking for it alone gives, with those before it as known.

    Of a run that was not trained on forward dynamics, by which such a gap is else filled.
    """
    settings = replace(run.description.train, mask="random")
    run = replace(run, description=replace(run.description, train=settings))
    states = episodes["states"][:1, :9].copy()
    states[:, 2:7] = np.nan
    filled = queries.predict(run, {"states": states}, "states")["states"]
    by_hand = states.copy()
    for steps in ([2, 6], [3, 5], [4]):
        answer = {s: _alone(run, by_hand, s) for s in steps}
        for s in steps:
            by_hand[:, s] = answer[s]
    np.testing.assert_allclose(filled, by_hand, rtol=1e-4, atol=1e-5)


def _alone(run: Run, states: np.ndarray, step: int) -> np.ndarray:
    known = ~np.isnan(states[0, :, 0])
    (start,), _ = windows(run, known.astype(int).tolist(), [step])
    part = slice(start, start + 4)
    visible = np.zeros((1, 4, len(run.modalities)), bool)
    visible[0, :, run.modalities.place("states")] = known[part]
    window = {"states": np.nan_to_num(states[:, part])}
    return ask(run, window, visible, ["states"])["states"][:, step - start]


def test_forward_dynamics_chains(run, episodes) -> None:
    states, actions = episodes["states"], episodes["actions"]
    one = queries.forward_dynamics(run, states[:, :3], actions[:, :3])
    assert one.shape == (3, 1, 4)
    many = queries.forward_dynamics(run, states[:, :3], actions[:, :12])
    assert many.shape == (3, 10, 4)
    np.testing.assert_allclose(many[:, 0], one[:, 0], rtol=1e-5)
    chained = np.concatenate([states[:, :3], one], axis=1)
    two = queries.forward_dynamics(run, chained, actions[:, :4])
    np.testing.assert_allclose(many[:, 1], two[:, 0], rtol=1e-4, atol=1e-5)


def test_forward_dynamics_is_the_named_mask(run, episodes) -> None:
    """With a full history, one step ahead is what the `fd` mask is validated on."""
    from mtm.masks.capabilities import NAMED_MASKS

    question = NAMED_MASKS["fd"].question(run.modalities, 4)
    window = {k: v[:, :4] for k, v in episodes.items()}
    visible = np.broadcast_to(question.visible, (3, 4, 3)).copy()
    expected = ask(run, window, visible, ["states"])["states"][:, -1]
    found = queries.forward_dynamics(run, window["states"][:, :3], window["actions"][:, :3])
    np.testing.assert_allclose(found[:, 0], expected, rtol=1e-5)


def test_acting_queries_see_only_the_past(run, episodes) -> None:
    states, actions = episodes["states"], episodes["actions"]
    action = queries.behavior_cloning(run, states[:, :4], actions[:, :3])
    assert action.shape == (3, 2)
    single = queries.behavior_cloning(run, states[0, :4], actions[0, :3])
    np.testing.assert_allclose(single, action[0], rtol=1e-4, atol=1e-6)
    low = queries.return_conditioned(run, states[:, :4], 0.1, actions[:, :3])
    high = queries.return_conditioned(run, states[:, :4], 0.9, actions[:, :3])
    assert not np.allclose(low, high)
    first = queries.return_conditioned(run, states[:, :1], 0.9)
    assert first.shape == (3, 2)


def test_goals(run, episodes) -> None:
    states = episodes["states"]
    way = queries.reach_goal(run, states[:, :2], states[:, 4], steps=2)
    assert way["states"].shape == (3, 3, 4)
    assert way["actions"].shape == (3, 2, 2)
    assert np.array_equal(way["states"][:, 0], states[:, 1])
    assert np.array_equal(way["states"][:, -1], states[:, 4])
    alone = queries.reach_goal(run, states[0, :2], states[0, 4], steps=2)
    np.testing.assert_allclose(alone["actions"], way["actions"][0], rtol=1e-4, atol=1e-5)
    shared = queries.reach_goal(run, states[:, :2], states[0, 4], steps=2)
    assert np.array_equal(shared["states"][:, -1], states[[0, 0, 0], 4])
    with pytest.raises(ConfigError, match="1 to 3 steps ahead, got 4"):
        queries.reach_goal(run, states[:, :2], states[:, 4], steps=4)
    for goal in (0.5, np.zeros(3), np.zeros((2, 4))):
        with pytest.raises(DataError, match=r"of shape \(4,\) or \(3, 4\); got"):
            queries.reach_goal(run, states[:, :2], goal, steps=2)
    with pytest.raises(DataError, match=r"of shape \(4,\); got \(3, 4\)"):
        queries.reach_goal(run, states[0, :2], states[:, 4], steps=2)


def test_representations(run, episodes) -> None:
    states, actions = episodes["states"], episodes["actions"]
    latent = queries.represent(run, states)
    assert latent.shape == (3, 20, 32)
    np.testing.assert_allclose(queries.represent(run, states[1, 5]), latent[1, 5], atol=1e-5)
    joint = queries.represent(run, states, actions)
    assert joint.shape == (3, 20, 64)
    assert not np.allclose(joint[..., :32], latent)  # the state's code knows of the action
    assert queries.represent(run, states[:0]).shape == (0, 20, 32)
    assert queries.represent(run, states[0, :0], actions[0, :0]).shape == (0, 64)


def test_past_inference_and_imputation(run, episodes) -> None:
    states = episodes["states"].copy()
    states[:, :2] = np.nan
    past = queries.predict(run, {"states": states, "actions": episodes["actions"]}, "states")
    assert np.isfinite(past["states"][:, :2]).all()
    filled = queries.impute(run, {"states": states, "actions": episodes["actions"]})
    assert set(filled) == {"states", "actions"}
    assert np.array_equal(filled["states"], past["states"])


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda r, e: queries.predict(r, {}, "states"), "gives nothing"),
        (
            lambda r, e: queries.predict(r, {"states": np.full((5, 4), np.nan)}, "actions"),
            "every value is a gap",
        ),
        (lambda r, e: queries.predict(r, {"states": e["states"]}, "action"), "Did you mean 'act"),
        (lambda r, e: queries.predict(r, {"state": e["states"]}, "actions"), "Did you mean 'sta"),
        (
            lambda r, e: queries.predict(r, {"states": np.zeros((5, 7))}, "actions"),
            r"shape \(5, 7\); this model was trained on values of shape \(4,\)",
        ),
        (
            lambda r, e: queries.predict(
                r, {"states": np.zeros((5, 4)), "actions": np.zeros((6, 2))}, "returns"
            ),
            "same batch and steps",
        ),
        (
            lambda r, e: queries.predict(r, {"states": np.full((5, 4), np.inf)}, "actions"),
            "infinite",
        ),
        (lambda r, e: queries.predict(r, {"states": np.zeros((0, 4))}, "actions"), "no steps"),
        (
            lambda r, e: queries.predict(
                r, {"states": np.zeros((5, 4))}, "actions", present={"states": np.ones(4, bool)}
            ),
            r"booleans of shape \(1, 5\)",
        ),
        (
            lambda r, e: queries.forward_dynamics(r, np.zeros((5, 4)), np.zeros((3, 2))),
            "5 states need at least as many actions",
        ),
        (
            lambda r, e: queries.behavior_cloning(r, np.zeros((5, 4)), np.zeros((5, 2))),
            "5 states go with 4 past actions",
        ),
        (lambda r, e: queries.predict(r, {"states": [["a"] * 4]}, "actions"), "must be numbers"),
        (
            lambda r, e: queries.return_conditioned(
                r, np.array([[0.0] * 4, [np.nan, 0, 0, 0]]), returns=0.5
            ),
            r"has a gap \(NaN\) at step 1.*Use predict",
        ),
        (
            lambda r, e: queries.return_conditioned(r, np.full((3, 4), np.inf), returns=0.5),
            "holds a value at step 0 that is infinite",
        ),
        (
            lambda r, e: queries.return_conditioned(r, np.full((3, 4), 1e300), returns=0.5),
            "too large for single precision",
        ),
        (
            lambda r, e: queries.return_conditioned(r, np.zeros((3, 4)), returns=np.nan),
            r"'returns' has a gap \(NaN\)",
        ),
        (
            lambda r, e: queries.return_conditioned(r, np.zeros((2, 3, 4)), returns=[0.1] * 3),
            r"returns have shape \(3,\).*\(2,\) for one for each trajectory",
        ),
        (
            lambda r, e: queries.reach_goal(r, np.zeros((3, 4)), np.full(4, np.nan), steps=2),
            r"'states' has a gap \(NaN\)",
        ),
        (
            lambda r, e: queries.represent(r, np.full((3, 4), np.nan)),
            r"'states' has a gap \(NaN\)",
        ),
    ],
)
def test_bad_questions(run, episodes, ask, message: str) -> None:
    with pytest.raises(DataError, match=message):
        ask(run, episodes)


def test_returns_of_a_batch_are_one_for_each_trajectory(run, episodes) -> None:
    states = episodes["states"][:, :3]  # as many trajectories as steps
    asked = np.array([0.2, 0.5, 0.9])
    together = queries.return_conditioned(run, states, asked)
    for i, one in enumerate(asked):
        alone = queries.return_conditioned(run, states[i], one)
        np.testing.assert_allclose(together[i], alone, atol=1e-6)
    each_step = queries.return_conditioned(run, states, np.stack([asked] * 3), history=None)
    alone = queries.return_conditioned(run, states[1], asked, history=None)
    np.testing.assert_allclose(each_step[1], alone, atol=1e-6)


def test_an_impossible_history_is_refused(run) -> None:
    with pytest.raises(ConfigError, match=r"history must be 0 to 3 .*got 4"):
        queries.behavior_cloning(run, np.zeros((9, 4)), history=4)


def test_a_run_can_be_moved_and_says_where_it_is(run) -> None:
    assert run.device.type == "cpu"
    assert run.to("cpu").device.type == "cpu"
    for device in ("cuda", "nowhere"):
        if device == "cuda" and torch.cuda.is_available():
            continue
        with pytest.raises(ConfigError, match=f"the device '{device}' cannot be used here"):
            run.to(device)
    with pytest.raises(ConfigError, match="cannot be used here"):
        mtm.load_run(run.path, device="nowhere")


def test_capabilities_that_the_modalities_do_not_allow(tiny, tmp_path) -> None:
    own = train("builtin:sinusoids", tiny, tmp_path / "run", silent=True)
    with pytest.raises(ConfigError, match="exactly one modality of role 'state'.*waves, phase"):
        queries.inverse_dynamics(own, np.zeros((4, 2)))
    waves = np.sin(np.arange(10))[:, None].repeat(2, axis=1)
    quarter = queries.predict(own, {"waves": waves}, "phase")["phase"]
    assert quarter.shape == (10,)
    assert set(quarter) <= {0, 1, 2, 3}


@pytest.fixture(scope="module")
def chain(tmp_path_factory) -> Run:
    """States in 5 classes, actions in 3."""
    rng = np.random.default_rng(0)
    steps = {"states": rng.integers(5, size=80), "actions": rng.integers(3, size=80)}
    steps["states"][:5], steps["actions"][:3] = np.arange(5), np.arange(3)
    data = TrajectoryDataset.from_arrays(steps, np.arange(0, 81, 20))
    config = TrainConfig(steps=2, batch_size=8, model=ModelConfig(width=16, heads=2))
    return train(data, config, tmp_path_factory.mktemp("c") / "run", silent=True)


def test_goals_among_classes(chain) -> None:
    way = queries.reach_goal(chain, [0, 1], 4, steps=2)
    assert way["states"].dtype == np.int64
    assert way["states"][[0, -1]].tolist() == [1, 4]
    assert 0 <= way["states"][1] < 5
    assert queries.represent(chain, [0, 4]).shape == (2, 16)


def test_gaps_between_classes(chain) -> None:
    """What stands in a gap need not be a class."""
    known = np.array([True, False, True])
    expected = queries.predict(chain, {"states": [1, 0, 2]}, "states", present={"states": known})
    for states in ([1, -1, 2], [1, 0.5, 2], [1, np.nan, 2]):
        found = queries.predict(chain, {"states": states}, "states", present={"states": known})
        assert np.array_equal(found["states"], expected["states"])


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda r: queries.predict(r, {"states": [0, 7]}, "actions"), "holds 7; .* 0 to 4"),
        (lambda r: queries.predict(r, {"states": [-1, 0]}, "actions"), "holds -1; .* 0 to 4"),
        (lambda r: queries.predict(r, {"states": [0.9, 1.9]}, "actions"), r"holds 0\.9"),
        (lambda r: queries.predict(r, {"states": ["a", "b"]}, "actions"), "must be numbers"),
        (lambda r: queries.behavior_cloning(r, [0, 1], [3]), "'actions' holds 3; .* 0 to 2"),
        (lambda r: queries.forward_dynamics(r, [5], [0]), "'states' holds 5"),
        (lambda r: queries.reach_goal(r, [0], 1.5, steps=1), r"holds 1\.5"),
        (lambda r: queries.represent(r, [0, 5]), "'states' holds 5"),
    ],
)
def test_what_is_no_class_is_refused(chain, ask, message: str) -> None:
    with pytest.raises(DataError, match=message):
        ask(chain)
