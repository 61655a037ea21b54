"""Layers of several networks at once: their parameters have a leading axis, one entry per member.

Rows of all members lie one after the other, member by member, as a batch that many times as large.
So what has no parameters (attention, packing, activations) works for members as for one network;
only the layers here know which rows are whose.

Letters: E members, n rows of each, C features.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class StackedLinear(nn.Linear):
    """A linear layer of each member: weights (E, outputs, C), biases (E, outputs)."""

    def forward(self, x: Tensor) -> Tensor:
        """Rows (E * n, C) to (E * n, outputs); there may be several axes of rows."""
        return products(x, self.weight, self.bias)

    def part(self, x: Tensor, outputs: slice) -> Tensor:
        """Some of the outputs only."""
        return products(x, self.weight[:, outputs], self.bias[:, outputs])


class SharedLinear(StackedLinear):
    """A linear layer of each member that all give the same rows, such as the first one."""

    def forward(self, x: Tensor) -> Tensor:
        """Rows (n, C) to (E * n, outputs); there may be several axes of rows."""
        members = x.expand(len(self.weight), *x.shape)
        return products(members.flatten(0, 1), self.weight, self.bias)


class SharedEmbedding(nn.Embedding):
    """A table of each member, (E, classes, C), in which all look the same classes up."""

    def forward(self, x: Tensor) -> Tensor:
        """Classes (n, ...) to (E * n, ..., C)."""
        E, classes = self.weight.shape[:2]
        first = torch.arange(E, device=x.device) * classes  # row of each member's first class
        rows = x + first.view(E, *[1] * x.ndim)
        return F.embedding(rows.flatten(0, 1), self.weight.flatten(0, 1))


class StackedNorm(nn.LayerNorm):
    """A norm of each member: weights and biases (E, C)."""

    def forward(self, x: Tensor) -> Tensor:
        """Rows (E * n, C) to the same; there may be several axes of rows."""
        # Member by member: PyTorch's kernel scales and shifts while it is at it, which as two more
        # passes over all rows would take longer.
        rows = x.reshape(len(self.weight), -1, x.shape[-1]).unbind()
        parts = zip(rows, self.weight.unbind(), self.bias.unbind(), strict=True)
        normed = [F.layer_norm(r, self.normalized_shape, w, b, self.eps) for r, w, b in parts]
        return torch.stack(normed).view(x.shape)


def stack(networks: Sequence[nn.Module], takes_values: Sequence[nn.Module]) -> nn.Module:
    """Make the first of some networks that are built alike all of them: every parameter stacked.

    Args:
        networks: Their parameters are copied; the first one is changed, and returned.
        takes_values: The layers of the first one that read the data, which all members share.
    """
    whole = networks[0]
    shared = {id(layer) for layer in takes_values}
    for path, parameter in list(whole.named_parameters()):
        owner, _, name = path.rpartition(".")
        all_of_them = torch.stack([network.get_parameter(path) for network in networks]).detach()
        setattr(whole.get_submodule(owner), name, nn.Parameter(all_of_them))
        assert parameter.ndim + 1 == all_of_them.ndim
    for parent in list(whole.modules()):
        for name, layer in list(parent.named_children()):
            if isinstance(layer, nn.Linear | nn.Embedding | nn.LayerNorm):
                parent.add_module(name, _stacked(layer, shared=id(layer) in shared))
    return whole


def _stacked(layer: nn.Linear | nn.Embedding | nn.LayerNorm, *, shared: bool) -> nn.Module:
    """The layer that works with stacked parameters, which this one has already."""
    made: nn.Module
    if isinstance(layer, nn.Linear):
        kind = SharedLinear if shared else StackedLinear
        made = kind(layer.in_features, layer.out_features, device="meta")
    elif isinstance(layer, nn.Embedding):
        assert shared
        made = SharedEmbedding(layer.num_embeddings, layer.embedding_dim, device="meta")
    else:
        made = StackedNorm(layer.normalized_shape, layer.eps, device="meta")
    for name, parameter in layer.named_parameters():
        setattr(made, name, parameter)
    return made


def products(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Rows (E * n, C) times weights (E, outputs, C); there may be several axes of rows."""
    E = len(weight)
    rows = x.reshape(E, math.prod(x.shape[:-1]) // E, x.shape[-1])  # (E, n, C)
    out = torch.baddbmm(bias.unsqueeze(1), rows, weight.mT)  # (E, n, outputs)
    return out.view(*x.shape[:-1], weight.shape[1])
