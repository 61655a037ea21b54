"""From values to tokens: an embedding of each modality, and the encoding of time.

Letters as in `mtm.models.mtm`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from mtm.data.modalities import Modality


class Embeddings(nn.ModuleDict):
    """A linear layer for each continuous modality, a table of vectors for each discrete one.

    Args:
        modalities: The streams, in autoregressive order.
        width: D.
    """

    def __init__(self, modalities: Sequence[Modality], width: int) -> None:
        super().__init__({m.name: _embedding(m, width) for m in modalities})
        self._modalities = tuple(modalities)

    def forward(self, values: Mapping[str, Tensor], visible: Tensor) -> Tensor:
        """Tokens of all modalities; what is not visible counts as zero, or as the first class.

        Args:
            values: Of each modality (B, T, *shape), or integer classes (B, T).
            visible: (B, T, M), on the device of the values.

        Returns:
            (B, T, M, D).
        """
        tokens = [
            self[m.name](_shown(m, values[m.name], visible[:, :, i]))  # (B, T, D)
            for i, m in enumerate(self._modalities)
        ]
        return torch.stack(tokens, dim=2)


def sinusoids(length: int, width: int) -> Tensor:
    """Fixed encoding of time: sines, then cosines, of falling frequency, (length, width).

    Wavelengths go from 2 steps to 4 segments. With the usual 2 pi to 10,000 steps most features
    would hardly change over a short segment, and its steps would look alike.
    """
    exponent = torch.arange(width // 2) / (width // 2)
    frequency = math.pi * torch.exp(-math.log(2.0 * length) * exponent)
    angle = torch.arange(length).unsqueeze(1) * frequency  # (length, width/2)
    return torch.cat([angle.sin(), angle.cos()], dim=1)


def _embedding(modality: Modality, width: int) -> nn.Module:
    if modality.kind == "discrete":
        return nn.Embedding(modality.classes, width)
    return nn.Linear(modality.size, width)


def _shown(modality: Modality, values: Tensor, visible: Tensor) -> Tensor:
    """What an embedding takes: (B, T, size), or classes (B, T); zero where nothing is visible."""
    if modality.kind == "discrete":
        return values.masked_fill(~visible, 0)
    flat = values.reshape(*visible.shape, modality.size)
    return flat.masked_fill(~visible.unsqueeze(-1), 0.0)
