"""What a step does with the gradient: learning rate, weight decay, and the optimizers.

`muon` gives the matrices between features (attention, perceptrons) to Muon and all else (encodings,
norms, biases, what touches the data) to AdamW; `adamw` gives everything to AdamW.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

import torch
from torch import Tensor, nn

from mtm.core.config import OptimizerConfig
from mtm.models.network import Network
from mtm.models.products import fast_products

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
"""Coefficients of Jordan et al. (2024): singular values end between about 0.7 and 1.2."""

ITERATIONS = 5
"""Of Newton and Schulz's method, per step and matrix. With three, of better polynomials, forward
dynamics got three times as wrong (docs/research-log)."""

ADAM_SIZE = 0.2
"""Root mean square of Adam's usual update over its learning rate; Muon's is made the same, so that
one learning rate serves both (Liu et al. 2025)."""


def learning_rate(step: int, steps: int, config: OptimizerConfig) -> float:
    """The learning rate of a step (counted from 0): linear warm-up, then cosine decay."""
    if step < config.warmup_steps:
        return config.learning_rate * (step + 1) / config.warmup_steps
    done = (step - config.warmup_steps) / max(steps - config.warmup_steps, 1)
    low, high = config.final_share * config.learning_rate, config.learning_rate
    return low + (high - low) * 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))


def set_learning_rate(optimizers: Iterable[torch.optim.Optimizer], rate: float) -> None:
    """Let all parameters take their next step with this learning rate."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = rate


def make_optimizers(network: Network, config: OptimizerConfig) -> list[torch.optim.Optimizer]:
    """The optimizers of a network; their learning rate is 0 until a step sets it."""
    rest = list(network.parameters())
    optimizers: list[torch.optim.Optimizer] = []
    if config.name == "muon":
        matrices = hidden_matrices(network)
        chosen = {id(p) for p in matrices}
        rest = [p for p in rest if id(p) not in chosen]
        optimizers = [Muon(matrices, config.weight_decay)] if matrices else []
    decayed = {id(m.weight) for m in network.modules() if isinstance(m, nn.Linear)}
    groups: list[dict[str, Any]] = [
        {"params": [p for p in rest if id(p) in decayed], "weight_decay": config.weight_decay},
        {"params": [p for p in rest if id(p) not in decayed], "weight_decay": 0.0},
    ]
    adam = torch.optim.AdamW(groups, lr=0.0, betas=config.betas, fused=True)
    return [adam, *optimizers]


def hidden_matrices(network: Network) -> list[Tensor]:
    """The weights of linear layers from features to features, not those that touch the data."""
    outer = {id(layer) for layer in network.outer_layers()}
    return [m.weight for m in network.modules() if isinstance(m, nn.Linear) and id(m) not in outer]


def gradient_norm(parameters: Iterable[Tensor]) -> Tensor:
    """The norm of all gradients together, as they are now."""
    return nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])


def clip_members(parameters: Iterable[Tensor], clip_norm: float) -> Tensor:
    """Scale the gradient of each member down to `clip_norm` (0: leave it).

    Args:
        parameters: Each with a leading axis of members.
        clip_norm: For every member by itself, so that none slows another one down.

    Returns:
        The mean of the norms before.
    """
    gradients = [p.grad for p in parameters if p.grad is not None]
    norm = torch.linalg.vector_norm
    norms = norm(torch.stack([norm(g.flatten(1), dim=1) for g in gradients]), dim=0)  # (E,)
    if clip_norm > 0:
        factors = (clip_norm / (norms + 1e-6)).clamp(max=1.0)  # as PyTorch's own
        for gradient in gradients:
            gradient.mul_(factors.view(-1, *[1] * (gradient.ndim - 1)))
    mean: Tensor = norms.mean()
    return mean


