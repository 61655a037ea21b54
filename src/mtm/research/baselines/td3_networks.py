"""TD3's networks: what the actor reads, what the critics read, and both."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from mtm.inference.encoders import StateActionEncoder, StateEncoder
from mtm.models.network import make_network
from mtm.research.baselines.stacked import layers_of, linear
from mtm.research.baselines.td3_config import TD3Config
from mtm.research.perceptron import normalised_perceptron
from mtm.runs.run import Run


class TD3Actor(nn.Module):
    """What the actor reads, to an action.

    Args:
        encoder: Trained with the actor; None if it reads what it is given.
        size: Of what it is given.
        hidden: Width of the hidden layers.
        low: Least action, (A,).
        high: Greatest action, (A,).
    """

    middle: Tensor
    reach: Tensor

    def __init__(
        self,
        encoder: StateEncoder | None,
        size: int,
        hidden: int,
        low: NDArray[np.float32],
        high: NDArray[np.float32],
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.body = head(size if encoder is None else encoder.features, hidden, len(low))
        self.register_buffer("middle", torch.from_numpy((low + high) / 2))
        self.register_buffer("reach", torch.from_numpy((high - low) / 2))

    def forward(self, observation: Tensor, noise: Tensor) -> Tensor:
        """(B, size) and noise for actions in [-1, 1], (B, A), to (B, A)."""
        x = observation if self.encoder is None else self.encoder(observation)
        action: Tensor = self.middle + self.reach * (self.body(x).tanh() + noise).clamp(-1, 1)
        return action


class StateActionPair(nn.Module):
    """A state and an action side by side, for the critics.

    Args:
        encoder: Of the state, trained with the critics; None if the state is taken as given.
    """

    def __init__(self, encoder: StateEncoder | None) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, state: Tensor, action: Tensor) -> Tensor:
        """(B, size) and (B, A) to (B, features + A)."""
        x = state if self.encoder is None else self.encoder(state)
        return torch.cat([x, action], dim=-1)


def head(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    """ExORL's network, with orthogonal weights to begin with, as its authors have them."""
    layers = normalised_perceptron(inputs, hidden, outputs)
    for layer in layers:
        if isinstance(layer, nn.Linear):
            nn.init.orthogonal_(layer.weight)
            nn.init.zeros_(layer.bias)
    return layers


class TD3Heads:
    """What `head` makes, with TorchRL's parameters; several of them work side by side.

    Args:
        parameters: TorchRL's, of one or of several heads.
    """

    def __init__(self, parameters: Any) -> None:
        parts = [(one["weight"], one["bias"]) for one in layers_of(parameters).values()]
        self._first, self._norm, self._second, self._out = parts

    def __call__(self, x: Tensor) -> Tensor:
        """(B, inputs) to (B, outputs), or to (heads, B, outputs)."""
        x = linear(x, *self._first)
        weight, bias = (part.unsqueeze(-2) for part in self._norm)
        x = torch.tanh(F.layer_norm(x, x.shape[-1:]) * weight + bias)
        return linear(torch.relu(linear(x, *self._second)), *self._out)


class StateNormalizer(nn.Module):
    """States in a run's units: less the mean, divided by the standard deviation.

    Args:
        run: A trained run with one modality of states.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, run: Run) -> None:
        super().__init__()
        statistics = run.normalizer.statistics[run.modalities.only("state").name]
        self.register_buffer("mean", torch.tensor(statistics.mean))
        self.register_buffer("std", torch.tensor(statistics.std))
        self.features = self.mean.numel()

    def forward(self, states: Tensor) -> Tensor:
        """Raw states, (..., size), to the same shape."""
        normalised: Tensor = (states - self.mean) / self.std
        return normalised


def run_for(config: TD3Config, run: Run | None) -> Run | None:
    """The run whose encoder a variant has: with weights drawn anew, if it is an untrained one."""
    if run is None or not config.variant.startswith("untrained-"):
        return run
    model = make_network(run.modalities, run.description.train.model)
    return replace(run, model=model.eval())


def frozen_observer(config: TD3Config, run: Run | None) -> StateEncoder | StateNormalizer | None:
    """What encodes states once and for all, if the variant has such a thing."""
    if run is not None and config.variant == "normalized":
        return StateNormalizer(run)
    if run is None or not config.variant.endswith("-frozen"):
        return None
    return StateEncoder(run, with_state=config.with_state)


def tuned_encoder(config: TD3Config, run: Run | None) -> StateEncoder | None:
    """A new encoder of states to be trained, if the variant has such a thing.

    It stays in evaluation mode: values estimated with dropout would be noise.
    """
    if run is None or not config.variant.endswith("-finetuned"):
        return None
    encoder = StateEncoder(run, trainable=True, with_state=config.with_state)
    encoder.eval()
    return encoder


def make_pair(config: TD3Config, run: Run | None) -> StateActionPair | StateActionEncoder:
    """What makes of a state and an action what the critics read."""
    if run is None or not config.variant.startswith("state-action-"):
        return StateActionPair(tuned_encoder(config, run))
    trainable = config.variant.endswith("-finetuned")
    encoder = StateActionEncoder(run, trainable=trainable, with_state=config.with_state)
    encoder.eval()
    return encoder
