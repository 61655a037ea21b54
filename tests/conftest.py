"""Small data sets that the tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

# A test that looks whether Ray is there imports it, before the engine could say this.
os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")

from mtm.core.config import ModelConfig, TrainConfig
from mtm.data.formats import builtin
from mtm.data.modalities import Modality
from mtm.data.trajectories import Metadata, TrajectoryDataset

STATES = Modality("states", (3,), role="state")
RETURNS = Modality("returns", (), role="return")
ACTIONS = Modality("actions", (2,), role="action")


@pytest.fixture(autouse=True, scope="session")
def _threads() -> None:
    torch.set_num_threads(min(2, os.cpu_count() or 1))


@pytest.fixture(scope="module")
def _one_thread() -> Iterator[None]:
    """For networks so small that they are slower on several."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def _find_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process and its children find the environments of `point_mass_environment`."""
    folder = str(Path(__file__).parent)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", folder + os.pathsep + os.environ.get("PYTHONPATH", ""))


@pytest.fixture
def modalities() -> tuple[Modality, ...]:
    return (STATES, RETURNS, ACTIONS)


@pytest.fixture
def dataset() -> TrajectoryDataset:
    """Seven episodes, some shorter than a segment, whose values tell where they come from."""
    lengths = [9, 2, 5, 1, 12, 4, 7]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    steps = np.arange(offsets[-1], dtype=np.float32)
    return TrajectoryDataset.from_arrays(
        {
            "states": np.stack([steps, steps + 0.25, steps + 0.5], axis=1),
            "actions": np.stack([-steps, -steps - 0.5], axis=1),
            "rewards": steps % 3,
        },
        offsets,
        metadata=Metadata(horizon=20),
    )


@pytest.fixture(scope="session")
def point_mass() -> TrajectoryDataset:
    return builtin.point_mass(episodes=60, length=20)


@pytest.fixture
def tiny() -> TrainConfig:
    """Settings that train in about a second."""
    return TrainConfig(
        steps=20,
        batch_size=16,
        validation_segments=64,
        validate_every=10,
        checkpoint_every=10,
        log_every=5,
        model=ModelConfig(width=16, encoder_layers=1, heads=2, dropout=0.0),
    )


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "run"
