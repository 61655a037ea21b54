"""Files that crash or hang a library end a child process, and are told as errors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from mtm.cli import main
from mtm.core.errors import DataError
from mtm.core.reading import Reading
from mtm.data import isolated, loading


@pytest.fixture
def log(tmp_path: Path) -> Path:
    with h5py.File(tmp_path / "log.hdf5", "w") as file:
        file.attrs["env_id"] = "Hopper-v5"
        file["x"] = np.arange(12.0).reshape(6, 2)
        file["x_present"] = np.arange(6) != 2
        file["terminals"] = np.arange(6) % 3 == 2
    return tmp_path / "log.hdf5"


def test_what_is_read_apart_is_the_same(log: Path) -> None:
    reading = Reading(columns={"states": "x"})
    apart, here = loading.load(log, reading, isolated=True), loading.load(log, reading)
    assert apart.fingerprint == here.fingerprint
    assert apart.metadata == here.metadata
    assert apart.terminated is not None
    assert np.array_equal(apart.terminated, here.terminated)
    assert np.array_equal(apart.episode(0)["states"], here.episode(0)["states"], equal_nan=True)


def test_faults_and_notices_come_through(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "bad.npz"
    np.savez(bad, states=np.full((3, 1), np.nan), timeouts=np.zeros(3))
    with (
        pytest.warns(UserWarning, match="never fire"),
        pytest.raises(DataError, match="bad.npz: modality 'states', episode 0, step 0"),
    ):
        loading.load(bad, isolated=True)
    assert main(["data", "validate", str(log), "--isolated"]) == 0
    assert "2 episodes, 6 steps, no fault" in capsys.readouterr().out


def test_what_a_killed_reader_left_is_removed(log: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    (tmp_path / f"{isolated.PREFIX}{ended.pid}-x").mkdir()
    (tmp_path / f"{isolated.PREFIX}{os.getppid()}-x").mkdir()
    loading.load(log, isolated=True)
    left = {path.name for path in tmp_path.iterdir() if path.is_dir()}
    assert left == {f"{isolated.PREFIX}{os.getppid()}-x"}


def test_a_crash_is_an_error(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text("import os; os.abort()")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    with pytest.raises(DataError, match="log.hdf5: reading it ended its process .*SIGABRT"):
        loading.load(log, isolated=True)


def test_what_takes_for_ever_is_stopped(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text("while True: pass")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(isolated, "SECONDS", 0.5)
    with pytest.raises(DataError, match="took longer than 0.5 s and was stopped"):
        loading.load(log, isolated=True)
