"""The network of ExORL's actors and critics."""

from __future__ import annotations

from torch import nn


def normalised_perceptron(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    """Two hidden layers; the norm after the first keeps exploring agents from saturating."""
    return nn.Sequential(
        nn.Linear(inputs, hidden),
        nn.LayerNorm(hidden),
        nn.Tanh(),
        nn.Linear(hidden, hidden),
        nn.ReLU(),
        nn.Linear(hidden, outputs),
    )
