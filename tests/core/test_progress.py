"""Progress is shown on a terminal, and not to who asks for silence."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mtm.core.progress import silence
from mtm.data import loading
from mtm.training.train import train


@pytest.fixture
def episodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A folder of ExORL's form, whose loading shows a bar; standard output is a terminal."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    folder = tmp_path / "episodes"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for i in range(6):
        widths = {"observation": 3, "action": 2, "reward": 1}
        arrays = {key: rng.normal(size=(20, n)).astype(np.float32) for key, n in widths.items()}
        np.savez(folder / f"{i}.npz", **arrays, discount=np.ones((20, 1), np.float32))
    return str(folder)


def test_loading_shows_a_bar_unless_within_silence(episodes: str, capfd) -> None:
    loading.load(episodes)
    assert "6/6" in capfd.readouterr().out
    with silence(False):
        loading.load(episodes)
    assert "6/6" in capfd.readouterr().out
    with silence(), silence(False):
        loading.load(episodes)
    assert capfd.readouterr() == ("", "")
    loading.load(episodes)
    assert "6/6" in capfd.readouterr().out


def test_silent_training_shows_nothing_of_loading(episodes: str, tiny, tmp_path, capfd) -> None:
    train(episodes, replace(tiny, steps=2), tmp_path / "run", silent=True)
    assert capfd.readouterr() == ("", "")
