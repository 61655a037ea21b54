"""Runs that earlier versions wrote, kept as they left them, still load, answer and go on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np

import mtm
from mtm.runs.migrations import agent_settings

FORMAT_4 = Path(__file__).parent / "format-4"
"""Of the version before the rooms: point mass, 30 steps, with `drop` and `gaps`."""


def test_a_run_of_format_4_answers_as_it_did() -> None:
    run = mtm.load_run(FORMAT_4)
    assert run.step == 30
    config = run.description.train
    assert config.model.predict_variance
    assert (config.drop, config.gaps) == ({"actions": 0.3}, {"states": 0.1})
    states = mtm.load_dataset("builtin:point-mass").episode(0)["states"][:6]
    then = json.loads((FORMAT_4 / "inverse_dynamics.json").read_text())
    np.testing.assert_allclose(mtm.inverse_dynamics(run, states), then, atol=1e-6)


def test_a_run_of_format_4_goes_on(tmp_path: Path) -> None:
    out = tmp_path / "run"
    shutil.copytree(FORMAT_4, out)
    config = mtm.load_run(out).description.train
    assert mtm.train("builtin:point-mass", config, out, resume=True, silent=True).step == 30
    longer = mtm.TrainConfig.from_json({"steps": 32}, config)
    assert mtm.train("builtin:point-mass", longer, out, resume=True, silent=True).step == 32


def test_an_agent_with_an_action_loss_of_earlier_has_the_nearest() -> None:
    config = {"seed": 3, "bc10": {"action_loss": "cauchy", "width": 64}}
    found = agent_settings({"format": 7, "config": config})
    assert found == {"seed": 3, "bc10": {"action_loss": "absolute", "width": 64}}
    assert config["bc10"]["action_loss"] == "cauchy"  # what was read is not changed
