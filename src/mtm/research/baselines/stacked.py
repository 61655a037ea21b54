"""TorchRL's networks without TorchRL: the same parameters, by a few calls of PyTorch.

TorchRL puts parameters into a network for every call, and its losses call some networks twice. For
perceptrons as small as an agent's that costs as much as the arithmetic (docs/research-log).
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_Module = TypeVar("_Module", bound=nn.Module)


class Perceptrons:
    """Layers with ReLU between them; several networks of the same shape work side by side.

    Args:
        parameters: TorchRL's, of a network that ends with a perceptron. Those of several networks
            have these along their first axis.
    """

    def __init__(self, parameters: Any) -> None:
        self._layers = [(one["weight"], one["bias"]) for one in layers_of(parameters).values()]

    def __call__(self, x: Tensor) -> Tensor:
        """(B, inputs) to (B, outputs), or to (networks, B, outputs)."""
        last = len(self._layers) - 1
        for i, (weight, bias) in enumerate(self._layers):
            x = linear(x, weight, bias)
            x = torch.relu(x) if i < last else x
        return x


def layers_of(parameters: Any) -> dict[int, dict[str, Tensor]]:
    """Weights and biases by the number of their layer, in order."""
    found: dict[int, dict[str, Tensor]] = {}
    for key, tensor in parameters.items(include_nested=True, leaves_only=True):
        if key[-1] in ("weight", "bias"):
            found.setdefault(int(key[-2]), {})[key[-1]] = tensor
    return dict(sorted(found.items()))


def first_fixed(parameters: Any) -> Any:
    """The parameters of the first of several networks: gradients go through, and stop there."""
    return parameters.data[0]


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A linear layer, or one of each of several networks, whose axis comes first."""
    if weight.ndim == 2:
        return F.linear(x, weight, bias)
    return torch.baddbmm(bias.unsqueeze(1), x.expand(len(weight), *x.shape[-2:]), weight.mT)


def with_tensors_of(module: _Module, parameters: Any, *place: str) -> _Module:
    """A copy of a module that reads TorchRL's tensors, whatever these become.

    Args:
        module: What is copied.
        parameters: TorchRL's, of a network that the module is a part of.
        place: Which part it is.
    """
    copy = deepcopy(module).requires_grad_(False)
    for name, tensor in (*copy.named_parameters(), *copy.named_buffers()):
        key = (*place, *name.split("."))
        tensor.data = parameters[key].data
    return copy
