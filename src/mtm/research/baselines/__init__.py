"""What the masked model is compared with.

    mlp            a perceptron for one capability (RvS is the return-conditioned one)
    specialised    S-MTM, the transformer trained with the mask of one capability
    bc10           a perceptron that clones the best tenth of the episodes
    dt, iql, cql, td3_bc
                   offline RL agents on TorchRL's losses
    rebrac         one on losses of its own
    tt             a causal transformer over tokens of numbers, and plans by beam search
    mopo           soft actor-critic on what an ensemble of dynamics networks imagines

The first two are runs as any other: `mtm.train(data, mlp_config("fd"), out)`. The agents are
trained by `train_agent` and act through `Agent.policy`, in the same `mtm.control.rollout`.

The names are loaded when first used: TorchRL is an extra.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mtm.research.baselines.agent import Agent, load_agent
    from mtm.research.baselines.agent_training import train_agent
    from mtm.research.baselines.dynamics import DynamicsEnsemble
    from mtm.research.baselines.dynamics_fit import fit_dynamics
    from mtm.research.baselines.evaluation import evaluate_agent
    from mtm.research.baselines.mlp import mlp_config
    from mtm.research.baselines.settings import AGENTS, AgentConfig, agent_config
    from mtm.research.baselines.specialised import specialised_config

_HOMES = {
    "AGENTS": "settings",
    "Agent": "agent",
    "AgentConfig": "settings",
    "DynamicsEnsemble": "dynamics",
    "agent_config": "settings",
    "evaluate_agent": "evaluation",
    "fit_dynamics": "dynamics_fit",
    "load_agent": "agent",
    "mlp_config": "mlp",
    "specialised_config": "specialised",
    "train_agent": "agent_training",
}

__all__ = [
    "AGENTS",
    "Agent",
    "AgentConfig",
    "DynamicsEnsemble",
    "agent_config",
    "evaluate_agent",
    "fit_dynamics",
    "load_agent",
    "mlp_config",
    "specialised_config",
    "train_agent",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'mtm.research.baselines' has no attribute {name!r}")
    return getattr(importlib.import_module(f"mtm.research.baselines.{_HOMES[name]}"), name)
