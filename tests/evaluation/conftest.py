"""Runs that the tests of the studio share; nobody may change them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from mtm.core.config import ModelConfig, TrainConfig
from mtm.core.reading import Reading
from mtm.data.formats import builtin
from mtm.training.train import train

if TYPE_CHECKING:
    import httpx

    from mtm.evaluation.studio.serving import Serving

QUICK = TrainConfig(
    steps=20,
    batch_size=32,
    validation_segments=64,
    validate_every=20,
    checkpoint_every=20,
    log_every=10,
    model=ModelConfig(width=16, encoder_layers=1, heads=2, dropout=0.0),
)

OWN_ENVIRONMENT = "point_mass_environment:PointMass-v0"

GEARS = Reading(
    columns={"motion": ("position", "speed"), "gear": ("gear",), "throttle": ("throttle",)},
    roles={"throttle": "action"},
)


def write_gears(path: Path, episodes: int = 12, length: int = 30) -> None:
    """A car's log: names of the user's own, classes, gaps, no environment."""
    rng = np.random.default_rng(0)
    throttle = rng.uniform(-1, 1, (episodes, length)).cumsum(axis=1) / 10
    speed = np.cumsum(throttle, axis=1) / 5
    gear = np.clip(np.floor(np.abs(speed)), 0, 4).astype(np.int64)
    arrays = {
        "position": np.cumsum(speed, axis=1),
        "speed": speed,
        "throttle": throttle,
        "gear": gear,
    }
    present = rng.random((episodes, length)) > 0.2
    present[0, 3], present[0, 5] = False, True
    lost = np.zeros((episodes, length), bool)
    lost[:, 10:14] = True
    np.savez(
        path,
        **{name: a.reshape(-1) for name, a in arrays.items()},
        gear_present=present.reshape(-1),
        throttle_present=~lost.reshape(-1),
        offsets=np.arange(0, episodes * length + 1, length),
    )


def trained(data: str | Path, config: TrainConfig, path: Path) -> Path:
    """Train with one thread: so small a network is slower on several."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    train(data, config, path)
    torch.set_num_threads(before)
    return path


@pytest.fixture(scope="session")
def hopper_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trained on builtin:hopper, so it has an environment."""
    return trained("builtin:hopper", QUICK, tmp_path_factory.mktemp("studio") / "hopper")


@pytest.fixture(scope="session")
def gears_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Modalities of the user's own names, one discrete, gaps, and no environment."""
    folder = tmp_path_factory.mktemp("studio")
    write_gears(folder / "gears.npz")
    return trained(folder / "gears.npz", replace(QUICK, reading=GEARS), folder / "gears")


@pytest.fixture(scope="session")
def module_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its data name an environment of the user's own, as MODULE:ID."""
    folder = tmp_path_factory.mktemp("studio")
    data = builtin.point_mass(40, 20)
    np.savez(
        folder / "point.npz",
        **{name: data.arrays[name] for name in data.names},
        offsets=np.append(data.starts, data.num_steps),
        env_id=OWN_ENVIRONMENT,
    )
    return trained(folder / "point.npz", QUICK, folder / "point")


@pytest.fixture(scope="session")
def serving(hopper_run: Path, gears_run: Path) -> Iterator[Serving]:
    """Runs 0 (hopper) and 1 (gears) with their data 0 and 1, on any port."""
    pytest.importorskip("starlette", reason="the extra `studio` is not installed")
    pytest.importorskip("uvicorn", reason="the extra `studio` is not installed")
    from mtm.evaluation.studio.serving import Serving

    with Serving([hopper_run, gears_run], port=0) as served:
        yield served


@pytest.fixture(scope="session")
def client(serving: Serving) -> Iterator[httpx.Client]:
    import httpx

    with httpx.Client(base_url=serving.address, timeout=60, trust_env=False) as opened:
        yield opened
