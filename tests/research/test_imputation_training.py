"""How specialists with their own budget are trained: to their end, over windows drawn anew."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch

from mtm.core.config import preset
from mtm.data.formats.stations import readings
from mtm.data.trajectories import TrajectoryDataset
from mtm.research.experiments import imputation
from mtm.research.experiments.scales import SCALES
from mtm.research.imputation import gaps, specialists
from mtm.research.imputation.names import SPECIALISTS
from mtm.research.imputation.samples import Logs

pytest.importorskip("pypots", reason="the extra `imputation` is not installed")
pytestmark = pytest.mark.filterwarnings("default")  # PyPOTS and what it brings do so by themselves


def given(name: str = "saits") -> tuple[Logs, dict[str, Any]]:
    """A few windows, and settings of `smoke`."""
    values = readings(episodes=12)[:, :64].reshape(12 * 64, 12)
    source = TrajectoryDataset.from_arrays({"states": values}, np.arange(13) * 64)
    logs = Logs.of(source, 3, imputation.for_gaps(preset("tiny")))
    specs = imputation.runs(SCALES["smoke"], ["builtin:stations"], 1)
    (settings,) = (s.settings["specialist"] for s in specs if s.method == f"{name}-own")
    return logs, {**settings, "epochs": 3, "patience": 3}


@pytest.mark.parametrize("name", SPECIALISTS)
def test_a_specialist_by_its_own_rule(name: str) -> None:
    logs, settings = given(name)
    learned = specialists.train_to_the_end(name, logs, settings, 0)
    assert 1 <= learned.epochs <= settings["epochs"]
    truth = logs.windows(logs.parts.test, 16, 3, seed=1)  # type: ignore[arg-type]
    hidden = logs.hidden_columns(gaps.draw("steps-30", len(truth), 16, 3, 0))
    filled = learned(truth, hidden)
    assert np.isfinite(filled.values).all()
    assert filled.values[~hidden] == pytest.approx(truth[~hidden], abs=1e-5)


def test_an_interrupted_specialist_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyPOTS by itself takes the epochs before an interruption for a training."""
    logs, settings = given()
    size = settings["batch_size"]
    batches = -(-max(logs.steps // settings["window"], size) // size)
    steps, backward = itertools.count(), torch.Tensor.backward

    def interrupted(loss: torch.Tensor) -> None:
        if next(steps) == batches:  # the first of the second epoch
            raise KeyboardInterrupt
        backward(loss)

    monkeypatch.setattr(torch.Tensor, "backward", interrupted)
    with pytest.raises(ValueError, match="best_loss"):
        specialists.train_to_the_end("saits", logs, settings, 0)
    assert next(steps) == batches + 1


def test_passes_are_counted_and_their_windows_drawn_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    logs, settings = given()
    drawn, training = [], specialists.Windows.training

    def noted(self: specialists.Windows, count: int, part: int) -> dict[str, Any]:
        drawn.append(training(self, count, part))
        return drawn[-1]

    monkeypatch.setattr(specialists.Windows, "training", noted)
    assert specialists.train_to_the_end("saits", logs, settings, 0).epochs == len(drawn) == 3
    assert not np.array_equal(drawn[0]["X"], drawn[1]["X"], equal_nan=True)


def test_it_ends_after_so_many_epochs_that_bring_nothing() -> None:
    logs, settings = given()
    found = specialists.train_to_the_end(
        "saits", logs, {**settings, "epochs": 200, "patience": 1}, 0
    )
    assert 1 < found.epochs < 200
