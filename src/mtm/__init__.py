"""Masked trajectory models: choose what is visible, get the model you need.

The public names are loaded when first used, so that importing the package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mtm.core.config import ModelConfig, TrainConfig, preset
    from mtm.core.errors import MTMError
    from mtm.data.loading import load as load_dataset
    from mtm.data.modalities import Modality
    from mtm.data.normalizer import Normalizer
    from mtm.data.trajectories import Metadata, TrajectoryDataset
    from mtm.inference.encoders import StateActionEncoder, StateEncoder
    from mtm.inference.queries import (
        behavior_cloning,
        forward_dynamics,
        impute,
        inverse_dynamics,
        predict,
        reach_goal,
        represent,
        return_conditioned,
    )
    from mtm.inference.relabelling import relabel
    from mtm.masks import make_mask
    from mtm.models.mtm import MTM
    from mtm.runs.run import Run, load_run
    from mtm.training.train import train

__version__ = "0.1.0"

_HOMES = {
    "MTM": ("mtm.models.mtm", "MTM"),
    "MTMError": ("mtm.core.errors", "MTMError"),
    "Metadata": ("mtm.data.trajectories", "Metadata"),
    "Modality": ("mtm.data.modalities", "Modality"),
    "ModelConfig": ("mtm.core.config", "ModelConfig"),
    "Normalizer": ("mtm.data.normalizer", "Normalizer"),
    "Run": ("mtm.runs.run", "Run"),
    "StateActionEncoder": ("mtm.inference.encoders", "StateActionEncoder"),
    "StateEncoder": ("mtm.inference.encoders", "StateEncoder"),
    "TrainConfig": ("mtm.core.config", "TrainConfig"),
    "TrajectoryDataset": ("mtm.data.trajectories", "TrajectoryDataset"),
    "behavior_cloning": ("mtm.inference.queries", "behavior_cloning"),
    "forward_dynamics": ("mtm.inference.queries", "forward_dynamics"),
    "impute": ("mtm.inference.queries", "impute"),
    "inverse_dynamics": ("mtm.inference.queries", "inverse_dynamics"),
    "load_dataset": ("mtm.data.loading", "load"),
    "load_run": ("mtm.runs.run", "load_run"),
    "make_mask": ("mtm.masks", "make_mask"),
    "predict": ("mtm.inference.queries", "predict"),
    "preset": ("mtm.core.config", "preset"),
    "reach_goal": ("mtm.inference.queries", "reach_goal"),
    "relabel": ("mtm.inference.relabelling", "relabel"),
    "represent": ("mtm.inference.queries", "represent"),
    "return_conditioned": ("mtm.inference.queries", "return_conditioned"),
    "train": ("mtm.training.train", "train"),
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
