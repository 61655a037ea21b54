"""Runs, what was exported of them, and an environment in which there is no PyTorch."""

from __future__ import annotations

import logging
import sys
import venv
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

import mtm
from mtm.core.config import ModelConfig, ReturnsConfig, TrainConfig
from mtm.core.export_config import ExportConfig
from mtm.core.names import EXPORTABLE
from mtm.data.modalities import Modality
from mtm.data.trajectories import Metadata, TrajectoryDataset
from mtm.runs.run import Run
from mtm.training.train import train


@pytest.fixture(autouse=True, scope="session")
def _no_trace() -> None:
    """PyTorch writes much about every export to whoever listens, as pytest does."""
    logging.getLogger("torch.__trace").setLevel(logging.ERROR)


@pytest.fixture(scope="session")
def quick() -> TrainConfig:
    """Trains in a second: what is shown here does not depend on how good a model is."""
    return TrainConfig(
        steps=3,
        batch_size=16,
        validation_segments=16,
        validate_every=3,
        checkpoint_every=3,
        log_every=3,
        model=ModelConfig(width=16, encoder_layers=1, heads=2),
    )


@pytest.fixture(scope="session")
def hopper(quick: TrainConfig, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run on numbers."""
    return train("builtin:hopper", quick, tmp_path_factory.mktemp("hopper") / "run", silent=True)


@pytest.fixture(scope="session")
def exported(hopper: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything that can be exported of it."""
    pytest.importorskip("onnxscript", reason="the extra `export` is not installed")
    folder = tmp_path_factory.mktemp("exported") / "hopper"
    mtm.deploy.export(hopper, folder, ExportConfig(EXPORTABLE))
    return folder


@pytest.fixture(scope="session")
def maze(quick: TrainConfig, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of two members on classes with names of their own, whose returns are sums."""
    rng = np.random.default_rng(0)
    lengths = np.array([9, 12, 5, 14, 8, 11])
    steps = int(lengths.sum())
    arrays = {
        "cell": rng.integers(7, size=steps),
        "lever": rng.integers(3, size=steps),
        "paid": rng.normal(size=steps).astype(np.float32),
    }
    modalities = (
        Modality("cell", (), "discrete", 7),
        Modality("lever", (), "discrete", 3, role="action"),
        Modality("paid", (), role="reward"),
    )
    data = TrajectoryDataset.from_arrays(
        arrays,
        np.concatenate([[0], np.cumsum(lengths)]),
        modalities=modalities,
        metadata=Metadata(horizon=14),
    )
    model, returns = replace(quick.model, members=2), ReturnsConfig(kind="sum")
    config = replace(quick, model=model, returns=returns)
    run = train(data, config, tmp_path_factory.mktemp("maze") / "run", silent=True)
    noise = torch.Generator().manual_seed(2)
    with torch.no_grad():  # it has learned little: shaken, it chooses by what it sees
        for name, weight in run.model.named_parameters():
            if not name.endswith("bias"):
                weight += torch.randn(weight.shape, generator=noise)
    return run


@pytest.fixture(scope="session")
def python_without_torch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with NumPy, onnxruntime and this package, and nothing else."""
    pytest.importorskip("onnxruntime", reason="the extra `deploy` is not installed")
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder / "venv", with_pip=False, symlinks=True)
    libraries = folder / "libraries"
    libraries.mkdir()
    for name in ("numpy", "onnxruntime"):
        spec = find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        home = Path(spec.origin).parent
        for part in (home, home.with_name(f"{name}.libs")):
            if part.exists():
                (libraries / part.name).symlink_to(part)
    (libraries / "mtm").symlink_to(Path(mtm.__file__).parent)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = folder / "venv" / "lib" / version / "site-packages"
    (packages / "libraries.pth").write_text(f"{libraries}\n")
    return folder / "venv" / "bin" / "python"
