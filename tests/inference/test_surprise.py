"""What does not fit the rest is surprising: planted faults are found first.

The network here is no learned one: it knows the rule that the recordings follow, so that what is
found is due to the faults and to how surprise is measured.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from mtm.core.config import ModelConfig, TrainConfig
from mtm.core.errors import ConfigError
from mtm.data.modalities import Modalities, Modality
from mtm.data.normalizer import Normalizer, Statistics
from mtm.data.trajectories import TrajectoryDataset
from mtm.inference.run_data import episode_shown_to
from mtm.inference.surprise import (
    plan_segments,
    rank_episodes,
    surprise_of_steps,
    usual_errors,
)
from mtm.models.heads import Predictions
from mtm.models.lines import between_visible
from mtm.runs.description import Description
from mtm.runs.run import Run

EPISODES, LENGTH = 40, 24
MODALITIES = Modalities(
    [
        Modality("states", (2,)),
        Modality("actions", (2,), role="action"),
        Modality("quadrant", (), "discrete", 4),
    ]
)
PULL = np.array([[-2.0, 0.5], [0.3, -1.5]])


class KnowsTheRule(nn.Module):
    """Says what follows from the visible values, and states a variance that is far too large."""

    def __init__(self) -> None:
        super().__init__()
        self.config = ModelConfig(width=2, heads=1)
        self.anchor = nn.Parameter(torch.zeros(()))  # tells the device

    def forward(self, values: dict[str, Tensor], visible: Tensor, wanted: Tensor) -> Predictions:
        seen = visible[:, :, 0, None]
        states = torch.where(
            seen, values["states"], between_visible(values["states"], seen[..., 0])
        )
        actions = torch.tanh(states @ torch.tensor(PULL, dtype=torch.float32))
        quadrant = 2 * (states[..., 0] > 0) + (states[..., 1] > 0)
        logits = 6.0 * nn.functional.one_hot(quadrant.long(), 4)
        log_variances = {"states": torch.ones_like(states), "actions": torch.ones_like(actions)}
        said = {"states": states, "actions": actions, "quadrant": logits}
        return Predictions(said, log_variances, {})


@pytest.fixture(scope="module")
def run() -> Run:
    plain = Statistics(*(np.full(2, v, np.float32) for v in (0, 1, -1, 1)))
    normalizer = Normalizer({"states": plain, "actions": plain})
    description = Description(TrainConfig(), MODALITIES, normalizer, {})
    return Run(Path("run"), description, KnowsTheRule(), 0)  # type: ignore[arg-type]


def recording(seed: int) -> dict[str, np.ndarray]:
    """A mass that is pulled back, and the quadrant that it is in: all follows from states."""
    rng = np.random.default_rng(seed)
    state = rng.uniform(-1, 1, (EPISODES, 2))
    states, actions = [], []
    for _ in range(LENGTH):
        action = np.tanh(state @ PULL)
        states.append(state)
        actions.append(action + 0.05 * rng.normal(size=state.shape))
        state = state + 0.2 * action + 0.05 * rng.normal(size=state.shape)
    side = np.stack(states, axis=1)
    return {
        "states": side,
        "actions": np.stack(actions, axis=1),
        "quadrant": (side[..., 0] > 0) * 2 + (side[..., 1] > 0) * 1,
    }


def dataset(
    arrays: dict[str, np.ndarray], present: dict[str, np.ndarray] | None = None
) -> TrajectoryDataset:
    flat = {name: a.reshape(EPISODES * LENGTH, *a.shape[2:]) for name, a in arrays.items()}
    marks = {name: mask.reshape(-1) for name, mask in (present or {}).items()}
    offsets = np.arange(0, EPISODES * LENGTH + 1, LENGTH)
    return TrajectoryDataset.from_arrays(flat, offsets, modalities=MODALITIES, present=marks)


FAULTY = [4, 17, 30]


def with_fault(kind: str) -> TrajectoryDataset:
    """Three of forty episodes of another recording have a fault."""
    arrays = recording(1)
    for episode in FAULTY:
        if kind == "shifted":  # one column of the actions lags behind by two steps
            arrays["actions"][episode, :, 1] = np.roll(arrays["actions"][episode, :, 1], 2)
        elif kind == "swapped":
            arrays["actions"][episode] = arrays["actions"][episode][:, ::-1]
        elif kind == "stuck":  # a few steps only
            arrays["states"][episode, 8:12, 0] = arrays["states"][episode, 2, 0] + 1.0
        else:
            arrays["quadrant"][episode] = 3 - arrays["quadrant"][episode]
    return dataset(arrays)


@pytest.mark.parametrize(
    ("kind", "modality"),
    [("shifted", "actions"), ("swapped", "actions"), ("stuck", None), ("class", "quadrant")],
)
def test_planted_faults_rank_first(run: Run, kind: str, modality: str | None) -> None:
    told: list[float] = []
    ranking = rank_episodes(run, with_fault(kind), progress=told.append)
    assert len(ranking) == EPISODES
    assert {e.episode for e in ranking[:3]} == set(FAULTY)
    if modality is not None:  # a state that is stuck contradicts actions and classes as well
        assert {max(e.modalities, key=e.modalities.__getitem__) for e in ranking[:3]} == {modality}
    assert ranking[2].surprise > 1.5 * ranking[3].surprise
    assert told == sorted(told)
    assert told[-1] == 1
    middle = [e.surprise for e in ranking][EPISODES // 2]
    assert 0.5 < middle < 2.5  # about 1 is usual


def test_the_worst_steps_are_those_at_fault(run: Run) -> None:
    data = with_fault("stuck")
    ranking = rank_episodes(run, data)
    assert {step.step for e in ranking[:3] for step in e.worst[:2]} <= set(range(7, 13))
    episode = episode_shown_to(run, data, FAULTY[0])
    usual = usual_errors(run, data)
    steps = surprise_of_steps(run, episode, usual, 0, LENGTH)["actions"]
    assert steps[8:12].mean() > 5 * np.median(np.r_[steps[:7], steps[13:]])
    part = surprise_of_steps(run, episode, usual, 8, 14)["actions"]
    np.testing.assert_allclose(part[:4], steps[8:12], rtol=1e-4)  # the same segment


def test_what_is_absent_is_not_surprising_and_has_no_influence(run: Run) -> None:
    arrays = recording(1)
    known = np.ones((EPISODES, LENGTH), bool)
    known[:, 5:9] = False
    known[3] = False
    ranking = rank_episodes(run, dataset(arrays, {"actions": known}))
    assert "actions" not in next(e for e in ranking if e.episode == 3).modalities
    other = {**arrays, "actions": np.where(known[..., None], arrays["actions"], 9.0)}
    assert rank_episodes(run, dataset(other, {"actions": known})) == ranking
    data = dataset(arrays, {"actions": known})
    steps = surprise_of_steps(
        run, episode_shown_to(run, data, 0), usual_errors(run, data), 0, LENGTH
    )
    assert np.isnan(steps["actions"]).tolist() == (~known[0]).tolist()
    assert not np.isnan(steps["states"]).any()


def test_of_many_steps_some_are_looked_at() -> None:
    lengths = np.array([1000] * 50 + [3, 7])
    plan = plan_segments(lengths, 4, 2000, seed=0)
    assert sorted(e for e, _ in plan) == list(range(52))
    assert 2000 <= sum(4 * len(starts) for _, starts in plan) <= 2400
    for episode, starts in plan:
        assert len(set(starts.tolist())) == len(starts)
        assert starts.max() <= max(lengths[episode] - 4, 0)
    again = plan_segments(lengths, 4, 2000, seed=0)
    assert [(e, s.tolist()) for e, s in again] == [(e, s.tolist()) for e, s in plan]
    everything = dict(plan_segments(lengths, 4, 10**6, seed=0))
    assert everything[51].tolist() == [0, 3]
    assert len(everything[0]) == 250
    many = plan_segments(np.full(100_000, 500), 4, 2000, seed=0)
    assert 2000 <= sum(4 * len(starts) for _, starts in many) <= 2010  # of some episodes only


def test_a_perceptron_is_not_asked(run: Run) -> None:
    network = KnowsTheRule()
    network.config = replace(network.config, network="mlp")
    with pytest.raises(ConfigError, match="asked of a transformer"):
        rank_episodes(replace(run, model=network), dataset(recording(0)))