class Muon(torch.optim.Optimizer):
    """Momentum whose update is made orthogonal: all directions of a matrix move equally far.

    PyTorch's own works in bfloat16, one matrix after the other: three times slower on processors
    without bfloat16. This one keeps the precision and takes all matrices at once.

    Args:
        matrices: Two-dimensional parameters, or stacks of them, (members, rows, columns).
        weight_decay: As AdamW's.
        momentum: Of the average of gradients.
    """

    def __init__(
        self, matrices: Iterable[Tensor], weight_decay: float, momentum: float = 0.95
    ) -> None:
        super().__init__(matrices, {"lr": 0.0, "weight_decay": weight_decay, "momentum": momentum})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """Move every matrix that has a gradient."""
        for group in self.param_groups:
            alike: dict[torch.Size, list[Tensor]] = defaultdict(list)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    alike[parameter.shape[-2:]].append(parameter)
            for _, same_side in groupby(sorted(alike, key=min), key=min):
                shapes = list(same_side)
                stacks = [self._momentum(alike[shape], group["momentum"]) for shape in shapes]
                with fast_products():
                    orthogonal = _orthogonal(stacks)
                for shape, updates in zip(shapes, orthogonal, strict=True):
                    rate = group["lr"] * ADAM_SIZE * math.sqrt(max(shape))
                    matrices = _matrices(alike[shape])
                    torch._foreach_mul_(matrices, 1 - group["lr"] * group["weight_decay"])
                    torch._foreach_add_(matrices, list(updates.unbind()), alpha=-rate)

    def _momentum(self, parameters: list[Tensor], momentum: float) -> Tensor:
        """Nesterov's look ahead of the averaged gradients, (matrices, rows, columns)."""
        gradients = _matrices([p.grad for p in parameters if p.grad is not None])
        for parameter in parameters:
            if not self.state[parameter]:
                self.state[parameter]["momentum"] = torch.zeros_like(parameter)
        averages = _matrices([self.state[parameter]["momentum"] for parameter in parameters])
        torch._foreach_lerp_(averages, gradients, 1 - momentum)
        return torch.stack(torch._foreach_lerp(gradients, averages, momentum))


def _matrices(parameters: Iterable[Tensor]) -> list[Tensor]:
    """Every matrix by itself: those of a stack as views of it."""
    return [m for p in parameters for m in (p.unbind() if p.ndim == 3 else (p,))]


def _orthogonal(stacks: Sequence[Tensor]) -> list[Tensor]:
    """Matrices with the same singular directions, all about equally long.

    The iterations multiply x from the left by polynomials of x @ x.T. These are collected on the
    short side of the matrices, all of them in one batch, and x itself is multiplied once.

    Args:
        stacks: (n, rows, columns) each, with the same short side S.
    """
    # With the 8 bits of bfloat16, the products of the polynomials run away.
    wide = [_short_side_first(x.to(torch.promote_types(x.dtype, torch.float32))) for x in stacks]
    gram = torch.cat([torch.bmm(x, x.mT) for x in wide])  # (all matrices, S, S)
    # Divided by the sum of its eigenvalues, so that none is above 1.
    size = gram.diagonal(dim1=1, dim2=2).sum(dim=1).clamp(min=1e-14)[:, None, None]
    gram = gram / size
    product = factor = _newton_schulz(gram)
    for _ in range(ITERATIONS - 1):
        gram = factor @ gram @ factor
        factor = _newton_schulz(gram)
        product = factor @ product
    parts = torch.split_with_sizes(product / size.sqrt(), [len(x) for x in wide])
    found = [torch.bmm(part, x) for part, x in zip(parts, wide, strict=True)]
    return [
        (y if y.shape == x.shape else y.mT).to(x.dtype) for x, y in zip(stacks, found, strict=True)
    ]


def _short_side_first(x: Tensor) -> Tensor:
    return x.mT if x.shape[1] > x.shape[2] else x


def _newton_schulz(gram: Tensor) -> Tensor:
    """What an iteration multiplies by, (n, S, S)."""
    a, b, c = NEWTON_SCHULZ
    factor = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
    factor.diagonal(dim1=1, dim2=2).add_(a)
    return factor
