"""Labels for what data lack: they keep what is known, and say how far they may be off."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

import mtm
from mtm.core.config import ModelConfig, OptimizerConfig, TrainConfig
from mtm.core.errors import DataError
from mtm.data.modalities import Modality
from mtm.data.preparation import prepare
from mtm.data.trajectories import Metadata, TrajectoryDataset
from mtm.inference import episode_batches
from mtm.inference.engine import ask_members, ask_with_certainty, stated_errors
from mtm.inference.error_calibration import Confidence, rising
from mtm.inference.relabelling import Relabelling, laid_over, relabel, training_episodes
from mtm.runs.run import Run
from mtm.training.train import train

LENGTH = 25


def logs(episodes: int, seed: int) -> TrajectoryDataset:
    """Actions follow the state, loosely where its second number is positive, else closely."""
    rng = np.random.default_rng(seed)
    steps = episodes * LENGTH
    states = rng.normal(size=(steps, 2))
    noise = np.where(states[:, 1:] > 0, 0.6, 0.05) * rng.normal(size=(steps, 1))
    return TrajectoryDataset.from_arrays(
        {
            "states": states,
            "actions": np.tanh(states[:, :1]) + noise,
            "rewards": -(states[:, 0] ** 2),
            "mode": (states[:, 0] > 0).astype(np.int64),
        },
        np.arange(episodes + 1) * LENGTH,
        metadata=Metadata("logs", "Toy-v0", LENGTH, {"robot": "arm"}),
    )


CONFIG = TrainConfig(
    steps=250,
    whole_modalities=0.0,  # so few steps are for what is asked here
    batch_size=64,
    validate_every=250,
    checkpoint_every=250,
    validation_fraction=0.3,
    drop={"actions": 0.5},
    model=ModelConfig(width=32, heads=2, encoder_layers=1, segment_length=3),
    optimizer=OptimizerConfig(learning_rate=4e-3, warmup_steps=20),
)


@pytest.fixture(scope="module")
def data() -> TrajectoryDataset:
    return logs(60, seed=0)


@pytest.fixture(scope="module")
def run(data, tmp_path_factory) -> Run:
    folder = tmp_path_factory.mktemp("relabel")
    np.savez(
        folder / "logs.npz",
        **data.arrays,
        offsets=[0, *data.ends],
        env_id="Toy-v0",
        max_episode_steps=LENGTH,
    )
    return train(str(folder / "logs.npz"), CONFIG, folder / "run", silent=True)


@pytest.fixture
def gappy() -> TrajectoryDataset:
    """Other episodes: some lack actions throughout, others here and there, some lack nothing."""
    data = logs(30, seed=1)
    known = np.random.default_rng(1).random(data.num_steps) > 0.4
    episode = np.arange(data.num_steps) // LENGTH
    known[episode < 10] = False
    known[episode >= 20] = True
    data.terminated = episode[data.starts] % 2 == 0
    return data.with_present({"actions": known})


def squared(run: Run, labels: np.ndarray, truth: np.ndarray) -> np.ndarray:
    return (((labels - truth) / run.normalizer.statistics["actions"].std) ** 2).mean(axis=1)


def test_what_is_known_is_kept_and_all_else_is_filled(run, gappy) -> None:
    result = relabel(run, gappy, "actions")
    known = gappy.known("actions")
    error = result.expected_error["actions"]
    assert result.dataset.names == gappy.names
    assert result.dataset.metadata == gappy.metadata
    assert np.array_equal(result.dataset.ends, gappy.ends)
    assert np.array_equal(result.dataset.terminated, gappy.terminated)
    assert "actions" not in result.dataset.present
    for name in gappy.names:
        kept = known if name == "actions" else slice(None)
        assert np.array_equal(result.dataset.arrays[name][kept], gappy.arrays[name][kept])
    assert (error[known] == 0).all()
    assert (error[~known] > 0).all()
    truth = gappy.arrays["actions"][~known]
    assert squared(run, result.dataset.arrays["actions"][~known], truth).mean() < 0.5
    bounds = run.normalizer.statistics["actions"]
    assert result.dataset.arrays["actions"][~known].max() <= bounds.high
    assert result.dataset.arrays["actions"][~known].min() >= bounds.low


def test_a_lower_stated_error_is_a_lower_error(run, gappy) -> None:
    """On episodes that neither the run nor its measurement of errors has seen."""
    result = relabel(run, gappy)
    lost = ~gappy.known("actions")
    error = squared(run, result.dataset.arrays["actions"][lost], gappy.arrays["actions"][lost])
    stated = result.expected_error["actions"][lost]
    order = np.argsort(stated)
    low, middle, high = np.array_split(order, 3)
    assert error[low].mean() < 0.5 * error[high].mean()
    assert error[low].mean() < error[middle].mean() < error[high].mean()
    assert stated.mean() == pytest.approx(error.mean(), rel=0.25)
    assert stated[high].mean() == pytest.approx(error[high].mean(), rel=0.4)


def test_the_disagreement_of_members_enters_the_expected_error(data, gappy, tmp_path) -> None:
    """Members that are pushed apart say the same together, and are less sure of it."""
    model = replace(CONFIG.model, members=2)
    config = replace(CONFIG, steps=60, model=model, drop={}, validation_fraction=0.5)
    united = train(data, config, tmp_path / "run", silent=True)
    divided = replace(united, model=copy.deepcopy(united.model))
    with torch.no_grad():
        bias = divided.model.stacked.heads["actions"][-1].bias
        bias[:, 0] += torch.tensor([0.5, -0.5])
    window = {"states": gappy.arrays["states"][None, :3]}
    visible, wanted = (np.zeros((1, 3, len(united.modalities)), bool) for _ in range(2))
    visible[:, :, united.modalities.place("states")] = True
    wanted[:, :, united.modalities.place("actions")] = True
    found = [ask_with_certainty(r, window, visible, ["actions"], wanted) for r in (united, divided)]
    scale = united.normalizer.statistics["actions"].std
    np.testing.assert_allclose(found[0][0]["actions"], found[1][0]["actions"], atol=1e-5)
    spread = [
        np.var(ask_members(r, window, visible, ["actions"])["actions"] / scale, axis=0)[..., 0]
        for r in (united, divided)
    ]
    before, after = (stated_errors(united, "actions", sure["actions"]) for _, sure in found)
    more = after - before
    np.testing.assert_allclose(more, spread[1] - spread[0], atol=1e-4)
    labels, others = (relabel(r, gappy, held_out=data) for r in (united, divided))
    lost = ~gappy.known("actions")
    a, b = (part.dataset.arrays["actions"][lost] for part in (labels, others))
    np.testing.assert_allclose(a, b, atol=1e-3)
    stated = [part.expected_error["actions"][lost] for part in (labels, others)]
    assert np.abs(stated[0] - stated[1]).mean() > 0.02 * stated[0].mean()
    error = squared(united, a, gappy.arrays["actions"][lost])
    low, high = np.array_split(np.argsort(stated[0]), 2)
    assert error[low].mean() < error[high].mean()


def test_the_errors_that_are_told(run, gappy) -> None:
    (told,) = relabel(run, gappy).errors.values()
    lost = int((~gappy.known("actions")).sum())
    assert told.lacking == lost
    assert told.measured > 100
    assert told.surest < told.error < told.least_sure
    assert told.surest < 0.5 * told.least_sure
    assert told.error < 0.6 * told.by_mean
    assert told.by_mean == pytest.approx(1.0, abs=0.25)  # few episodes told the variance
    assert told.by_nearest is not None
    assert told.by_nearest > told.by_mean  # the states of this toy jump about
    (few,) = relabel(run, gappy, held_out=logs(1, seed=11)).errors.values()
    assert few.measured < 40
    assert (few.surest, few.least_sure) == (None, None)  # too few to tell them apart
    assert told.raw == pytest.approx(
        told.error * run.normalizer.statistics["actions"].std[0] ** 2, rel=1e-4
    )


def test_labels_are_those_of_predict(run, gappy) -> None:
    result = relabel(run, gappy)
    for index in (0, 12):
        steps = slice(index * LENGTH, (index + 1) * LENGTH)
        known = gappy.known("actions")[steps]
        given = {n: gappy.arrays[n][steps] for n in ("states", "actions", "mode")}
        given["returns"] = prepare(gappy, CONFIG).arrays["returns"][steps]
        alone = mtm.predict(run, given, "actions", present={"actions": known})["actions"]
        bounds = run.normalizer.statistics["actions"]
        np.testing.assert_allclose(
            result.dataset.arrays["actions"][steps],
            np.clip(alone, bounds.low, bounds.high),
            rtol=1e-4,
            atol=1e-5,
        )


def test_how_many_episodes_are_filled_at_once_does_not_matter(run, gappy, monkeypatch) -> None:
    """Episodes of unequal length are padded; what is padded is neither asked nor seen."""
    lengths = np.array([5, 25, 1, 12, 2, 40, 15])
    ends = np.cumsum(lengths)
    uneven = TrajectoryDataset.from_arrays(
        {name: gappy.arrays[name][: ends[-1]] for name in gappy.names},
        [0, *ends],
        present={"actions": np.random.default_rng(2).random(ends[-1]) > 0.5},
        metadata=gappy.metadata,
    )
    held_out = logs(10, seed=3)
    together = relabel(run, uneven, held_out=held_out)
    for limit in ("GROUP_STEPS", "GROUP_BYTES"):
        with monkeypatch.context() as patch:
            patch.setattr(episode_batches, limit, 1)
            assert len(list(episode_batches.groups(run, uneven))) == len(lengths)
            alone = relabel(run, uneven, held_out=held_out)
        np.testing.assert_allclose(
            together.dataset.arrays["actions"],
            alone.dataset.arrays["actions"],
            rtol=1e-4,
            atol=1e-5,
        )


def test_data_without_the_modality_at_all(run) -> None:
    states_only = logs(5, seed=4).select(["states", "rewards"])
    result = relabel(run, states_only, ["actions", "mode"])
    assert result.dataset.names == ("states", "mode", "actions", "rewards")
    assert result.errors["actions"].by_nearest is None
    mode = result.dataset.arrays["mode"]
    assert mode.dtype == np.int64
    truth = logs(5, seed=4).arrays["mode"]
    assert (mode == truth).mean() > 0.8
    assert result.errors["mode"].error < 0.2 < result.errors["mode"].by_mean


def test_several_modalities_at_once(run) -> None:
    data = logs(6, seed=5).without(steps={"actions": 0.5, "states": 0.2})
    result = relabel(run, data, ("states", "actions"))
    assert result.dataset.present == {}
    assert set(result.errors) == {"states", "actions"}
    lost = ~data.known("states")
    assert np.array_equal(result.expected_error["states"] > 0, lost)


def test_an_episode_of_which_nothing_is_known_stays_as_it_is(run) -> None:
    data = logs(4, seed=6)
    first = np.arange(data.num_steps) < LENGTH
    known = dict.fromkeys(("states", "actions", "rewards", "mode"), ~first)
    known["actions"] = known["actions"] & (np.arange(data.num_steps) % 2 == 0)
    result = relabel(run, data.with_present(known))
    assert np.array_equal(result.dataset.known("actions"), ~first)
    assert np.isnan(result.expected_error["actions"][first]).all()
    assert not np.isnan(result.expected_error["actions"][~first]).any()


def test_the_run_s_own_episodes_as_it_saw_them(run, data) -> None:
    own = training_episodes(run, data)
    assert own.num_episodes == 42
    assert own.names == data.names
    assert own.count_present("actions") == 21 * LENGTH
    result = relabel(run)
    assert result.dataset.num_episodes == 42
    assert (result.expected_error["actions"] > 0).sum() == 21 * LENGTH


def test_progress_is_told_up_to_the_total(run, gappy) -> None:
    work = Relabelling(run, gappy, "actions")
    told: list[int] = []
    work.measure(told.append)
    list(work.parts(told.append))
    assert told == sorted(told)
    assert told[-1] == work.total


def test_gaps_are_measured_where_they_are() -> None:
    last = np.arange(10) == 9
    for length in (3, 9, 10, 11, 30):
        assert last[laid_over(last, length)][-1]
    assert not last[laid_over(last, 9)][:-1].any()
    middle = np.arange(100) == 50
    assert np.flatnonzero(middle[laid_over(middle, 11)]).tolist() == [5]
    assert laid_over(np.arange(5) == 2, 5).tolist() == [0, 1, 2, 3, 4]


def test_the_error_of_a_last_action_is_that_of_last_actions(run) -> None:
    """The action after which no state was recorded, as in logs of T actions and T + 1 states."""
    data = logs(6, seed=9)
    known = np.ones(data.num_steps, bool)
    known[data.ends - 1] = False
    work = Relabelling(run, data.with_present({"actions": known}), "actions")
    place = [m.name for m in run.modalities].index("actions")
    shown = work._gaps("actions", np.arange(4), LENGTH)[:, :, place]
    assert (~shown).sum() == 4
    assert not shown[:, -1].any()


def test_returns_that_were_taken_away_are_not_made_again(run, data, tmp_path) -> None:
    config = replace(CONFIG, steps=2, drop={"returns": 0.5, "actions": 0.5})
    own = train(run.description.data["spec"], config, tmp_path / "run", silent=True)
    episodes = training_episodes(own, data)
    assert episodes.count_present("returns") == 21 * LENGTH
    assert "rewards" in episodes.names
    filled = relabel(own, want="returns")
    assert (filled.expected_error["returns"] > 0).sum() == 21 * LENGTH


def test_returns_of_unknown_units_are_not_made_of_rewards(data, tmp_path) -> None:
    returns = Modality("returns", (), "continuous", 0, "return")
    own = data.with_modality(returns, 1000 + data.arrays["rewards"])
    run = train(own, replace(CONFIG, steps=2), tmp_path / "run", silent=True)
    assert "returns" not in episode_batches.shown_to(run, data).names
    assert "returns" in episode_batches.shown_to(run, own).names


def test_data_of_which_no_return_can_be_made_are_filled(run, gappy) -> None:
    known = np.ones(gappy.num_steps, bool)
    known[gappy.ends - 1] = False
    data = gappy.with_present({"rewards": known})
    assert episode_batches.shown_to(run, data).count_present("returns") == 0
    assert "actions" not in relabel(run, data).dataset.present


def test_doubtful_labels_are_left_out_and_other_gaps_stay(run, gappy) -> None:
    some = np.arange(gappy.num_steps) % 7 != 0
    filled = relabel(run, gappy.with_present({"states": some})).dataset
    sure = np.arange(gappy.num_steps) % 2 == 0
    careful = filled.with_present({"actions": sure})
    assert np.array_equal(careful.known("actions"), sure)
    assert np.array_equal(careful.known("states"), some)


def test_what_cannot_be_relabelled(run, gappy, data, tmp_path) -> None:
    whole = logs(3, seed=7)
    with pytest.raises(DataError, match="Did you mean 'actions'"):
        relabel(run, gappy, "action")
    with pytest.raises(DataError, match=r"nothing to fill: no step of logs \(75 steps\) lacks"):
        relabel(run, whole, ["actions", "states"])
    with pytest.raises(DataError, match=r"unknown modality .*Allowed: "):
        relabel(run, gappy, "torque")
    narrow = TrajectoryDataset.from_arrays({"states": np.zeros((9, 3))}, [0, 9])
    with pytest.raises(DataError, match=r"shape \(9, 3\); this model was trained on .* \(2,\)"):
        relabel(run, narrow)
    classes = TrajectoryDataset.from_arrays(
        {"states": np.zeros((9, 2)), "mode": np.arange(9)}, [0, 9]
    )
    with pytest.raises(DataError, match="'mode' has 9 classes; this model was trained on 2"):
        relabel(run, classes)
    floats = TrajectoryDataset.from_arrays(
        {"states": np.zeros((9, 2)), "mode": np.ones(9, np.float32)}, [0, 9]
    )
    with pytest.raises(DataError, match="'mode' is continuous; .* on discrete values .*mode_prese"):
        relabel(run, floats)
    strange = TrajectoryDataset.from_arrays({"x": np.zeros((9, 3))}, [0, 9])
    with pytest.raises(DataError, match=r"the data have x, none of them.*reading\.columns"):
        relabel(run, strange)
    with pytest.raises(DataError, match="the held-out episodes have no actions"):
        relabel(run, gappy, held_out=whole.select(["states"]))


def test_a_run_that_cannot_measure_its_errors(gappy, data, tmp_path) -> None:
    config = replace(CONFIG, steps=2)
    from_memory = train(data, config, tmp_path / "memory", silent=True)
    with pytest.raises(DataError, match=r"held-out episodes: .* Or name labelled .*\(held_out\)"):
        relabel(from_memory, gappy)
    relabel(from_memory, gappy, held_out=logs(3, seed=8))
    none = train(data, replace(config, validation_fraction=0.0), tmp_path / "none", silent=True)
    with pytest.raises(DataError, match="held no episodes out"):
        relabel(none, gappy)


def test_rising_means() -> None:
    assert rising(np.array([1.0, 3.0, 2.0, 5.0]), np.array([1, 1, 3, 1])).tolist() == [
        *(1.0, 2.25, 2.25, 5.0)
    ]
    assert rising(np.array([3.0, 2.0, 1.0]), np.array([1, 1, 1])).tolist() == [2.0, 2.0, 2.0]


def test_few_measured_errors_give_their_mean() -> None:
    confidence = Confidence.fit(np.zeros((5, 2)), np.arange(5.0))
    assert confidence.expected(np.ones((3, 2))).tolist() == [2.0, 2.0, 2.0]
