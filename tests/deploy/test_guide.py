"""The guide "From a log to a robot at 500 Hz": its programs, the robot's without PyTorch."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from docs.test_readme import ROOT, blocks

pytest.importorskip("onnxscript", reason="the extra `export` is not installed")

GUIDE = ROOT / "docs" / "guides" / "deploying.md"


def test_from_a_log_to_a_robot(
    python_without_torch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    train, export, robot, ask = blocks(GUIDE, "python")
    assert robot.startswith("# robot.py")
    names = {"__name__": "__main__"}
    for block in (train, export):
        exec(compile(block, str(GUIDE), "exec"), names)
    for program in ("import torch", robot + ask):
        words = [python_without_torch, "-I", "-W", "error", "-c", program]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if program == "import torch":
            assert "No module named 'torch'" in done.stderr
    assert done.returncode == 0, done.stderr
    measured = re.search(r"an action takes ([0-9.]+) ms", done.stdout)
    assert measured is not None
    assert float(measured.group(1)) < 100  # a busy machine; `make bench` says what it takes
