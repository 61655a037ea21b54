"""Intrinsic rewards: how far a state is from those that are known.

ProtoRL (Yarats et al. 2021, "Reinforcement Learning with Prototypical Representations") learns an
encoder of states together with prototypes, unit vectors that its outputs are clustered around. A
state's reward is the distance from its code to the k-th nearest of a queue of codes that were drawn
for each prototype. Here states are vectors, so the encoder is a small network.

`K` is the number of prototypes, `Q` the length of the queue.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

NEIGHBOUR = 3
"""Which neighbour's distance is the reward; the first may be the state itself, drawn before."""


class IntrinsicReward(Protocol):
    """Rewards states, and learns from the transitions that are drawn for the agent."""

    def learn(self, states: Tensor, next_states: Tensor, generator: torch.Generator) -> None:
        """Take one step of learning; (B, size) each, normalised."""

    def reward(self, states: Tensor) -> Tensor:
        """The reward for reaching each state, (B,)."""


def sinkhorn(scores: Tensor, iterations: int = 3) -> Tensor:
    """Assign rows to columns so that every column gets the same share.

    Args:
        scores: How well a row fits a column, (B, K).
        iterations: How often rows and columns are balanced in turn.

    Returns:
        Assignments, (B, K): each row sums to 1, each column nearly to B / K.
    """
    B, K = scores.shape
    weights = (scores - scores.max()).exp()
    for _ in range(iterations):
        weights = weights / (weights.sum(dim=0, keepdim=True) * K).clamp_min(1e-30)
        weights = weights / (weights.sum(dim=1, keepdim=True) * B).clamp_min(1e-30)
    return weights * B


def particle_reward(points: Tensor, known: Tensor, neighbour: int = NEIGHBOUR) -> Tensor:
    """Distance of each point, (B, D), to its k-th nearest of the known, (Q, D): (B,).

    Up to a constant, its logarithm is the particle estimate of the entropy of the points. Where
    nothing is known yet, nothing is rewarded.
    """
    if not len(known):
        return torch.zeros(len(points))
    distances = torch.cdist(points, known)  # (B, Q)
    return distances.topk(min(neighbour, len(known)), dim=1, largest=False).values[:, -1]


class Queue(nn.Module):
    """The newest `length` vectors that were put in."""

    vectors: Tensor
    count: Tensor

    def __init__(self, length: int, size: int) -> None:
        super().__init__()
        self.register_buffer("vectors", torch.zeros(length, size))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def put(self, vectors: Tensor) -> None:
        """Put vectors in, (N, size); the oldest fall out."""
        length = len(self.vectors)
        places = (int(self.count) + torch.arange(len(vectors))) % length
        self.vectors[places] = vectors
        self.count += len(vectors)

    @property
    def known(self) -> Tensor:
        """What is in it."""
        return self.vectors[: int(self.count)]


class Nearest(nn.Module):
    """Particle entropy of the normalised states themselves."""

    def __init__(self, size: int, *, queue: int = 2048, kept: int = 16) -> None:
        super().__init__()
        self.queue = Queue(queue, size)
        self._kept = kept

    def learn(self, states: Tensor, next_states: Tensor, generator: torch.Generator) -> None:
        """Remember some of the drawn states, which are a fair sample of all."""
        self.queue.put(next_states[: self._kept])

    def reward(self, states: Tensor) -> Tensor:
        """The distance to the k-th nearest remembered state, (B,)."""
        return particle_reward(states, self.queue.known)


class Prototypes(nn.Module):
    """ProtoRL's representation: encoder, projector, prototypes, and the queue of candidates.

    Args:
        size: Numbers in a state.
        width: Of the hidden layers.
        code: D, numbers in a code.
        prototypes: K.
        queue: Q.
        temperature: Of the assignment; the smaller, the harder.
        target_rate: How fast the target encoder follows.
        learning_rate: Of all of it.
    """

    def __init__(
        self,
        size: int,
        *,
        width: int = 256,
        code: int = 64,
        prototypes: int = 256,
        queue: int = 2048,
        temperature: float = 0.1,
        target_rate: float = 0.05,
        learning_rate: float = 1e-4,
    ) -> None:
        super().__init__()
        self.encoder = _encoder(size, width, code)
        self.target_encoder = _encoder(size, width, code).requires_grad_(False)
        self.target_encoder.load_state_dict(self.encoder.state_dict())
        self.projector = nn.Sequential(nn.Linear(code, width), nn.ReLU(), nn.Linear(width, code))
        self.prototypes = nn.Parameter(F.normalize(torch.randn(prototypes, code), dim=1))
        self.queue = Queue(queue, code)
        self._temperature, self._target_rate = temperature, target_rate
        self.optimizer = torch.optim.Adam(
            [*self.encoder.parameters(), *self.projector.parameters(), self.prototypes],
            lr=learning_rate,
            fused=True,
        )

    def loss(self, states: Tensor, next_states: Tensor) -> Tensor:
        """Predict from a state to which prototype the next one is assigned, all used alike."""
        with torch.no_grad():
            targets = F.normalize(self.target_encoder(next_states), dim=1)  # (B, D)
            wanted = sinkhorn(targets @ self.prototypes.T / self._temperature)  # (B, K)
        online = F.normalize(self.projector(self.encoder(states)), dim=1)  # (B, D)
        predicted = F.log_softmax(online @ self.prototypes.T / self._temperature, dim=1)
        return -(wanted * predicted).sum(dim=1).mean()

    def learn(self, states: Tensor, next_states: Tensor, generator: torch.Generator) -> None:
        """One step on the loss, then draw a candidate for each prototype into the queue."""
        self.optimizer.zero_grad()
        self.loss(states, next_states).backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        with torch.no_grad():
            self.prototypes.copy_(F.normalize(self.prototypes, dim=1))
            follow(self.target_encoder, self.encoder, self._target_rate)
            codes = self._codes(next_states)  # (B, D)
            chances = F.softmax(self.prototypes @ codes.T, dim=1)  # (K, B)
            self.queue.put(codes[_draw(chances, generator)])

    @torch.no_grad()
    def reward(self, states: Tensor) -> Tensor:
        """The distance from a state's code to the k-th nearest candidate, (B,)."""
        return particle_reward(self._codes(states), self.queue.known)

    def _codes(self, states: Tensor) -> Tensor:
        return F.normalize(self.encoder(states), dim=1)


@torch.no_grad()
def follow(target: nn.Module, online: nn.Module, rate: float) -> None:
    """Move a target network a little towards the online one."""
    torch._foreach_lerp_(list(target.parameters()), list(online.parameters()), rate)


def _draw(chances: Tensor, generator: torch.Generator) -> Tensor:
    """A column for each row of (K, B) chances: (K,). The first of exponential waits wins."""
    waits = torch.empty_like(chances).exponential_(generator=generator) / chances
    return waits.argmin(dim=1)


def _encoder(size: int, width: int, code: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(size, width), nn.LayerNorm(width), nn.Tanh(), nn.Linear(width, code)
    )
