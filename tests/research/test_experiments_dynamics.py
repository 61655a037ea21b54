"""The experiment of open-loop dynamics: its runs, its table, and the ensemble by itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mtm.core.errors import RunError
from mtm.research.experiments import dynamics, train_dynamics
from mtm.research.experiments.data import facts
from mtm.research.experiments.execute import read
from mtm.research.experiments.runner import Result
from mtm.research.experiments.scales import SCALES
from mtm.research.experiments.spec import RunSpec

DATA = "builtin:point-mass"
SMOKE = SCALES["smoke"]


def made_up(spec: RunSpec) -> Result:
    of = spec.needs[0].method if spec.needs else spec.method
    rate = {"mtm": 1.0, "ensemble": 2.0, "mlp": 1.0}[of] + 0.001 * spec.seed
    errors = [rate * k for k in range(1, 51)]
    value = {"errors": errors, "copied": [9.0] * 50, "seconds": 1.0}
    return Result(spec, facts(DATA), value, None, None)


def test_it_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra `report` is not installed")
    specs = dynamics.runs(SMOKE, [DATA], 3)
    assert [s.method for s in specs] == ["open-loop", "open-loop", "ensemble"] * 3
    drawn = dynamics.draw([made_up(spec) for spec in specs], tmp_path)
    rows = {row[1]: row[2:] for row in drawn.tables[0].rows}
    assert rows["MTM"][:2] == ["3", "1.0010 ± 0.0010 [0.9985, 1.0035]"]
    assert rows["MOPO's ensemble"][-1].startswith("100.0500")
    assert rows["copying the last state"][1].startswith("9.0000")
    verdicts = {c.text: c.verdict for c in drawn.claims}
    assert verdicts["1 step(s) ahead, MTM predicts as well as MOPO's ensemble"] == "supported"
    assert verdicts["50 step(s) ahead, MTM predicts as well as MLP"] == "supported"
    assert len(verdicts) == 6
    assert len(drawn.records) == 200
    assert (tmp_path / "dynamics.png").stat().st_size > 5000
    none = [replace(made_up(spec), value=None) for spec in specs]
    assert {c.verdict for c in dynamics.draw(none, tmp_path).claims} == {"not measured"}


def ensemble(**changes: int) -> RunSpec:
    (spec,) = (s for s in dynamics.runs(SMOKE, [DATA], 1) if s.method == "ensemble")
    return replace(spec, settings=spec.settings | {"open_loop": {"history": 3, **changes}})


def test_the_ensemble_is_trained_once_and_learns(tmp_path: Path) -> None:
    spec = ensemble(horizon=5)
    longer = spec.settings["ensemble"] | {"steps": 150, "batch_size": 64}
    spec = replace(spec, settings=spec.settings | {"ensemble": longer})
    first = train_dynamics.run(spec, tmp_path, [])
    assert len(first["errors"]) == 5
    assert first["errors"][0] < 0.5 * first["copied"][0]
    trained = (tmp_path / "dynamics.safetensors").stat().st_mtime_ns
    assert train_dynamics.run(spec, tmp_path, []) == first
    assert (tmp_path / "dynamics.safetensors").stat().st_mtime_ns == trained
    assert first["seconds"] == read(tmp_path / "seconds.json")["seconds"]


def test_episodes_that_are_too_short_are_said(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no test episode has 5000 steps after the 3"):
        train_dynamics.run(ensemble(horizon=5000), tmp_path, [])


def test_predictions_are_chained() -> None:
    class AddsUp:
        def predict(self, states, actions):
            return type("Prediction", (), {"next_states": states + actions})

    actions = np.arange(6.0).reshape(1, 3, 2)
    found = train_dynamics.chained(AddsUp(), np.ones((1, 2)), actions)  # type: ignore[arg-type]
    assert found.tolist() == [[[1.0, 2.0], [3.0, 5.0], [7.0, 10.0]]]
