"""The mean of a network's weights over the last steps of its training.

As long as the learning rate is not 0, the weights wander around a good place; their mean lies
nearer to it than any of them, and runs that differ by their seed lie nearer to each other. It costs
no forward pass, neither in training nor in acting (docs/research-log).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from mtm.runs.checkpoint import BESIDE

COUNT = f"{BESIDE}count"
MEAN, LATEST = f"{BESIDE}mean/", f"{BESIDE}latest/"


class WeightAverage:
    """Follows a network that is being trained.

    Args:
        network: Its parameters are averaged, in 32 bits at least.
        after: The step after which it begins, counted in steps taken.
    """

    def __init__(self, network: nn.Module, after: int) -> None:
        self._after, self._count = after, 0
        self._weights = dict(network.named_parameters())
        self._mean: dict[str, Tensor] = {}

    @torch.no_grad()
    def add(self, taken: int) -> None:
        """Take in the weights as they are after so many steps."""
        if taken <= self._after:
            return
        latest = [_precise(weight) for weight in self._weights.values()]
        self._count += 1
        if self._count == 1:
            self._mean = dict(zip(self._weights, [x.clone() for x in latest], strict=True))
        else:
            torch._foreach_lerp_(list(self._mean.values()), latest, 1 / self._count)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Let the network have the mean for a while, if there is one."""
        latest = {name: weight.detach().clone() for name, weight in self._weights.items()}
        self._give(self._mean)
        try:
            yield
        finally:
            self._give(latest)

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint holds of it beside the mean that a run answers with."""
        if not self._count:
            return {}
        found = {COUNT: torch.tensor(self._count)}
        found |= {f"{MEAN}{name}": mean for name, mean in self._mean.items()}
        # Copies, as the network may be given the mean before they are written.
        return found | {f"{LATEST}{n}": w.detach().clone() for n, w in self._weights.items()}

    def restore(self, taken: int, tensors: Mapping[str, Tensor]) -> None:
        """The inverse of `tensors`: the network has the latest weights again.

        Args:
            taken: Steps that were taken.
            tensors: Of the checkpoint; without any of these, there was no mean yet.
        """
        if COUNT not in tensors:
            return
        self._give({name: tensors[f"{LATEST}{name}"] for name in self._weights})
        if taken > self._after:  # else more steps are to come than when it was saved
            self._count = int(tensors[COUNT])
            self._mean = {
                name: tensors[f"{MEAN}{name}"].to(weight.device)
                for name, weight in self._weights.items()
            }

    @torch.no_grad()
    def _give(self, weights: Mapping[str, Tensor]) -> None:
        for name, value in weights.items():
            self._weights[name].copy_(value)


def _precise(weight: Tensor) -> Tensor:
    return weight.detach().to(torch.promote_types(weight.dtype, torch.float32))
