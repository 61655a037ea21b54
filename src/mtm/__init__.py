"""Masked trajectory models: choose what is visible, get the model you need.

The public names are loaded when first used, so that importing the package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mtm import deploy, masks
    from mtm.control import policies
    from mtm.control.rollout import rollout
    from mtm.core.config import (
        DeviceConfig,
        ModelConfig,
        OptimizerConfig,
        ReturnsConfig,
        TrainConfig,
        preset,
    )
    from mtm.core.errors import ConfigError, DataError, MissingExtraError, MTMError, RunError
    from mtm.core.reading import Reading
    from mtm.data.loading import load as load_dataset
    from mtm.data.modalities import Modality
    from mtm.data.normalizer import Normalizer
    from mtm.data.trajectories import Metadata, TrajectoryDataset
    from mtm.evaluation.doctor.examine import doctor
    from mtm.evaluation.evaluate import EvalConfig, evaluate
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
    from mtm.masks.make import make_mask
    from mtm.models.mtm import MTM
    from mtm.runs.run import Run, load_run
    from mtm.training.train import train

__version__ = "0.1.0"

_HOMES = {
    # Data
    "load_dataset": "mtm.data.loading:load",
    "TrajectoryDataset": "mtm.data.trajectories",
    "Metadata": "mtm.data.trajectories",
    "Modality": "mtm.data.modalities",
    "Reading": "mtm.core.reading",
    "Normalizer": "mtm.data.normalizer",
    # Training
    "preset": "mtm.core.config",
    "TrainConfig": "mtm.core.config",
    "ModelConfig": "mtm.core.config",
    "OptimizerConfig": "mtm.core.config",
    "ReturnsConfig": "mtm.core.config",
    "DeviceConfig": "mtm.core.config",
    "make_mask": "mtm.masks.make",
    "train": "mtm.training.train",
    "MTM": "mtm.models.mtm",
    # A run, and what one asks it
    "Run": "mtm.runs.run",
    "load_run": "mtm.runs.run",
    "predict": "mtm.inference.queries",
    "impute": "mtm.inference.queries",
    "forward_dynamics": "mtm.inference.queries",
    "inverse_dynamics": "mtm.inference.queries",
    "behavior_cloning": "mtm.inference.queries",
    "return_conditioned": "mtm.inference.queries",
    "reach_goal": "mtm.inference.queries",
    "represent": "mtm.inference.queries",
    "relabel": "mtm.inference.relabelling",
    "StateEncoder": "mtm.inference.encoders",
    "StateActionEncoder": "mtm.inference.encoders",
    # Acting and measuring
    "rollout": "mtm.control.rollout",
    "evaluate": "mtm.evaluation.evaluate",
    "EvalConfig": "mtm.evaluation.evaluate",
    "doctor": "mtm.evaluation.doctor.examine",
    # Errors
    "MTMError": "mtm.core.errors",
    "ConfigError": "mtm.core.errors",
    "DataError": "mtm.core.errors",
    "RunError": "mtm.core.errors",
    "MissingExtraError": "mtm.core.errors",
}
"""Public name -> its module, and the name there if it is another."""

_MODULES = {"deploy": "mtm.deploy", "masks": "mtm.masks", "policies": "mtm.control.policies"}
"""Public modules."""

__all__ = [
    "MTM",
    "ConfigError",
    "DataError",
    "DeviceConfig",
    "EvalConfig",
    "MTMError",
    "Metadata",
    "MissingExtraError",
    "Modality",
    "ModelConfig",
    "Normalizer",
    "OptimizerConfig",
    "Reading",
    "ReturnsConfig",
    "Run",
    "RunError",
    "StateActionEncoder",
    "StateEncoder",
    "TrainConfig",
    "TrajectoryDataset",
    "behavior_cloning",
    "deploy",
    "doctor",
    "evaluate",
    "forward_dynamics",
    "impute",
    "inverse_dynamics",
    "load_dataset",
    "load_run",
    "make_mask",
    "masks",
    "policies",
    "predict",
    "preset",
    "reach_goal",
    "relabel",
    "represent",
    "return_conditioned",
    "rollout",
    "train",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    if name not in _HOMES:
        raise AttributeError(f"module 'mtm' has no attribute {name!r}")
    module, _, attribute = _HOMES[name].partition(":")
    return getattr(importlib.import_module(module), attribute or name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
