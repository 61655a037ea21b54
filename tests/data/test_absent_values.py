"""What stands in the place of an absent value changes nothing, to the bit."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import mtm
from mtm.core.config import TrainConfig
from mtm.data.formats import builtin
from mtm.data.normalizer import Normalizer
from mtm.data.preparation import prepare, split
from mtm.data.trajectories import TrajectoryDataset
from mtm.evaluation.evaluate import prediction_error
from mtm.inference.relabelling import relabel
from mtm.runs import checkpoint
from mtm.runs.run import Run
from mtm.training.train import train

EPISODES, LENGTH = 40, 20
STORED = {"nan": np.nan, "inf": -np.inf, "huge": 1e30, "number": 3.0}
CLASSES = {"nan": -(2**40), "inf": 99, "huge": 2**40, "number": 1}


def presence() -> dict[str, np.ndarray]:
    """Whole episodes and single steps that lack a modality, each another."""
    rng = np.random.default_rng(0)
    steps = EPISODES * LENGTH
    present = {n: rng.random(steps) > 0.15 for n in ("states", "actions", "rewards", "phase")}
    episode = np.arange(steps) // LENGTH
    for i, name in enumerate(present):
        present[name][episode % 5 == i] = False
    present["rewards"][episode % 3 == 0] = True  # so that some returns are known
    return present


def with_stored(name: str) -> TrajectoryDataset:
    """The same data with something else in the absent places."""
    base = builtin.point_mass(EPISODES, LENGTH)
    arrays = dict(base.arrays) | {"phase": np.arange(EPISODES * LENGTH) % 3}
    present = presence()
    for key, mask in present.items():
        arrays[key] = arrays[key].copy()
        arrays[key][~mask] = CLASSES[name] if key == "phase" else STORED[name]
    return TrajectoryDataset.from_arrays(
        arrays, [0, *base.ends], present=present, metadata=base.metadata
    )


@pytest.fixture(scope="module")
def config() -> TrainConfig:
    return TrainConfig(
        steps=12,
        batch_size=16,
        validation_fraction=0.2,
        validation_segments=64,
        validate_every=6,
        checkpoint_every=6,
        log_every=3,
        drop={"actions": 0.3},
        gaps={"states": 0.1},
        complete_share=0.5,
        model=mtm.ModelConfig(width=16, encoder_layers=1, heads=2),
    )


@pytest.fixture(scope="module")
def runs(config, tmp_path_factory) -> dict[str, Run]:
    folder = tmp_path_factory.mktemp("absent")
    return {name: train(with_stored(name), config, folder / name, silent=True) for name in STORED}


def others() -> list[str]:
    return [name for name in STORED if name != "number"]


@pytest.mark.parametrize("name", others())
def test_gradients_statistics_and_held_out_numbers(runs, name: str) -> None:
    one, other = (checkpoint.load(runs[n].path / "checkpoints") for n in ("number", name))
    for a, b in ((one.model, other.model), (one.optimizer, other.optimizer)):
        assert a.keys() == b.keys()
        assert all(torch.equal(a[key], b[key]) for key in a)
    assert one.state.validation == other.state.validation
    assert len(one.state.validation) > 8
    described = [json.loads((runs[n].path / "config.json").read_text()) for n in ("number", name)]
    for plain in described:
        del plain["data"]["fingerprint"]  # the one thing that tells the two apart,
        del plain["sha256"]  # and with it this
    assert described[0] == described[1]


def test_logged_losses(runs) -> None:
    def losses(path: Path) -> list[str]:
        rows = (path / "metrics.csv").read_text().splitlines()
        names = rows[0].split(",")
        kept = [i for i, n in enumerate(names) if n not in ("seconds", "segments_per_second")]
        return [",".join(row.split(",")[i] for i in kept) for row in rows]

    assert len({tuple(losses(run.path)) for run in runs.values()}) == 1


@pytest.mark.parametrize("name", others())
def test_the_normalizer(name: str) -> None:
    one, other = (Normalizer.fit(with_stored(n)).to_json() for n in ("number", name))
    assert one == other


@pytest.mark.parametrize("name", others())
def test_predictions(runs, name: str) -> None:
    answers = []
    for stored in ("number", name):
        data = with_stored(stored)
        names = ("states", "actions", "phase")
        given = {n: data.arrays[n].reshape(EPISODES, LENGTH, -1) for n in names}
        given["phase"] = given["phase"][..., 0]
        marks = {n: data.known(n).reshape(EPISODES, LENGTH) for n in names}
        want = ["states", "returns", "actions", "phase"]
        answers.append(mtm.predict(runs[stored], given, want, present=marks))
    for key in answers[0]:
        assert np.isfinite(answers[0][key]).all()
        assert np.array_equal(answers[0][key], answers[1][key])


def test_representations(config, tmp_path) -> None:
    chosen = replace(config, steps=2, modalities=("states", "returns", "actions"))
    state = builtin.point_mass(1, LENGTH).arrays["states"]
    found = [
        mtm.represent(train(with_stored(n), chosen, tmp_path / n, silent=True), state)
        for n in STORED
    ]
    assert all(np.array_equal(found[0], other) for other in found)


@pytest.mark.parametrize("name", others())
def test_prediction_errors(config, runs, name: str) -> None:
    found = []
    for stored in ("number", name):
        held_out = split(prepare(with_stored(stored), config), config).held_out
        assert held_out is not None
        found.append([prediction_error(runs[stored], held_out, task) for task in ("fd", "id")])
    assert found[0] == found[1]
    assert np.isfinite(found[0][0]["normalized"])


@pytest.mark.parametrize("name", others())
def test_labels_and_their_expected_errors(config, runs, name: str) -> None:
    found = []
    for stored in ("number", name):
        training, held_out, _, _ = split(prepare(with_stored(stored), config), config)
        want = ("states", "actions", "phase")
        found.append(relabel(runs[stored], training, want, held_out=held_out))
    one, other = found
    assert one.errors == other.errors
    for key in ("states", "actions", "phase"):
        assert np.array_equal(one.dataset.arrays[key], other.dataset.arrays[key])
        assert np.array_equal(one.expected_error[key], other.expected_error[key], equal_nan=True)


@pytest.mark.parametrize("name", STORED)
def test_classes_are_those_that_are_present(name: str, tmp_path) -> None:
    """A number stored in a gap once counted as a class, and made the network wider."""
    data = with_stored(name)
    assert data.modality("phase").classes == 3
    file = tmp_path / "data.npz"
    marks = {f"{n}_present": mask for n, mask in data.present.items()}
    np.savez(file, **data.arrays, **marks, offsets=[0, *data.ends])
    assert mtm.load_dataset(str(file)).modality("phase").classes == 3


def test_absent_returns_come_from_absent_rewards() -> None:
    known = [prepare(with_stored(name), TrainConfig()) for name in STORED]
    for data in known[1:]:
        mask = data.known("returns")
        assert np.array_equal(mask, known[0].known("returns"))
        assert np.array_equal(data.arrays["returns"][mask], known[0].arrays["returns"][mask])


@pytest.mark.parametrize("name", STORED)
def test_an_episode_does_not_tell_what_is_stored(runs, name: str) -> None:
    """Fed to `predict` as it comes, it is answered as one whose gaps are marked by hand."""
    data = with_stored(name)
    want = ["states", "returns", "actions", "phase"]
    for index in (0, 1, 3, 7):  # each lacks something else as a whole
        steps = slice(index * LENGTH, (index + 1) * LENGTH)
        known = {n: data.known(n)[steps] for n in ("states", "actions", "rewards", "phase")}
        episode = data.episode(index)
        for key in ("states", "actions", "rewards"):
            gaps = np.isnan(episode[key]).reshape(LENGTH, -1)
            assert np.array_equal(~gaps.any(axis=1), known[key])
            assert np.array_equal(~gaps.all(axis=1), known[key])
        assert np.array_equal(~np.ma.getmaskarray(episode["phase"]), known["phase"])
        assert np.array_equal(np.asarray(episode["phase"]) == -1, ~known["phase"])
        given = {n: episode[n] for n in ("states", "actions", "phase")}
        marked = {n: data.arrays[n][steps] for n in given}
        marks = {n: known[n] for n in given}
        found = mtm.predict(runs[name], given, want)
        meant = mtm.predict(runs[name], marked, want, present=marks)
        for key in want:
            assert np.isfinite(found[key]).all()
            assert np.array_equal(found[key], meant[key])


def test_episodes_are_a_data_set_again() -> None:
    data = with_stored("nan")
    episodes = [data.episode(i) for i in range(data.num_episodes)]
    again = TrajectoryDataset.from_episodes(episodes, nan_is_absent=True)
    assert again.modalities == data.modalities
    assert all(np.array_equal(again.known(n), data.known(n)) for n in data.names)


def test_a_masked_class_is_a_gap_and_an_unmasked_one_is_checked(runs) -> None:
    states = builtin.point_mass(1, LENGTH).arrays["states"]
    phase = np.ma.MaskedArray(np.full(LENGTH, 7), mask=True)
    assert mtm.predict(runs["nan"], {"states": states, "phase": phase}, "phase")["phase"].max() < 3
    phase[3] = 7
    with pytest.raises(mtm.MTMError, match="'phase' holds 7.0; its classes are the whole numbers"):
        mtm.predict(runs["nan"], {"states": states, "phase": phase}, "phase")
