"""Settings of the agents that imitate what the data did; without torch or numpy.

Where each number comes from: docs/guides/baselines.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from mtm.core.config_io import report
from mtm.core.validators import (
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
