"""Masked trajectory models: choose what is visible, get the model you need.

The public names are loaded when first used, so that importing the package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mtm.config import ModelConfig, TrainConfig, preset
    from mtm.datasets import load as load_dataset
    from mtm.errors import MTMError
    from mtm.masks import make_mask
    from mtm.model import MTM
    from mtm.normalizer import Normalizer
    from mtm.run import Run, load_run
    from mtm.training import train
    from mtm.trajectories import Metadata, Modality, TrajectoryDataset

__version__ = "0.1.0"

_HOMES = {
    "MTM": ("mtm.model", "MTM"),
    "MTMError": ("mtm.errors", "MTMError"),
    "Metadata": ("mtm.trajectories", "Metadata"),
    "Modality": ("mtm.trajectories", "Modality"),
    "ModelConfig": ("mtm.config", "ModelConfig"),
    "Normalizer": ("mtm.normalizer", "Normalizer"),
    "Run": ("mtm.run", "Run"),
    "TrainConfig": ("mtm.config", "TrainConfig"),
    "TrajectoryDataset": ("mtm.trajectories", "TrajectoryDataset"),
    "load_dataset": ("mtm.datasets", "load"),
    "load_run": ("mtm.run", "load_run"),
    "make_mask": ("mtm.masks", "make_mask"),
    "preset": ("mtm.config", "preset"),
    "train": ("mtm.training", "train"),
}

__all__ = [
    "MTM",
    "MTMError",
    "Metadata",
    "Modality",
    "ModelConfig",
    "Normalizer",
    "Run",
    "TrainConfig",
    "TrajectoryDataset",
    "load_dataset",
    "load_run",
    "make_mask",
    "preset",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'mtm' has no attribute {name!r}")
    module, attribute = _HOMES[name]
    return getattr(importlib.import_module(module), attribute)


def __dir__() -> list[str]:
    return __all__
