"""What the networks of one mask (`mtm.models.fixed_mask`) have in common."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mtm.data.modalities import Modality
from mtm.models import products, stacked

FEW_ROWS = 16
"""Up to which PyTorch's own GELU is the faster one (measured: docs/research-log)."""


class Steps(NamedTuple):
    """Some steps of one modality, rising."""

    modality: Modality
    times: tuple[int, ...]


class Pick(nn.Module):
    """Some places of an axis; without a copy where they are evenly spaced."""

    places: Tensor

    def __init__(self, places: Sequence[int], dim: int) -> None:
        super().__init__()
        self.dim = dim
        gaps = {after - before for before, after in pairwise(places)} or {1}
        self.slice = None
        if len(gaps) == 1 and places and (gap := gaps.pop()) > 0:
            self.slice = slice(places[0], places[-1] + 1, gap)
        self.register_buffer("places", torch.tensor(places, dtype=torch.int64), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """(..., places, ...) to (..., picked, ...)."""
        if self.slice is None:
            return x.index_select(self.dim, self.places)
        return x[:, self.slice] if self.dim == 1 else x[..., self.slice, :]


class Quick:
    """A layer that is called without a module's overhead, a good part of the time of one sample.

    Args:
        layer: Of whatever kind; plain linear layers, norms and GELU are the quick ones.
    """

    def __init__(self, layer: nn.Module) -> None:
        self._layer = layer
        self._linear: tuple[Any, ...] = ()
        self._norm: tuple[Any, ...] = ()
        self._is_gelu = type(layer) is nn.GELU
        if isinstance(layer, nn.Linear) and type(layer) in (nn.Linear, products.Linear):
            self._linear, self._rows = (layer.weight, layer.bias), (layer.bias, layer.weight.t())
        elif type(layer) is nn.LayerNorm:
            self._norm = (layer.normalized_shape, layer.weight, layer.bias, layer.eps)

    def __call__(self, x: Tensor) -> Tensor:
        """What the layer gives; while it is exported, as a module, whose weights are known."""
        if not torch.compiler.is_compiling():
            if self._linear:
                if not are_rows(x) or len(x) >= products.BLOCK:
                    return products.linear(x, *self._linear)
                bias, weight = self._rows
                return torch.addmm(bias, x, weight)
            if self._norm:
                return torch.layer_norm(x, *self._norm)
            if self._is_gelu:
                return gelu(x)
        out: Tensor = self._layer(x)
        return out

    def added_to(self, x: Tensor, inputs: Tensor) -> Tensor:
        """`x` and what the layer gives; the memory of `x` is taken for it."""
        if self._linear and are_rows(x) and len(x) < products.BLOCK:
            bias, weight = self._rows
            return x.add_(bias).addmm_(inputs, weight)
        return x + self(inputs)


def are_rows(x: Tensor) -> bool:
    """Whether these are plain rows, (rows, features), of which no gradient and no graph is made."""
    return x.ndim == 2 and not torch.is_grad_enabled() and not torch.compiler.is_compiling()


def gelu(x: Tensor) -> Tensor:
    """GELU; of few rows by PyTorch's own kernel, as oneDNN's takes longer to begin than it does."""
    if not are_rows(x) or len(x) > FEW_ROWS:
        return F.gelu(x)
    if len(x) == 1:
        return F.gelu(x.expand(2, -1))[:1]
    return F.gelu(x.t()).t()  # what does not lie in order is not for oneDNN


def steps_of(modalities: Sequence[Modality], chosen: Tensor) -> list[Steps]:
    """The chosen tokens, (T, M), of each modality that has some."""
    times = [tuple(column.nonzero().flatten().tolist()) for column in chosen.T]
    return [Steps(m, mine) for m, mine in zip(modalities, times, strict=True) if mine]


def hold(module: nn.Module, **constants: Tensor) -> None:
    """Give a module tensors that move with it and are no weights."""
    for name, tensor in constants.items():
        module.register_buffer(name, tensor.detach(), persistent=False)


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A linear layer, or one of each member: weights (E, outputs, C)."""
    kind = products.linear if weight.ndim == 2 else stacked.products
    return kind(x, weight, bias)
