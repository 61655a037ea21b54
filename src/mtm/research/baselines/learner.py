"""What the trainer asks of an agent's mathematics, whichever it is."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from mtm.control.policies import ModelPolicy
from mtm.core.errors import require
from mtm.data.trajectories import TrajectoryDataset
from mtm.research.baselines.replay import Scaling
from mtm.research.baselines.settings import ON_TORCHRL, AgentConfig

HOMES = {
    "bc10": "BC10",
    "dt": "DT",
    "tt": "TT",
    "iql": "IQL",
    "cql": "CQL",
    "td3_bc": "TD3BC",
    "rebrac": "ReBRAC",
    "mopo": "MOPO",
}
"""The class of each agent, in the module of its name."""


class Learner(nn.Module, ABC):
    """Networks, losses and batches of one kind of agent; its state is all that training changes.

    Args:
        config: Settings.
        scaling: To and from the agent's units.
    """

    clip_norm = 0.0
    """Largest norm of the gradient; 0 for no clipping."""

    def __init__(self, config: AgentConfig, scaling: Scaling) -> None:
        super().__init__()
        self.config, self.scaling = config, scaling

    @property
    def device(self) -> torch.device:
        """Where the networks are."""
        return next(self.parameters()).device

    @abstractmethod
    def prepare(self, training: TrajectoryDataset) -> None:
        """Get ready to draw batches of these episodes."""

    @abstractmethod
    def groups(self) -> list[dict[str, Any]]:
        """Parameters for AdamW, with their learning rates and weight decays."""

    @abstractmethod
    def losses(self, step: int) -> dict[str, Tensor]:
        """The terms whose sum is minimised in a step, counted from 0."""

    def before_step(self, optimizer: torch.optim.Optimizer, step: int) -> None:
        """Set what changes from step to step, such as a learning rate."""

    def after_step(self, step: int) -> None:
        """Do what follows a step, such as letting target networks follow."""

    @abstractmethod
    def policy(self, target: float | None) -> ModelPolicy:
        """Act; `target` is the episode return to ask for, where the agent takes one."""


def make_learner(name: str, config: AgentConfig, scaling: Scaling) -> Learner:
    """The learner of an agent's name, with weights drawn from torch's generator.

    Raises:
        MissingExtraError: TorchRL is not installed, and the agent needs it.
    """
    if name in ON_TORCHRL:
        require("torchrl", extra="baselines")
    home = importlib.import_module(f"mtm.research.baselines.{name}")
    learner: Learner = getattr(home, HOMES[name])(config, scaling)
    return learner
