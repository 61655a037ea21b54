"""The examples run, with settings that take seconds."""

from __future__ import annotations

import runpy
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import mtm

FOLDER = Path(__file__).parents[2] / "examples"
ARGUMENTS = {
    "plain_torch.py": ["--pretraining-steps", "5", "--steps", "5"],
    "stable_baselines3_sac.py": (
        ["--pretraining-steps", "2", "--timesteps", "60", "--learning-starts", "50"]
    ),
    "torchrl_td3.py": ["--pretraining-steps", "5", "--updates", "3"],
}
NEEDS = {"stable_baselines3_sac.py": "stable_baselines3", "torchrl_td3.py": "torchrl"}
PRINTED = {
    "plain_torch.py": "variance of the returns",
    "stable_baselines3_sac.py": "return ",
    "torchrl_td3.py": "critics ",
}


def test_every_example_is_run() -> None:
    assert {file.name for file in FOLDER.glob("*.py")} == set(ARGUMENTS)


@pytest.mark.parametrize("trainable", [False, True], ids=["frozen", "trainable"])
@pytest.mark.parametrize("name", ARGUMENTS)
def test_an_example(
    name: str,
    trainable: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name], reason="its extra is not installed")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))  # where the examples pretrain
    extra = ["--trainable"] if trainable else []
    monkeypatch.setattr(sys, "argv", [name, *ARGUMENTS[name], *extra])
    runpy.run_path(str(FOLDER / name), run_name="__main__")
    assert PRINTED[name] in capsys.readouterr().out
    assert list(tmp_path.rglob("model.safetensors"))


def test_the_critics_of_an_example_differ(tmp_path: Path) -> None:
    pytest.importorskip("torchrl", reason="its extra is not installed")
    config = replace(mtm.preset("tiny"), steps=2, modalities=("states", "actions"))
    run = mtm.train("builtin:point-mass", config, tmp_path / "run", silent=True)
    make = runpy.run_path(str(FOLDER / "torchrl_td3.py"))["critic"]
    judges, values = zip(*(make(run, True) for _ in range(2)), strict=True)
    one, other = (judge.state_dict() for judge in judges)
    assert all(torch.equal(one[name], other[name]) for name in one)
    weights = [value.module[0].weight for value in values]
    assert not torch.equal(*weights)
