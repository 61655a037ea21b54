"""Settings of the offline RL agents; like `mtm.core.config`, without torch or numpy.

Where each number comes from: docs/guides/baselines.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from mtm.core.config import Reading
from mtm.core.config_io import from_plain, raise_if
from mtm.core.errors import ConfigError, unknown
from mtm.core.validators import not_above_zero, outside_unit, too_low

AGENTS: tuple[str, ...] = ("dt", "iql", "cql", "td3_bc")
"""Decision Transformer, implicit and conservative Q-learning, TD3 with behaviour cloning."""


@dataclass(frozen=True)
class CriticConfig:
    """What IQL, CQL and TD3+BC share: perceptrons for the actor and two critics."""

    width: int = 256
    """Features of a hidden layer."""
    layers: int = 2
    """Hidden layers."""
    learning_rate: float = 3e-4
    """Adam's, of the critics."""
    actor_learning_rate: float = 3e-4
    """Adam's, of the actor."""
    discount: float = 0.99
    """Factor per step."""
    target_rate: float = 0.005
    """Share by which the target networks follow in a step."""

    def faults(self) -> list[str]:
        """Everything that is wrong."""
        names = ("learning_rate", "actor_learning_rate")
        faults = too_low(self, "critic.", {"width": 1, "layers": 1})
        faults += not_above_zero(self, "critic.", names)
        return faults + outside_unit(self, "critic.", ("discount", "target_rate"))


@dataclass(frozen=True)
class IQLConfig:
    """Implicit Q-learning."""

    expectile: float = 0.7
    """Of the critics' values that the state value estimates."""
    temperature: float = 3.0
    """How strongly the actor prefers actions of advantage."""

    def faults(self) -> list[str]:
        """Everything that is wrong."""
        return outside_unit(self, "iql.", ("expectile",)) + too_low(
            self, "iql.", {"temperature": 0}
        )


@dataclass(frozen=True)
class CQLConfig:
    """Conservative Q-learning."""

    conservatism: float = 5.0
    """Weight of the term that lowers the values of actions that are not in the data."""
    sampled_actions: int = 2
    """Actions of each kind (random, of the policy now and next) that the term samples."""

    def faults(self) -> list[str]:
        """Everything that is wrong."""
        return too_low(self, "cql.", {"conservatism": 0, "sampled_actions": 1})


@dataclass(frozen=True)
class TD3BCConfig:
    """TD3 with behaviour cloning."""

    alpha: float = 2.5
    """Weight of the values against cloning."""
    policy_noise: float = 0.2
    """Standard deviation of the noise on the target's actions."""
    noise_clip: float = 0.5
    """Largest noise."""
    actor_every: int = 2
    """Steps of the critics for one of the actor and the targets."""

    def faults(self) -> list[str]:
        """Everything that is wrong."""
        lows = {"alpha": 0, "policy_noise": 0, "noise_clip": 0, "actor_every": 1}
        return too_low(self, "td3_bc.", lows)


@dataclass(frozen=True)
class DTConfig:
    """Decision Transformer."""

    context: int = 20
    """Steps that the network sees at once."""
    width: int = 128
    """Features per token."""
    layers: int = 3
    """Transformer layers."""
    heads: int = 1
    """Attention heads; they divide the width."""
    dropout: float = 0.1
    """Share of activations dropped in training."""
    learning_rate: float = 1e-3
    """AdamW's, after the warm-up."""
    weight_decay: float = 1e-4
    """AdamW's."""
    warmup_steps: int = 200
    """Steps of linear warm-up; constant afterwards."""
    clip_norm: float = 0.25
    """Largest norm of the gradient."""

    def faults(self) -> list[str]:
        """Everything that is wrong."""
        lows = {"context": 1, "width": 1, "layers": 1, "heads": 1, "weight_decay": 0}
        faults = too_low(self, "dt.", lows | {"warmup_steps": 0})
        faults += not_above_zero(self, "dt.", ("learning_rate", "clip_norm"))
        if self.heads >= 1 and self.width % self.heads:
            faults.append(f"dt.width {self.width} must be a multiple of dt.heads {self.heads}")
        if not 0 <= self.dropout < 1:
            faults.append(f"dt.dropout must be in [0, 1), got {self.dropout}")
        return faults


