"""IQL: values of the data's better actions, and an actor that clones those (Kostrikov, 2022)."""

from __future__ import annotations

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

LOG_STD_RANGE = (-5.0, 2.0)


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

    def terms(self, batch: TensorDict, step: int) -> dict[str, Tensor]:
        """Losses of the state value, the critics and the actor."""
        return {
            "value": self.loss.value_loss(batch)[0],
            "critic": self.loss.qvalue_loss(batch)[0],
            "actor": self.loss.actor_loss(batch)[0],
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
