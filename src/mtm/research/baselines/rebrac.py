"""ReBRAC: TD3 with a penalty on strange actions in actor and critics (Tarasov et al., 2023).

TorchRL has no such loss, and its TD3+BC cannot be turned into one: the critics' targets need the
data's next action, and the actor follows the lower of both critics. So the losses are written here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mtm.control.memoryless_policy import MemorylessPolicy
from mtm.data.trajectories import TrajectoryDataset
from mtm.research.baselines.learner import Learner
from mtm.research.baselines.replay import Scaling, TransitionBatch, Transitions
from mtm.research.baselines.settings import AgentConfig

FIRST_BIAS = 0.1
"""Of hidden layers, as the authors have it."""
LAST_OF_ACTOR, LAST_OF_CRITIC = 1e-3, 3e-3
"""Largest weights and biases of the last layers to begin with."""


class ReBRAC(Learner):
    """A deterministic actor; it and the targets move once for several steps of the critics."""

    def __init__(self, config: AgentConfig, scaling: Scaling) -> None:
        super().__init__(config, scaling)
        S, A, sizes = scaling.states.size, scaling.actions.size, config.critic
        actor = perceptron(S, A, sizes.width, sizes.layers, last=LAST_OF_ACTOR)
        critics = [
            perceptron(S + A, 1, sizes.width, sizes.layers, last=LAST_OF_CRITIC, norm=True)
            for _ in range(2)
        ]
        self.networks = nn.ModuleDict({"actor": actor, "critics": nn.ModuleList(critics)})
        self.targets = deepcopy(self.networks).requires_grad_(False)

    def prepare(self, training: TrajectoryDataset) -> None:
        """Find the transitions."""
        self.transitions = Transitions(training, self.scaling)

    def groups(self) -> list[dict[str, Any]]:
        """Adam without weight decay."""
        rates = self.config.critic
        parts = {"actor": rates.actor_learning_rate, "critics": rates.learning_rate}
        return [
            {"params": list(self.networks[name].parameters()), "lr": rate, "weight_decay": 0.0}
            for name, rate in parts.items()
        ]

    def losses(self, step: int) -> dict[str, Tensor]:
        """The critics' loss, and now and then the actor's."""
        batch = self.transitions.draw(self.config.batch_size, self.config.seed, step)
        batch = batch.to(self.device)
        terms = {"critic": self.critic_loss(batch)}
        if self._moves_actor(step):
            terms["actor"] = self.actor_loss(batch)
        return terms

    def critic_loss(self, batch: TransitionBatch) -> Tensor:
        """The squared errors of both critics; strange next actions lower what they aim at."""
        settings = self.config.rebrac
        with torch.no_grad():
            noise = torch.randn_like(batch.actions) * settings.policy_noise
            noise = noise.clamp(-settings.noise_clip, settings.noise_clip)
            actions = (_act(self.targets, batch.next_states) + noise).clamp(-1, 1)
            strange = _distance(actions, batch.next_actions) * batch.next_known
            value = _values(self.targets, batch.next_states, actions).amin(dim=0)
            value = value - settings.critic_penalty * strange
            goes_on = self.config.critic.discount * (~batch.terminated)
            aim = batch.rewards + goes_on * value  # (B, 1)
        found = _values(self.networks, batch.states, batch.actions)  # (2, B, 1)
        return (found - aim).square().mean(dim=(1, 2)).sum()

    def actor_loss(self, batch: TransitionBatch) -> Tensor:
        """The penalty, less the lower of the critics' values in units of their usual size."""
        actions = _act(self.networks, batch.states)
        with _fixed(self.networks["critics"]):
            value = _values(self.networks, batch.states, actions).amin(dim=0)
        scale = value.detach().abs().mean().clamp(min=torch.finfo(value.dtype).eps)
        penalty = self.config.rebrac.actor_penalty * _distance(actions, batch.actions)
        return (penalty - value / scale).mean()

    @torch.no_grad()
    def after_step(self, step: int) -> None:
        """Let the targets follow when the actor has moved."""
        if self._moves_actor(step):
            followed: list[Tensor] = list(self.networks.parameters())
            followers: list[Tensor] = list(self.targets.parameters())
            torch._foreach_lerp_(followers, followed, self.config.critic.target_rate)

    def policy(self, target: float | None) -> MemorylessPolicy:
        """Act by the current state; there is no return to ask for."""
        return MemorylessPolicy(self.act, self.scaling.states, self.scaling.actions)

    @torch.inference_mode()
    def act(self, states: NDArray[Any]) -> NDArray[np.float32]:
        """(n, *shape) in and out."""
        scaled = self.scaling.scale_states(states).to(self.device)
        return self.scaling.raw_actions(_act(self.networks, scaled))

    def _moves_actor(self, step: int) -> bool:
        return step % self.config.rebrac.actor_every == 0


def perceptron(
    inputs: int, outputs: int, width: int, layers: int, *, last: float, norm: bool = False
) -> nn.Sequential:
    """Hidden layers with ReLU, each followed by a norm if `norm`; `last` bounds the last layer."""
    parts: list[nn.Module] = []
    for i in range(layers):
        hidden = nn.Linear(width if i else inputs, width)
        bound = hidden.in_features**-0.5
        nn.init.uniform_(hidden.weight, -bound, bound)
        nn.init.constant_(hidden.bias, FIRST_BIAS)
        parts += [hidden, nn.ReLU(), *([nn.LayerNorm(width)] if norm else [])]
    out = nn.Linear(width, outputs)
    nn.init.uniform_(out.weight, -last, last)
    nn.init.uniform_(out.bias, -last, last)
    return nn.Sequential(*parts, out)


def _act(networks: nn.ModuleDict, states: Tensor) -> Tensor:
    """(B, S) to actions within [-1, 1], (B, A)."""
    return torch.tanh(networks["actor"](states))


def _values(networks: nn.ModuleDict, states: Tensor, actions: Tensor) -> Tensor:
    """Of each critic, (2, B, 1)."""
    pairs = torch.cat([states, actions], dim=1)
    critics: Any = networks["critics"]
    return torch.stack([critic(pairs) for critic in critics])


def _distance(actions: Tensor, others: Tensor) -> Tensor:
    """Squared, (B, 1)."""
    return (actions - others).square().sum(dim=1, keepdim=True)


@contextmanager
def _fixed(network: nn.Module) -> Iterator[None]:
    """What is computed within trains what goes into a network, not the network."""
    network.requires_grad_(False)
    try:
        yield
    finally:
        network.requires_grad_(True)
