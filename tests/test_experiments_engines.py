"""`mtm reproduce all` end to end: killed in the middle, begun again, and the same from Ray."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from mtm.cli import main
from mtm.experiments import EXPERIMENTS

pytest.importorskip("mujoco", reason="the extra `sim` is not installed")
pytest.importorskip("matplotlib", reason="the extra `report` is not installed")

WORDS = ["reproduce", "all", "--scale", "smoke"]
WAITING = ("td3",)
"""Methods that other parts of the project will bring; until then their runs fail."""


def finished(out: Path) -> dict[str, int]:
    """Run -> when its result was written."""
    return {f.parent.name: f.stat().st_mtime_ns for f in out.glob("runs/*/result.json")}


def sittings(out: Path, key: str) -> int:
    return (out / "runs" / key / "log.txt").read_text().count("--- ")


def check_failures(out: Path) -> None:
    """Only what waits for other parts has failed."""
    for file in out.glob("runs/*/failure.json"):
        spec = json.loads((file.parent / "spec.json").read_text())["spec"]
        assert spec["method"] in WAITING, file.read_text()


@pytest.fixture(scope="module")
def killed(tmp_path_factory) -> Path:
    """Results of a command that was killed in the middle and given again."""
    out = tmp_path_factory.mktemp("local")
    words = [sys.executable, "-m", "mtm", *WORDS, "--out", str(out)]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as first:
        while len(finished(out)) < 2 or not list(out.glob("runs/*/running.json")):
            assert first.poll() is None, "it ended before it could be killed"
            time.sleep(0.02)
        first.kill()
    before = finished(out)
    variables, threads = dict(os.environ), torch.get_num_threads()
    assert main([*WORDS, "--out", str(out)]) == 2
    assert (dict(os.environ), torch.get_num_threads()) == (variables, threads)
    after = finished(out)
    assert len(after) > len(before) >= 2
    assert {key: after[key] for key in before} == before
    assert all(sittings(out, key) == 1 for key in before)
    check_failures(out)
    return out


def test_every_experiment_has_its_page(killed: Path) -> None:
    for name in EXPERIMENTS:
        page = (killed / name / "README.md").read_text()
        assert "## Claims of the paper" in page
        assert f"mtm reproduce {name} --scale smoke" in page
        assert "not the paper's data" in page
        for picture in (killed / name).glob("*.png"):
            assert f"]({picture.name})" in page
    claims = json.loads((killed / "capabilities" / "results.json").read_text())["claims"]
    assert claims[0]["verdict"] in ("holds", "does not hold")
    assert "| hopper | MTM |" in (killed / "table1" / "README.md").read_text()
    origin = json.loads((killed / "length" / "results.json").read_text())["about"]["origins"][0]
    assert origin["versions"]["torch"]


def test_ray_gives_the_same_numbers(killed: Path, tmp_path: Path, monkeypatch) -> None:
    pytest.importorskip("ray", reason="the extra `ray` is not installed")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert main([*WORDS, "--engine", "ray", "--out", str(tmp_path)]) == 2
    check_failures(tmp_path)
    assert set(finished(tmp_path)) == set(finished(killed))
    for name in EXPERIMENTS:
        local, ray = (out / name / "results.csv" for out in (killed, tmp_path))
        assert local.read_text() == ray.read_text(), name
