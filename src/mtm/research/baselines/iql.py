"""IQL: values of the data's better actions, and an actor that clones those (Kostrikov, 2022).

The networks are in TorchRL's loss, which says what the terms are; they are worked out here, as it
runs the target critics and the state value twice. A test holds both equal.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torch import Tensor, nn
from torchrl.modules import IndependentNormal, ProbabilisticActor, ValueOperator
from torchrl.objectives import IQLLoss

from mtm.data.returns import episode_returns
from mtm.data.trajectories import TrajectoryDataset
from mtm.research.baselines.actor_critic import ActorCritic
from mtm.research.baselines.replay import TransitionBatch
from mtm.research.baselines.stacked import Perceptrons

LOG_STD_RANGE = (-5.0, 2.0)
MOST_LIKED = 100.0
"""Largest weight of an action that is cloned."""
HALF_LOG_2_PI = math.log(2 * math.pi) / 2


class Gaussian(nn.Module):
    """Mean by a network, within [-1, 1]; deviation learned, and the same for all states."""

    def __init__(self, network: nn.Module, action_size: int) -> None:
        super().__init__()
        self.network = network
        self.log_std = nn.Parameter(torch.zeros(action_size))

    def forward(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation, (n, A) each."""
        mean = torch.tanh(self.network(states))
        return mean, self.log_std.clamp(*LOG_STD_RANGE).exp().expand_as(mean)


class IQL(ActorCritic):
    """A state value, two critics and a Gaussian actor."""

    def make_loss(self, state_size: int, action_size: int) -> IQLLoss:
        """TorchRL's IQL loss."""
        settings = self.config.iql
        network = Gaussian(self.perceptron(state_size, action_size), action_size)
        actor = ProbabilisticActor(
            TensorDictModule(network, in_keys=["observation"], out_keys=["loc", "scale"]),
            in_keys=["loc", "scale"],
            distribution_class=IndependentNormal,
        )
        return IQLLoss(
            actor,
            self.critic(state_size, action_size),
            ValueOperator(self.perceptron(state_size, 1), in_keys=["observation"]),
            expectile=settings.expectile,
            temperature=settings.temperature,
            loss_function="l2",
            deactivate_vmap=True,
        )

    def prepare(self, training: TrajectoryDataset) -> None:
        """Find the transitions and the parameters."""
        super().prepare(training)
        loss = self.loss
        (log_std,) = (
            tensor
            for key, tensor in loss.actor_network_params.items(True, True)
            if key[-1] == "log_std"
        )
        # As a pair: a parameter that is an attribute would be saved twice.
        self._actor = (Perceptrons(loss.actor_network_params), log_std)
        self._value = Perceptrons(loss.value_network_params)
        self._critics = Perceptrons(loss.qvalue_network_params)
        self._target_critics = Perceptrons(loss.target_qvalue_network_params)

    def terms(self, batch: TransitionBatch, step: int) -> dict[str, Tensor]:
        """Losses of the state value, the critics and the actor."""
        settings = self.config.iql
        pairs = torch.cat([batch.states, batch.actions], dim=1)
        with torch.no_grad():
            known = self._target_critics(pairs).amin(dim=0)  # (B, 1)
            goes_on = self.config.critic.discount * (~batch.terminated)
            aim = batch.rewards + goes_on * self._value(batch.next_states)
        advantage = known - self._value(batch.states)
        weight = torch.where(advantage > 0, settings.expectile, 1 - settings.expectile)
        liked = (settings.temperature * advantage.detach()).exp().clamp(max=MOST_LIKED)
        network, log_std = self._actor
        mean = torch.tanh(network(batch.states))
        log_std = log_std.clamp(*LOG_STD_RANGE)
        off = (batch.actions - mean) * (-log_std).exp()
        log_likelihood = -(off.square() / 2 + log_std + HALF_LOG_2_PI).sum(dim=1, keepdim=True)
        return {
            "value": (weight * advantage.square()).mean(),
            "critic": (self._critics(pairs) - aim).square().mean(dim=(1, 2)).sum(),
            "actor": -(liked * log_likelihood).mean(),
        }

    def mean_actions(self, actor: ProbabilisticActor, states: TensorDict) -> Tensor:
        """The Gaussian's mean."""
        mean: Tensor = actor.get_dist(states).mean
        return mean

    def reward_scale(self, training: TrajectoryDataset) -> float:
        """Let the returns of the data span as much as the longest episode has steps.

        For locomotion, with its 1,000 steps, this is what the authors do.
        """
        returns = episode_returns(training)
        known = returns[~np.isnan(returns)]
        range_of_returns = float(np.ptp(known)) if len(known) else 0.0
        return float(training.lengths.max()) / range_of_returns if range_of_returns > 0 else 1.0
