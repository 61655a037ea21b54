"""From the decoder's features to predictions: a head of each modality.

Letters as in `mtm.models.mtm`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from mtm.core.config import ModelConfig
from mtm.data.modalities import Modality
from mtm.models.packing import Layout, put, take
from mtm.models.products import Linear

LARGEST_LOG_VARIANCE = 5.0
"""Predicted log-variances stay within so much of -1, where they begin."""


class Predictions(NamedTuple):
    """What a network says of the tokens it was asked for.

    Attributes:
        values: For each modality with a wanted token (B, T, *shape), or logits (B, T, classes).
        log_variances: How far off each number is expected to be, for continuous modalities, of the
            same shapes; empty if the network does not say.
        expectiles: The upper expectile of returns, of the same shapes; empty without
            `model.values`.
    """

    values: dict[str, Tensor]
    log_variances: dict[str, Tensor]
    expectiles: dict[str, Tensor]

    def by_member(self, members: int) -> Predictions:
        """With a leading axis, from those of a batch of several members one after the other."""
        return Predictions(
            *({n: t.view(members, -1, *t.shape[1:]) for n, t in part.items()} for part in self)
        )

    def apart(self, members: int) -> list[Predictions]:
        """Those of each member, from those with a leading axis."""
        # At once, as indexing would make a gradient of the whole for each.
        parts = [{n: t.unbind() for n, t in part.items()} for part in self]
        return [
            Predictions(*({n: t[i] for n, t in part.items()} for part in parts))
            for i in range(members)
        ]


class Heads(nn.ModuleDict):
    """A norm and a two-layer perceptron for each modality.

    Args:
        modalities: The streams, in autoregressive order.
        config: `width`, and whether to `predict_variance` and `values`.
    """

    def __init__(self, modalities: Sequence[Modality], config: ModelConfig) -> None:
        super().__init__({m.name: _head(m, config) for m in modalities})
        self._modalities, self._config = tuple(modalities), config

    def forward(
        self, decoded: Tensor, batch: int, length: int, wanted: Layout | None = None
    ) -> Predictions:
        """Each modality's head on its own tokens.

        Args:
            decoded: All tokens, (B * L, D), or the wanted ones, packed.
            batch: B.
            length: T.
            wanted: Where the wanted tokens are; None if all are.

        Returns:
            Predictions, zero where a token is not wanted.
        """
        B, T, M = batch, length, len(self._modalities)
        predictions = Predictions({}, {}, {})
        # Taken apart at once, as slices would each make a gradient of the whole.
        parts = () if wanted is not None else decoded.view(B, T, M, -1).unbind(2)  # (B, T, D)
        for i, m in enumerate(self._modalities):
            if wanted is None:
                out = self[m.name](parts[i])  # (B, T, outputs)
            else:
                rows = wanted.by_modality[i]
                if not len(rows):
                    continue
                out = self[m.name](take(decoded, rows))  # (rows, outputs)
                out = put(out, wanted.tokens[rows] // M, B * T).view(B, T, -1)
            self.read(m, out, predictions)
        return predictions

    def read(
        self, m: Modality, out: Tensor, predictions: Predictions, *, values_only: bool = False
    ) -> None:
        """Note what a modality's head gives, (..., outputs), among the predictions."""
        if m.kind == "discrete":
            predictions.values[m.name] = out
            return
        predictions.values[m.name] = _unflatten(out[..., : m.size], m)
        if values_only:
            return
        if self._config.predict_variance:
            bounded = _bounded(out[..., m.size : 2 * m.size])
            predictions.log_variances[m.name] = _unflatten(bounded, m)
        if has_expectile(m, self._config):
            predictions.expectiles[m.name] = _unflatten(out[..., -m.size :], m)


def has_expectile(modality: Modality, config: ModelConfig) -> bool:
    """Whether the network also gives the upper expectile of a modality."""
    return config.values > 0 and modality.role == "return" and modality.kind == "continuous"


def _head(modality: Modality, config: ModelConfig) -> nn.Module:
    width = config.width
    kinds = 1 + config.predict_variance + has_expectile(modality, config)
    outputs = modality.classes if modality.kind == "discrete" else modality.size * kinds
    return nn.Sequential(
        nn.LayerNorm(width), Linear(width, width), nn.GELU(), nn.Linear(width, outputs)
    )


def _bounded(log_variance: Tensor) -> Tensor:
    """Log-variances within bounds, so that no token's weight in the loss runs away."""
    return LARGEST_LOG_VARIANCE * torch.tanh(log_variance / LARGEST_LOG_VARIANCE) - 1.0


def _unflatten(flat: Tensor, modality: Modality) -> Tensor:
    """(..., size) to (..., *shape)."""
    return flat.reshape(*flat.shape[:-1], *modality.shape)
