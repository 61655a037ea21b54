"""`MLP` with one mask: see `mtm.models.fixed_mask`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mtm.data.modalities import Modality
from mtm.models.fixed_parts import hold, linear, steps_of
from mtm.models.heads import Predictions
from mtm.models.mlp import MLP, token_size


class FixedMLP(nn.Module):
    """`MLP` with one mask, without the weights of hidden inputs and of outputs nobody wants."""

    weight_in: Tensor  # (D, numbers shown), of members (E, D, numbers)
    bias_in: Tensor
    weight_out: Tensor  # (numbers wanted, D)
    bias_out: Tensor

    def __init__(self, network: MLP, visible: Tensor, wanted: Tensor) -> None:
        super().__init__()
        assert len(visible) == network.config.segment_length
        self.shown, self.asked = (steps_of(network.modalities, c) for c in (visible, wanted))
        self.members = network.members
        first, *middle = cast("list[nn.Linear]", list(network.hidden))
        self.middle, last = nn.ModuleList(middle), network.out
        numbers = torch.arange(first.in_features).view(len(visible), -1)  # (T, sizes)
        parts = torch.split_with_sizes(numbers, [token_size(m) for m in network.modalities], dim=1)
        by_name = {m.name: part for m, part in zip(network.modalities, parts, strict=True)}
        given, asked = (
            torch.cat([numbers[:0, 0], *(by_name[m.name][list(ts)].flatten() for m, ts in chosen)])
            for chosen in (self.shown, self.asked)
        )
        self.made_of = (first.weight, first.bias, last.weight, last.bias)
        hold(
            self,
            weight_in=first.weight[..., given],
            bias_in=first.bias,
            weight_out=last.weight[..., asked, :],
            bias_out=last.bias[..., asked],
        )

    def forward(self, shown: Mapping[str, Tensor], batch: int) -> Predictions:
        """Visible values, name -> (B, k, *shape), to predictions (B, w, *shape)."""
        inputs = [_one_hot(m, shown[m.name]).flatten(1) for m, _ in self.shown]
        x = torch.cat([self.weight_in.new_empty(batch, 0), *inputs], dim=1)  # (B, numbers)
        if self.members > 1:
            x = x.expand(self.members, -1, -1)
        x = F.gelu(linear(x, self.weight_in, self.bias_in))
        for layer in self.middle:
            x = F.gelu(layer(x))
        out = linear(x, self.weight_out, self.bias_out)  # (B, numbers)
        sizes = [len(times) * token_size(m) for m, times in self.asked]
        parts = torch.split_with_sizes(out, sizes, dim=-1)
        answers = {}
        for (m, times), part in zip(self.asked, parts, strict=True):
            shape = (m.classes,) if m.kind == "discrete" else m.shape
            answers[m.name] = part.reshape(*part.shape[:-1], len(times), *shape)
        return Predictions(answers, {}, {})


def _one_hot(modality: Modality, values: Tensor) -> Tensor:
    """What a perceptron takes, (B, k, size)."""
    if modality.kind == "discrete":
        return F.one_hot(values, modality.classes).to(torch.get_default_dtype())
    return values
