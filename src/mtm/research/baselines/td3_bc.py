"""TD3+BC: TD3 whose actor is also pulled towards the data's actions (Fujimoto and Gu, 2021)."""

from __future__ import annotations

import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torch import Tensor, nn
from torchrl.objectives import TD3BCLoss

from mtm.research.baselines.actor_critic import ActorCritic


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

    def terms(self, batch: TensorDict, step: int) -> dict[str, Tensor]:
        """The critics' loss, and now and then the actor's."""
        terms = {"critic": self.loss.qvalue_loss(batch)[0]}
        if self._moves_actor(step):
            terms["actor"] = self.loss.actor_loss(batch)[0]
        return terms

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
