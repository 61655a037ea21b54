"""TD3+BC: TD3 whose actor is also pulled towards the data's actions (Fujimoto and Gu, 2021).

The networks are in TorchRL's loss, which says what the terms are; they are worked out here, for a
fraction of its overhead. A test holds both equal.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torch import Tensor, nn
from torchrl.objectives import TD3BCLoss

from mtm.data.trajectories import TrajectoryDataset
from mtm.research.baselines.actor_critic import ActorCritic
from mtm.research.baselines.replay import TransitionBatch
from mtm.research.baselines.stacked import Perceptrons, first_fixed


class TD3BC(ActorCritic):
    """A deterministic actor; it and the targets move once for several steps of the critics."""

    def make_loss(self, state_size: int, action_size: int) -> TD3BCLoss:
        """TorchRL's TD3+BC loss."""
        settings = self.config.td3_bc
        network = nn.Sequential(self.perceptron(state_size, action_size), nn.Tanh())
        return TD3BCLoss(
            TensorDictModule(network, in_keys=["observation"], out_keys=["action"]),
            self.critic(state_size, action_size),
            bounds=(-torch.ones(action_size), torch.ones(action_size)),
            alpha=settings.alpha,
            policy_noise=settings.policy_noise,
            noise_clip=settings.noise_clip,
            loss_function="l2",
            deactivate_vmap=True,
        )

    def prepare(self, training: TrajectoryDataset) -> None:
        """Find the transitions and the parameters."""
        super().prepare(training)
        loss = self.loss
        self._actor = Perceptrons(loss.actor_network_params)
        self._target_actor = Perceptrons(loss.target_actor_network_params)
        self._critics = Perceptrons(loss.qvalue_network_params)
        self._target_critics = Perceptrons(loss.target_qvalue_network_params)
        self._judge = Perceptrons(first_fixed(loss.qvalue_network_params))

    def terms(self, batch: TransitionBatch, step: int) -> dict[str, Tensor]:
        """The critics' loss, and now and then the actor's."""
        terms = {"critic": self._critic_loss(batch)}
        if self._moves_actor(step):
            terms["actor"] = self._actor_loss(batch)
        return terms

    def _critic_loss(self, batch: TransitionBatch) -> Tensor:
        settings = self.config.td3_bc
        with torch.no_grad():
            noise = torch.randn_like(batch.actions) * settings.policy_noise
            noise = noise.clamp(-settings.noise_clip, settings.noise_clip)
            actions = torch.tanh(self._target_actor(batch.next_states)) + noise
            following = torch.cat([batch.next_states, actions.clamp(-1, 1)], dim=1)
            goes_on = self.config.critic.discount * (~batch.terminated)
            aim = batch.rewards + goes_on * self._target_critics(following).amin(dim=0)
        found = self._critics(torch.cat([batch.states, batch.actions], dim=1))  # (2, B, 1)
        return (found - aim).square().mean(dim=(1, 2)).sum()

    def _actor_loss(self, batch: TransitionBatch) -> Tensor:
        actions = torch.tanh(self._actor(batch.states))
        value = self._judge(torch.cat([batch.states, actions], dim=1))
        scale = self.config.td3_bc.alpha / value.detach().abs().mean()
        return F.mse_loss(actions, batch.actions) - scale * value.mean()

    def after_step(self, step: int) -> None:
        """Let the targets follow when the actor has moved."""
        if self._moves_actor(step):
            super().after_step(step)

    def mean_actions(self, actor: TensorDictModule, states: TensorDict) -> Tensor:
        """The actor's output."""
        actions: Tensor = actor(states)["action"]
        return actions

    def _moves_actor(self, step: int) -> bool:
        return step % self.config.td3_bc.actor_every == 0
