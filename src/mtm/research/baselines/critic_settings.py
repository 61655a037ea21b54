"""Settings of the agents that learn values; without torch or numpy.

Where each number comes from: docs/guides/baselines.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from mtm.core.config_io import report
from mtm.core.validators import (
    COUNT,
    INSIDE_UNIT,
    LAYERS,
    NOT_NEGATIVE,
    POSITIVE,
    SHARE,
    WIDTH,
    outside,
)


@dataclass(frozen=True)
class CriticConfig:
    """What IQL, CQL, TD3+BC, ReBRAC and MOPO share: perceptrons for actor and two critics.

    Raises:
        ConfigError: Listing every fault.
    """

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

    def __post_init__(self) -> None:
        ranges = {
            "width": WIDTH,
            "layers": LAYERS,
            "learning_rate": POSITIVE,
            "actor_learning_rate": POSITIVE,
            "discount": INSIDE_UNIT,
            "target_rate": INSIDE_UNIT,
        }
        report(outside(self, "critic.", ranges))


@dataclass(frozen=True)
class IQLConfig:
    """Implicit Q-learning.

    Raises:
        ConfigError: Listing every fault.
    """

    expectile: float = 0.7
    """Of the critics' values that the state value estimates."""
    temperature: float = 3.0
    """How strongly the actor prefers actions of advantage."""

    def __post_init__(self) -> None:
        report(outside(self, "iql.", {"expectile": INSIDE_UNIT, "temperature": NOT_NEGATIVE}))


@dataclass(frozen=True)
class CQLConfig:
    """Conservative Q-learning.

    Raises:
        ConfigError: Listing every fault.
    """

    conservatism: float = 5.0
    """Weight of the term that lowers the values of actions that are not in the data."""
    sampled_actions: int = 2
    """Actions of each kind (random, of the policy now and next) that the term samples."""

    def __post_init__(self) -> None:
        report(outside(self, "cql.", {"conservatism": NOT_NEGATIVE, "sampled_actions": COUNT}))


@dataclass(frozen=True)
class TD3BCConfig:
    """TD3 with behaviour cloning.

    Raises:
        ConfigError: Listing every fault.
    """

    alpha: float = 2.5
    """Weight of the values against cloning."""
    policy_noise: float = 0.2
    """Standard deviation of the noise on the target's actions."""
    noise_clip: float = 0.5
    """Largest noise."""
    actor_every: int = 2
    """Steps of the critics for one of the actor and the targets."""

    def __post_init__(self) -> None:
        ranges = dict.fromkeys(("alpha", "policy_noise", "noise_clip"), NOT_NEGATIVE)
        report(outside(self, "td3_bc.", ranges | {"actor_every": COUNT}))


@dataclass(frozen=True)
class ReBRACConfig:
    """TD3 with a penalty on the distance to the data's actions in the actor and in the critics.

    Raises:
        ConfigError: Listing every fault.
    """

    actor_penalty: float = 0.01
    """Weight of the squared distance to the data's action, in the actor's loss."""
    critic_penalty: float = 0.01
    """Weight of the squared distance to the data's next action, in the critics' targets."""
    policy_noise: float = 0.2
    """Standard deviation of the noise on the target's actions."""
    noise_clip: float = 0.5
    """Largest noise."""
    actor_every: int = 2
    """Steps of the critics for one of the actor and the targets."""

    def __post_init__(self) -> None:
        numbers = ("actor_penalty", "critic_penalty", "policy_noise", "noise_clip")
        ranges = dict.fromkeys(numbers, NOT_NEGATIVE)
        report(outside(self, "rebrac.", ranges | {"actor_every": COUNT}))


@dataclass(frozen=True)
class DynamicsConfig:
    """An ensemble of networks that each predict the next state and the reward, and how surely.

    Raises:
        ConfigError: Listing every fault.
    """

    networks: int = 7
    """In the ensemble."""
    elites: int = 5
    """Those of the least held-out error, which predict."""
    width: int = 200
    """Features of a hidden layer."""
    layers: int = 4
    """Hidden layers."""
    learning_rate: float = 1e-3
    """Adam's."""
    weight_decay: float = 5e-5
    """Weight of half the sum of squared weights, in the loss."""

    def __post_init__(self) -> None:
        counts = dict.fromkeys(("networks", "elites"), COUNT)
        sizes = {"width": WIDTH, "layers": LAYERS}
        rates = {"learning_rate": POSITIVE, "weight_decay": NOT_NEGATIVE}
        faults = outside(self, "dynamics.", counts | sizes | rates)
        if not faults and self.elites > self.networks:
            faults.append(
                f"dynamics.elites must be at most dynamics.networks {self.networks}, "
                f"got {self.elites}"
            )
        report(faults)


@dataclass(frozen=True)
class MOPOConfig:
    """Soft actor-critic on imagined transitions whose rewards are lower where they are unsure.

    Raises:
        ConfigError: Listing every fault.
    """

    dynamics_steps: int = 3000
    """The first steps, which train the dynamics; the others train actor and critics."""
    horizon: int = 5
    """Steps that are imagined from a state of the data."""
    penalty: float = 2.5
    """Weight of the uncertainty that is taken off rewards."""
    real_share: float = 0.05
    """Of each batch, transitions of the data."""
    rollouts: int = 2000
    """Of `horizon` steps, imagined at a time."""
    imagine_every: int = 250
    """Steps from one time to the next."""
    kept: int = 5
    """Times that are kept, the newest."""

    def __post_init__(self) -> None:
        names = ("dynamics_steps", "horizon", "rollouts", "imagine_every", "kept")
        ranges = dict.fromkeys(names, COUNT)
        ranges |= {"penalty": NOT_NEGATIVE, "real_share": SHARE}
        report(outside(self, "mopo.", ranges))
