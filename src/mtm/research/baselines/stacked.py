"""TorchRL's networks without TorchRL: the same parameters, by a few calls of PyTorch.

TorchRL puts parameters into a network for every call, and its losses call some networks twice. For
perceptrons as small as an agent's that costs as much as the arithmetic (docs/research-log).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


class Perceptrons:
    """Layers with ReLU between them; several networks of the same shape work side by side.

    Args:
        parameters: TorchRL's, of a network that ends with a perceptron. Those of several networks
            have these along their first axis.
        trained: Whether gradients reach the parameters; they reach the inputs anyway.
    """

    def __init__(self, parameters: Any, *, trained: bool = True) -> None:
        found: dict[int, dict[str, Tensor]] = {}
        for key, tensor in parameters.items(include_nested=True, leaves_only=True):
            names = key if isinstance(key, tuple) else (key,)
            if names[-1] in ("weight", "bias"):
                found.setdefault(int(names[-2]), {})[names[-1]] = tensor
        kept = [(found[i]["weight"], found[i]["bias"]) for i in sorted(found)]
        if not trained:
            kept = [(weight.detach(), bias.detach()) for weight, bias in kept]
        self._layers = kept

    def __call__(self, x: Tensor) -> Tensor:
        """(B, inputs) to (B, outputs), or to (networks, B, outputs)."""
        last = len(self._layers) - 1
        for i, (weight, bias) in enumerate(self._layers):
            if weight.ndim == 2:
                x = F.linear(x, weight, bias)
            else:
                rows = x.expand(len(weight), *x.shape[-2:])
                x = torch.baddbmm(bias.unsqueeze(1), rows, weight.mT)
            x = torch.relu(x) if i < last else x
        return x

    def first(self) -> Perceptrons:
        """The first of several networks."""
        one = object.__new__(Perceptrons)
        one._layers = [(weight[0], bias[0]) for weight, bias in self._layers]
        return one
