"""Filling only what is asked."""

from __future__ import annotations

import numpy as np
import pytest

from mtm.inference.inputs import Given
from mtm.inference.windowing import fill
from mtm.runs.run import Run
from mtm.training.train import train


@pytest.fixture
def run(point_mass, tiny, out) -> Run:
    return train(point_mass, tiny, out, silent=True)


@pytest.fixture
def question(run, point_mass) -> Given:
    """Two episodes whose states 4 to 9 and actions 0 to 19 are hidden."""
    values = {n: point_mass.arrays[n][:40].reshape(2, 20, -1) for n in ("states", "actions")}
    visible = np.zeros((2, 20, len(run.modalities)), bool)
    visible[:, :, run.modalities.place("states")] = True
    visible[:, 4:10, run.modalities.place("states")] = False
    return Given(values, visible, batched=True)


def test_what_is_not_asked_is_not_answered(run, question) -> None:
    asked = np.zeros_like(question.visible)
    asked[0, 2:6] = True
    filled = fill(run, question, ["actions", "states"], asked)
    changed = {n: (filled[n] != question.values[n]).any(axis=2) for n in filled}
    assert np.argwhere(changed["actions"]).tolist() == [[0, s] for s in range(2, 6)]
    assert np.argwhere(changed["states"]).tolist() == [[0, 4], [0, 5]]


def test_all_that_is_hidden_is_asked_by_default(run, question) -> None:
    everything = fill(run, question, ["states"])["states"]
    asked = fill(run, question, ["states"], ~question.visible)["states"]
    assert np.array_equal(everything, asked)


def test_a_gap_within_what_is_not_asked(run, question) -> None:
    """Steps 6 and 7 have no known neighbour and never will: they are answered all the same."""
    asked = np.zeros_like(question.visible)
    asked[:, 6:8] = True
    filled = fill(run, question, ["states"], asked)["states"]
    changed = (filled != question.values["states"]).any(axis=2)
    assert np.argwhere(changed)[:, 1].tolist() == [6, 7, 6, 7]
