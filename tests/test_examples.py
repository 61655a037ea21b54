"""The examples run, with settings that take seconds."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "examples"
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
