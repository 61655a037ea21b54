"""`mtm pack`, and the verbs that take what it makes, as a user types them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import mtm
from mtm.cli import main


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = replace(mtm.preset("tiny"), steps=2)
    place = tmp_path_factory.mktemp("runs") / "run"
    return mtm.train("builtin:point-mass", config, place, silent=True).path


@pytest.fixture
def packed(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert main(["pack", str(run), str(tmp_path / "run.mtm"), "--licence", "mit"]) == 0
    told = capsys.readouterr().out
    assert "checkpoints/step-000000002/model.safetensors" in told
    assert told.endswith("run.mtm\n")
    return tmp_path / "run.mtm"


def test_verbs_take_a_packed_run(packed: Path, tmp_path: Path) -> None:
    before = packed.read_bytes()
    scores = tmp_path / "scores.json"
    assert main(["eval", str(packed), "--tasks", "fd", "id", "--json", str(scores)]) == 0
    assert json.loads(scores.read_text())["tasks"]["fd"]["normalized"] > 0
    log, filled = tmp_path / "log.npz", tmp_path / "filled.npz"
    np.savez(log, states=np.zeros((6, 4)), offsets=[0, 6])
    words = ["--input", str(log), "--given", "states", "--want", "actions", "--output", str(filled)]
    assert main(["predict", str(packed), *words]) == 0
    assert np.load(filled)["actions"].shape == (6, 2)
    assert packed.read_bytes() == before


def test_a_report_of_a_packed_run(
    packed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib", reason="the extra report is not installed")
    assert main(["report", str(packed)]) == 2
    assert "name one with --out" in capsys.readouterr().err
    assert main(["report", str(packed), "--out", str(tmp_path / "report")]) == 0
    assert "2 steps in" in (tmp_path / "report" / "report.html").read_text()


def test_what_is_wrong_is_told_bare(
    run: Path, packed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pack", str(run), str(packed)]) == 2
    assert "exists already" in capsys.readouterr().err
    packed.write_bytes(packed.read_bytes()[:-1])
    assert main(["eval", str(packed)]) == 2
    assert "is not a packed run, or is cut off" in capsys.readouterr().err
    assert main(["push", str(run), "me/run"]) == 2
    assert "the form is hub:OWNER/NAME" in capsys.readouterr().err
    assert main(["serve", str(run), "--limits.sessions", "0"]) == 2
    assert "limits.sessions must be" in capsys.readouterr().err
