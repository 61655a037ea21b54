"""CQL: soft actor-critic whose critics are low where the data are not (Kumar et al., 2020).

TorchRL 0.14 takes the soft maximum of a state over one random action, one of the policy and one of
its next action at a time, and averages over `sampled_actions` such triples, where the authors take
it over all of them together. More samples thus lower the noise and leave the loss as it is.
"""

from __future__ import annotations

from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torch import Tensor, nn
from torchrl.modules import NormalParamExtractor, ProbabilisticActor, TanhNormal
from torchrl.objectives import CQLLoss

from mtm.research.baselines.actor_critic import ActorCritic
from mtm.research.baselines.replay import TransitionBatch


class CQL(ActorCritic):
    """A squashed Gaussian actor, with a temperature that keeps its entropy."""

    def make_loss(self, state_size: int, action_size: int) -> CQLLoss:
        """TorchRL's CQL loss."""
        settings = self.config.cql
        network = nn.Sequential(
            self.perceptron(state_size, 2 * action_size), NormalParamExtractor()
        )
        actor = ProbabilisticActor(
            TensorDictModule(network, in_keys=["observation"], out_keys=["loc", "scale"]),
            in_keys=["loc", "scale"],
            distribution_class=TanhNormal,
        )
        return CQLLoss(
            actor,
            self.critic(state_size, action_size),
            target_entropy=-float(action_size),
            min_q_weight=settings.conservatism,
            num_random=settings.sampled_actions,
            loss_function="l2",
            deactivate_vmap=True,
        )

    def terms(self, batch: TransitionBatch, step: int) -> dict[str, Tensor]:
        """Losses of the critics, of their conservatism, of the actor and its temperature."""
        plain = self.as_tensordict(batch)
        critic = self.loss.q_loss(plain)[0]
        conservatism = self.loss.cql_loss(plain)[0]
        actor, found = self.loss.actor_loss(plain)
        temperature = self.loss.alpha_loss(found, plain)[0]
        return {
            "critic": critic,
            "conservatism": conservatism,
            "actor": actor,
            "temperature": temperature,
        }

    def mean_actions(self, actor: ProbabilisticActor, states: TensorDict) -> Tensor:
        """The most likely action before squashing, squashed."""
        mode: Tensor = actor.get_dist(states).deterministic_sample
        return mode
