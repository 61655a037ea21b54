"""Masked trajectory models: choose what is visible, get the model you need.

The public names are loaded when first used, so that importing the package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mtm.config import ModelConfig, TrainConfig, preset
    from mtm.datasets import load as load_dataset
    from mtm.encoders import StateActionEncoder, StateEncoder
    from mtm.errors import MTMError
    from mtm.masks import make_mask
    from mtm.modalities import Modality
    from mtm.model import MTM
    from mtm.normalizer import Normalizer
    from mtm.queries import (
        behavior_cloning,
        forward_dynamics,
        impute,
        inverse_dynamics,
        predict,
        reach_goal,
        represent,
        return_conditioned,
    )
    from mtm.relabelling import relabel
    from mtm.run import Run, load_run
    from mtm.training import train
    from mtm.trajectories import Metadata, TrajectoryDataset

__version__ = "0.1.0"

_HOMES = {
    "MTM": ("mtm.model", "MTM"),
    "MTMError": ("mtm.errors", "MTMError"),
    "Metadata": ("mtm.trajectories", "Metadata"),
    "Modality": ("mtm.modalities", "Modality"),
    "ModelConfig": ("mtm.config", "ModelConfig"),
    "Normalizer": ("mtm.normalizer", "Normalizer"),
    "Run": ("mtm.run", "Run"),
    "StateActionEncoder": ("mtm.encoders", "StateActionEncoder"),
    "StateEncoder": ("mtm.encoders", "StateEncoder"),
    "TrainConfig": ("mtm.config", "TrainConfig"),
    "TrajectoryDataset": ("mtm.trajectories", "TrajectoryDataset"),
    "behavior_cloning": ("mtm.queries", "behavior_cloning"),
    "forward_dynamics": ("mtm.queries", "forward_dynamics"),
    "impute": ("mtm.queries", "impute"),
    "inverse_dynamics": ("mtm.queries", "inverse_dynamics"),
    "load_dataset": ("mtm.datasets", "load"),
    "load_run": ("mtm.run", "load_run"),
    "make_mask": ("mtm.masks", "make_mask"),
    "predict": ("mtm.queries", "predict"),
    "preset": ("mtm.config", "preset"),
    "reach_goal": ("mtm.queries", "reach_goal"),
    "relabel": ("mtm.relabelling", "relabel"),
    "represent": ("mtm.queries", "represent"),
    "return_conditioned": ("mtm.queries", "return_conditioned"),
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
    "StateActionEncoder",
    "StateEncoder",
    "TrainConfig",
    "TrajectoryDataset",
    "behavior_cloning",
    "forward_dynamics",
    "impute",
    "inverse_dynamics",
    "load_dataset",
    "load_run",
    "make_mask",
    "predict",
    "preset",
    "reach_goal",
    "relabel",
    "represent",
    "return_conditioned",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'mtm' has no attribute {name!r}")
    module, attribute = _HOMES[name]
    return getattr(importlib.import_module(module), attribute)


def __dir__() -> list[str]:
    return __all__
