"""One training at a time writes to a directory, and whoever is killed leaves no lock."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import mtm
from mtm.core.errors import ConfigError, RunError
from mtm.core.locks import locked
from mtm.runs.directory import LOCK, opened

TRAIN = [sys.executable, "-m", "mtm", "train", "--data", "builtin:point-mass", "--preset", "tiny"]
TRAIN += ["--threads", "1", "--checkpoint-every", "1000000", "--validate-every", "1000000"]


class Plain:
    """A description of nothing in particular."""

    def to_json(self) -> dict[str, int]:
        return {"format": 1}


@pytest.fixture
def under_way(out: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A training in a process of its own, with many steps to go."""
    words = [*TRAIN, "--out", str(out), "--steps", "1000000", "--log-every", "1"]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as process:
        try:
            file = out / "metrics.csv"
            while not file.exists() or file.read_text().count("\n") < 3:
                assert process.poll() is None
                time.sleep(0.05)
            yield process
        finally:
            process.kill()


def test_a_second_training_waits_for_the_end_of_the_first(under_way, point_mass, tiny, out) -> None:
    before = (out / "config.json").read_bytes()
    with pytest.raises(RunError, match="another process is training in .*run. Wait for its end"):
        mtm.train(point_mass, tiny, out, overwrite=True, silent=True)
    assert (out / "config.json").read_bytes() == before
    assert under_way.poll() is None
    under_way.kill()  # who is killed leaves no lock
    under_way.wait()
    assert mtm.train(point_mass, tiny, out, overwrite=True, silent=True).step == 20


def test_every_trainer_keeps_to_the_lock(tmp_path, point_mass, tiny) -> None:
    pytest.importorskip("torchrl", reason="the extra `baselines` is not installed")
    pytest.importorskip("gymnasium", reason="the extra `sim` is not installed")
    from mtm.research.baselines import agent_config, train_agent

    mtm.train(point_mass, tiny, tmp_path, silent=True, overwrite=True)
    settings = agent_config("iql", "tiny")
    with locked(tmp_path / LOCK):
        for way in ({}, {"resume": True}, {"overwrite": True}):
            with pytest.raises(RunError, match=r"another process is training .* Wait for its end"):
                mtm.train(point_mass, tiny, tmp_path, silent=True, **way)
            with pytest.raises(RunError, match="another process is training"):
                train_agent("iql", point_mass, settings, tmp_path, silent=True, **way)
    assert mtm.load_run(tmp_path).step == 20


def test_the_lock_is_given_back_after_an_error(tmp_path) -> None:
    out = tmp_path / "run"
    with pytest.raises(ZeroDivisionError), opened(out, Plain(), list):
        raise ZeroDivisionError
    with opened(out, Plain(), list, resume=True) as resuming:
        assert resuming


def test_what_differs_is_asked_for_only_when_resuming(tmp_path) -> None:
    out = tmp_path / "run"

    def found() -> list[str]:
        raise AssertionError("nothing was there to compare with")

    with opened(out, Plain(), found, resume=True) as resuming:
        assert not resuming
    with pytest.raises(RunError, match="(?s)cannot be resumed.*- seed: 0 -> 1"):
        opened(out, Plain(), lambda: ["seed: 0 -> 1"], resume=True).__enter__()
    with opened(out, Plain(), found, overwrite=True) as resuming:
        assert not resuming
    with pytest.raises(ConfigError, match="exclude each other"):
        opened(out, Plain(), found, resume=True, overwrite=True).__enter__()


def test_nothing_is_put_into_the_directory_of_somebody_else(tmp_path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(RunError, match="exists and is not a run"):
        opened(tmp_path, Plain(), list, overwrite=True).__enter__()
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    with pytest.raises(RunError, match="exists and is not a run"):
        opened(tmp_path / "thesis.tex", Plain(), list).__enter__()
    with pytest.raises(RunError, match="cannot make the (run )?directory"):
        opened(tmp_path / "thesis.tex" / "run", Plain(), list).__enter__()
