"""Settings of the offline RL agents; like `mtm.core.config`, without torch or numpy.

Where each number comes from: docs/guides/baselines.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from mtm.core.config_io import from_plain, report
from mtm.core.errors import ConfigError, unknown
from mtm.core.reading import Reading
from mtm.core.validators import COUNT, SEED, SHARE_BELOW_ALL, outside
from mtm.research.baselines.critic_settings import (
    CQLConfig,
    CriticConfig,
    DynamicsConfig,
    IQLConfig,
    MOPOConfig,
    ReBRACConfig,
    TD3BCConfig,
)
from mtm.research.baselines.imitation_settings import BC10Config, DTConfig, TTConfig
from mtm.research.baselines.mlp import mlp_config

AGENTS: tuple[str, ...] = ("bc10", "dt", "tt", "iql", "cql", "td3_bc", "rebrac", "mopo")
"""Cloning of the best tenth, Decision and Trajectory Transformer, implicit and conservative
Q-learning, TD3 with behaviour cloning, and with penalties in actor and critics, soft actor-critic
on a model."""

ON_TORCHRL: tuple[str, ...] = ("dt", "iql", "cql", "td3_bc", "mopo")
"""Those that need TorchRL, which is in the extra `baselines`."""


@dataclass(frozen=True)
class AgentConfig:
    """Everything that defines the training of an agent, besides its name and the data.

    Raises:
        ConfigError: Listing every fault.
    """

    steps: int = 10_000
    """Optimizer steps."""
    batch_size: int = 256
    """Transitions per step; of dt and tt, segments."""
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
    rebrac: ReBRACConfig = field(default_factory=ReBRACConfig)
    mopo: MOPOConfig = field(default_factory=MOPOConfig)
    dynamics: DynamicsConfig = field(default_factory=DynamicsConfig)
    bc10: BC10Config = field(default_factory=BC10Config)
    dt: DTConfig = field(default_factory=DTConfig)
    tt: TTConfig = field(default_factory=TTConfig)

    def __post_init__(self) -> None:
        counts = dict.fromkeys(("steps", "batch_size", "checkpoint_every", "log_every"), COUNT)
        ranges = counts | {"seed": SEED, "validation_fraction": SHARE_BELOW_ALL}
        report(outside(self, "", ranges))

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


def _cloning(scale: str, base: AgentConfig) -> AgentConfig:
    """What the perceptron of behaviour cloning has at a scale, for the best episodes only."""
    same = mlp_config("bc", scale)
    best = BC10Config(
        width=same.model.width,
        layers=same.model.encoder_layers,
        warmup_steps=same.optimizer.warmup_steps,
        action_loss=same.action_loss,
    )
    if same.optimizer.name == "adamw":  # else it has Muon, which agents do not
        rates = same.optimizer
        best = replace(best, learning_rate=rates.learning_rate, weight_decay=rates.weight_decay)
    return replace(base, steps=same.steps, batch_size=same.batch_size, bc10=best)


_SMALL = AgentConfig(
    steps=60,
    batch_size=32,
    checkpoint_every=30,
    log_every=10,
    critic=CriticConfig(width=32),
    dt=DTConfig(context=5, width=32, layers=1, warmup_steps=10),
    tt=TTConfig(
        bins=20,
        context=4,
        width=32,
        layers=1,
        heads=2,
        warmup_steps=10,
        history=1,
        window=3,
        horizon=3,
        beam=4,
    ),
    mopo=MOPOConfig(dynamics_steps=5, rollouts=16, horizon=3, imagine_every=4, kept=3),
    dynamics=DynamicsConfig(networks=3, elites=2, width=32, layers=2),
)
_PAPER = AgentConfig(steps=1_000_000, checkpoint_every=20_000, log_every=1000)
_REBRAC = CriticConfig(layers=3, learning_rate=1e-3, actor_learning_rate=1e-3)
_TT = TTConfig(
    context=5,
    width=64,
    layers=2,
    dropout=0.0,
    learning_rate=2e-3,
    warmup_steps=200,
    history=1,
    horizon=3,
    beam=8,
)
_MOPO = CriticConfig(actor_learning_rate=1e-4)

SCALES: dict[str, dict[str, AgentConfig]] = {
    "tiny": {**dict.fromkeys(AGENTS, _SMALL), "bc10": _cloning("tiny", _SMALL)},
    "cpu": {
        "bc10": _cloning("cpu", AgentConfig()),
        "dt": AgentConfig(steps=3000, batch_size=64, dt=DTConfig(context=10, dropout=0.0)),
        "tt": AgentConfig(steps=3000, batch_size=64, tt=_TT),
        "iql": AgentConfig(),
        "cql": AgentConfig(steps=5000),
        "td3_bc": AgentConfig(),
        "rebrac": AgentConfig(batch_size=256, critic=_REBRAC),
        "mopo": AgentConfig(steps=8000, critic=_MOPO),
    },
    "paper": {
        "bc10": _cloning("paper", _PAPER),
        "dt": replace(
            _PAPER,
            steps=100_000,
            batch_size=64,
            dt=DTConfig(learning_rate=1e-4, warmup_steps=100_000),
        ),
        "tt": replace(_PAPER, steps=200_000),
        "iql": _PAPER,
        "cql": replace(
            _PAPER,
            critic=CriticConfig(layers=3, actor_learning_rate=1e-4),
            cql=CQLConfig(sampled_actions=10),
        ),
        "td3_bc": _PAPER,
        "rebrac": replace(_PAPER, batch_size=1024, critic=_REBRAC),
        "mopo": replace(
            _PAPER,
            steps=3_100_000,
            critic=_MOPO,
            mopo=MOPOConfig(dynamics_steps=100_000, rollouts=50_000, imagine_every=1000),
        ),
    },
}
"""Settings by scale and agent."""
