"""A perceptron for one capability: what the masked transformer is compared with.

It is called as `mtm.MTM` is, so that training, checkpoints, queries, policies and evaluation
are the same. It takes all tokens of a segment side by side, with zeros where they are hidden, and
gives all tokens back. One network answers one mask: see `mtm.research.baselines.mlp_config`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mtm.core.config import ModelConfig
from mtm.data.modalities import Modality
from mtm.models.dropout import drop
from mtm.models.heads import Predictions
from mtm.models.lines import add_lines


class MLP(nn.Module):
    """Hidden layers with GELU over the visible tokens of a segment, laid side by side.

    Args:
        modalities: The streams, in autoregressive order.
        config: `width` and `encoder_layers` are the size and the number of the hidden layers.
    """

    def __init__(self, modalities: Sequence[Modality], config: ModelConfig) -> None:
        super().__init__()
        self.modalities, self.config = tuple(modalities), config
        self.members = 1  # more where `mtm.models.members` stacks several networks
        self._sizes = [token_size(m) for m in modalities]
        step = sum(self._sizes)
        widths = [config.segment_length * step, *[config.width] * config.encoder_layers]
        self.hidden = nn.ModuleList(nn.Linear(before, after) for before, after in pairwise(widths))
        self.out = nn.Linear(config.width, config.segment_length * step)

    def forward(
        self, values: Mapping[str, Tensor], visible: Tensor, wanted: Tensor | None = None
    ) -> Predictions:
        """Predict all tokens of whole segments; arguments and results as for `MTM`.

        `wanted` saves no work here, and is left alone.
        """
        B, T, _ = visible.shape
        shown = visible.to(self.out.weight.device, non_blocking=True)
        tokens = [_flat(m, values[m.name], shown[:, :, i]) for i, m in enumerate(self.modalities)]
        x = torch.cat(tokens, dim=2).flatten(1)  # (B, T * sizes)
        for layer in self.hidden:
            x = F.gelu(layer(x))
            if self.training and self.config.dropout:
                x = drop(x, self.config.dropout)
        E = self.members
        parts = self.out(x).view(E * B, T, -1).split(self._sizes, dim=2)
        numbers = {
            m.name: part if m.kind == "discrete" else part.reshape(E * B, T, *m.shape)
            for m, part in zip(self.modalities, parts, strict=True)
        }
        predictions = Predictions(numbers, {}, {})
        if E > 1:
            predictions = predictions.by_member(E)
        if self.config.residual:
            add_lines(self.modalities, predictions.values, values, visible.cpu())
        return predictions

    def input_layers(self) -> list[nn.Module]:
        """The layers that take values in."""
        return [self.hidden[0]]

    def outer_layers(self) -> list[nn.Module]:
        """The layers that touch the data: the first and the last."""
        return [*self.input_layers(), self.out]


def token_size(modality: Modality) -> int:
    """Numbers that a token is, given and predicted."""
    return modality.classes if modality.kind == "discrete" else modality.size


def _flat(modality: Modality, values: Tensor, shown: Tensor) -> Tensor:
    """Values (B, T, *shape) as numbers (B, T, size), zero where they are not shown."""
    if modality.kind == "discrete":
        classes = F.one_hot(values.masked_fill(~shown, 0), modality.classes)
        return classes.to(torch.get_default_dtype()) * shown.unsqueeze(-1)
    flat = values.reshape(*shown.shape, modality.size)
    return flat.masked_fill(~shown.unsqueeze(-1), 0.0)
