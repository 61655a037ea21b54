"""`mtm reproduce all` end to end, killed in the middle and begun again; the same from Ray."""

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
from mtm.cli.reproduce import BY_ALL

pytest.importorskip("mujoco", reason="the extra `sim` is not installed")
pytest.importorskip("matplotlib", reason="the extra `report` is not installed")
pytest.importorskip("torchrl", reason="the extra `baselines` is not installed")

WORDS = ["reproduce", "all", "--scale", "smoke"]


def finished(out: Path) -> dict[str, int]:
    """Run -> when its result was written."""
    return {f.parent.name: f.stat().st_mtime_ns for f in out.glob("runs/*/result.json")}


def sittings(out: Path, key: str) -> int:
    return (out / "runs" / key / "log.txt").read_text().count("--- ")


def numbers(out: Path, name: str) -> list[str]:
    """The results of an experiment, without those that depend on time."""
    lines = (out / name / "results.csv").read_text().splitlines()
    return [line for line in lines if "seconds" not in line]


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
    assert main([*WORDS, "--out", str(out)]) == 0
    assert (dict(os.environ), torch.get_num_threads()) == (variables, threads)
    after = finished(out)
    assert len(after) > len(before) >= 2
    assert {key: after[key] for key in before} == before
    assert all(sittings(out, key) == 1 for key in before)
    return out


def test_every_experiment_has_its_page(killed: Path) -> None:
    for name in BY_ALL:
        page = (killed / name / "README.md").read_text()
        assert "## Claims of the paper" in page
        assert f"mtm reproduce {name} --scale smoke" in page
        assert "not the paper's data" in page
        for picture in (killed / name).glob("*.png"):
            assert f"]({picture.name})" in page
    claims = json.loads((killed / "capabilities" / "results.json").read_text())["claims"]
    assert claims[0]["verdict"] == "undecided"  # one seed
    table = (killed / "table1" / "README.md").read_text()
    for method in ("MTM", "10 %BC (MLP)", "Trajectory Transformer", "MOPO", "ReBRAC, longer"):
        assert f"| hopper | {method} | 1 |" in table
    assert "| hopper | MOPO's ensemble | 1 |" in (killed / "dynamics" / "README.md").read_text()
    origin = json.loads((killed / "length" / "results.json").read_text())["about"]["origins"][0]
    assert origin["versions"]["torch"]


def test_ray_gives_the_same_numbers(killed: Path, tmp_path: Path, monkeypatch) -> None:
    pytest.importorskip("ray", reason="the extra `ray` is not installed")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert main([*WORDS, "--engine", "ray", "--out", str(tmp_path)]) == 0
    assert set(finished(tmp_path)) == set(finished(killed))
    for name in BY_ALL:
        assert len(numbers(killed, name)) > 1
        assert numbers(killed, name) == numbers(tmp_path, name)