@dataclass(frozen=True)
class AgentConfig:
    """Everything that defines the training of an agent, besides its name and the data.

    Raises:
        ConfigError: Listing every fault.
    """

    steps: int = 10_000
    """Optimizer steps."""
    batch_size: int = 256
    """Transitions per step; of dt, segments."""
    seed: int = 0
    """Makes weights, batches, noise and the split."""
    validation_fraction: float = 0.05
    """Share of the episodes that is held out, as for a run; the agents do not look at it."""
    checkpoint_every: int = 1000
    """Steps between checkpoints."""
    log_every: int = 100
    """Steps between rows of metrics.csv."""
    reading: Reading = field(default_factory=Reading)
    critic: CriticConfig = field(default_factory=CriticConfig)
    iql: IQLConfig = field(default_factory=IQLConfig)
    cql: CQLConfig = field(default_factory=CQLConfig)
    td3_bc: TD3BCConfig = field(default_factory=TD3BCConfig)
    dt: DTConfig = field(default_factory=DTConfig)

    def __post_init__(self) -> None:
        raise_if(self.faults())

    def faults(self) -> list[str]:
        """Everything that is wrong, here and in the parts."""
        lows = {"steps": 1, "batch_size": 1, "seed": 0, "checkpoint_every": 1, "log_every": 1}
        faults = too_low(self, "", lows)
        if not 0 <= self.validation_fraction < 1:
            faults.append(f"validation_fraction must be in [0, 1), got {self.validation_fraction}")
        for part in (self.reading, self.critic, self.iql, self.cql, self.td3_bc, self.dt):
            faults += part.faults()
        return faults

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> AgentConfig:
        """Settings from plain data; what is not mentioned has its default.

        Raises:
            ConfigError: Listing every unknown key, value of a wrong type, and fault.
        """
        return from_plain(data, cls())


def agent_config(name: str, scale: str = "cpu") -> AgentConfig:
    """The settings of an agent at a scale.

    Args:
        name: One of `AGENTS`.
        scale: `tiny` (seconds), `cpu` (minutes on a core) or `paper` (those of its publication).

    Raises:
        ConfigError: There is no such agent or scale.
    """
    check_agent(name)
    if scale not in SCALES:
        raise ConfigError(unknown("scale", scale, SCALES))
    return SCALES[scale][name]


def check_agent(name: str) -> None:
    """Raise a `ConfigError` unless there is an agent of that name."""
    if name not in AGENTS:
        raise ConfigError(unknown("agent", name, AGENTS))


_SMALL = AgentConfig(
    steps=60,
    batch_size=32,
    checkpoint_every=30,
    log_every=10,
    critic=CriticConfig(width=32),
    dt=DTConfig(context=5, width=32, layers=1, warmup_steps=10),
)
_PAPER = AgentConfig(steps=1_000_000, checkpoint_every=20_000, log_every=1000)

SCALES: dict[str, dict[str, AgentConfig]] = {
    "tiny": dict.fromkeys(AGENTS, _SMALL),
    "cpu": {
        "dt": AgentConfig(steps=3000, batch_size=64, dt=DTConfig(context=10, dropout=0.0)),
        "iql": AgentConfig(),
        "cql": AgentConfig(steps=5000),
        "td3_bc": AgentConfig(),
    },
    "paper": {
        "dt": replace(
            _PAPER,
            steps=100_000,
            batch_size=64,
            dt=DTConfig(learning_rate=1e-4, warmup_steps=100_000),
        ),
        "iql": _PAPER,
        "cql": replace(
            _PAPER,
            critic=CriticConfig(layers=3, actor_learning_rate=1e-4),
            cql=CQLConfig(sampled_actions=10),
        ),
        "td3_bc": _PAPER,
    },
}
"""Settings by scale and agent."""
