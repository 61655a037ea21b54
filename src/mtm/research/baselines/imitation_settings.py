"""Settings of the agents that imitate what the data did; without torch or numpy.

Where each number comes from: docs/guides/baselines.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from mtm.core.config import ActionLoss
from mtm.core.config_io import report
from mtm.core.validators import (
    COUNT,
    COUNT_OR_NONE,
    LAYERS,
    LENGTH,
    NOT_NEGATIVE,
    POSITIVE,
    SHARE_BELOW_ALL,
    WIDTH,
    Range,
    outside,
)


@dataclass(frozen=True)
class BC10Config:
    """Behaviour cloning of the best episodes, by the perceptron of `mlp_config("bc")`.

    Raises:
        ConfigError: Listing every fault.
    """

    share: float = 0.1
    """Of the episodes that are cloned, those of the highest returns."""
    width: int = 512
    """Features of a hidden layer."""
    layers: int = 2
    """Hidden layers."""
    learning_rate: float = 2e-3
    """AdamW's, after the warm-up; cosine decay to 0 follows."""
    weight_decay: float = 0.01
    """AdamW's."""
    warmup_steps: int = 200
    """Steps of linear warm-up."""
    action_loss: ActionLoss = "squared"
    """As `TrainConfig.action_loss`."""

    def __post_init__(self) -> None:
        ranges = {
            "share": Range(0, 1, open_low=True),
            "width": WIDTH,
            "layers": LAYERS,
            "learning_rate": POSITIVE,
            "weight_decay": NOT_NEGATIVE,
            "warmup_steps": COUNT_OR_NONE,
        }
        report(outside(self, "bc10.", ranges))


@dataclass(frozen=True)
class DTConfig:
    """Decision Transformer.

    Raises:
        ConfigError: Listing every fault.
    """

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

    def __post_init__(self) -> None:
        faults = outside(self, "dt.", {"width": WIDTH, "heads": WIDTH})
        if not faults and self.width % self.heads:
            faults.append(f"dt.width {self.width} must be a multiple of dt.heads {self.heads}")
        ranges = {
            "context": LENGTH,
            "layers": LAYERS,
            "dropout": SHARE_BELOW_ALL,
            "learning_rate": POSITIVE,
            "weight_decay": NOT_NEGATIVE,
            "warmup_steps": COUNT_OR_NONE,
            "clip_norm": POSITIVE,
        }
        report(faults + outside(self, "dt.", ranges))


@dataclass(frozen=True)
class TTConfig:
    """Trajectory Transformer: tokens of numbers, and a plan by beam search.

    Raises:
        ConfigError: Listing every fault.
    """

    bins: int = 100
    """Values that a number can have: equally many of the data are in each."""
    context: int = 10
    """Steps of a segment to learn from."""
    width: int = 128
    """Features per token."""
    layers: int = 4
    """Transformer layers."""
    heads: int = 4
    """Attention heads; they divide the width."""
    dropout: float = 0.1
    """Share of activations dropped in training."""
    learning_rate: float = 6e-4
    """AdamW's, after the warm-up; cosine decay to a tenth follows."""
    weight_decay: float = 0.1
    """AdamW's, on matrices."""
    warmup_steps: int = 4000
    """Steps of linear warm-up."""
    action_weight: float = 5.0
    """Of an action's tokens in the loss, where others count once."""
    discount: float = 0.99
    """Factor per step, of returns and plans."""
    terminal_reward: float = -100.0
    """Takes the place of the reward of a step that ends in a terminal state."""
    history: int = 4
    """Past steps that a plan begins with."""
    window: int = 5
    """Steps that are seen at once while planning; older ones are forgotten."""
    horizon: int = 15
    """Steps of a plan."""
    beam: int = 128
    """Plans that are kept at each step, those of the highest returns."""
    expand: int = 2
    """Actions that are tried for each of them."""
    action_mass: float = 0.4
    """Actions are drawn from the most likely ones, which have this much of the probability."""

    def __post_init__(self) -> None:
        sizes = {"width": WIDTH, "heads": WIDTH, "context": LENGTH, "window": LENGTH}
        faults = outside(self, "tt.", sizes | {"history": COUNT_OR_NONE})
        if not faults and self.width % self.heads:
            faults.append(f"tt.width {self.width} must be a multiple of tt.heads {self.heads}")
        if not faults and self.width % 2:
            faults.append(f"tt.width must be even, got {self.width}")
        if not faults and not self.history < self.window <= self.context:
            faults.append(
                "tt.history must be below tt.window, and that at most tt.context, "
                f"got {self.history}, {self.window} and {self.context}"
            )
        ranges = {
            "bins": Range(2, 10_000, whole=True),
            "layers": LAYERS,
            "dropout": SHARE_BELOW_ALL,
            "learning_rate": POSITIVE,
            "weight_decay": NOT_NEGATIVE,
            "warmup_steps": COUNT_OR_NONE,
            "action_weight": NOT_NEGATIVE,
            "discount": Range(0, 1, open_low=True),
            "terminal_reward": Range(-1e30, 1e30),
            "horizon": COUNT,
            "beam": COUNT,
            "expand": COUNT,
            "action_mass": Range(0, 1, open_low=True),
        }
        report(faults + outside(self, "tt.", ranges))
