"""What IQL, CQL, TD3+BC and MOPO share: networks, transitions, target networks, acting."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torch import Tensor, nn
from torchrl.modules import MLP, ValueOperator
from torchrl.objectives import LossModule, SoftUpdate

from mtm.control.memoryless_policy import MemorylessPolicy
from mtm.data.trajectories import TrajectoryDataset
from mtm.research.baselines.learner import Learner
from mtm.research.baselines.replay import Scaling, TransitionBatch, Transitions
from mtm.research.baselines.settings import AgentConfig


class ActorCritic(Learner):
    """A TorchRL loss with an actor and two critics, trained on transitions."""

    def __init__(self, config: AgentConfig, scaling: Scaling) -> None:
        super().__init__(config, scaling)
        self.loss = self.make_loss(scaling.states.size, scaling.actions.size)
        self.loss.make_value_estimator(gamma=config.critic.discount)
        self._targets = SoftUpdate(self.loss, tau=config.critic.target_rate)

    @abstractmethod
    def make_loss(self, state_size: int, action_size: int) -> LossModule:
        """The loss with fresh networks."""

    @abstractmethod
    def terms(self, batch: TransitionBatch, step: int) -> dict[str, Tensor]:
        """The terms of the loss in a step, of rewards that are scaled."""

    @abstractmethod
    def mean_actions(self, actor: TensorDictModule, states: TensorDict) -> Tensor:
        """The actions that the actor takes when it acts without noise, (n, A)."""

    def reward_scale(self, training: TrajectoryDataset) -> float:
        """Factor of the rewards."""
        return 1.0

    def prepare(self, training: TrajectoryDataset) -> None:
        """Find the transitions."""
        self.transitions = Transitions(training, self.scaling)
        self._reward_scale = self.reward_scale(training)

    def groups(self) -> list[dict[str, Any]]:
        """Adam without weight decay; the actor may have a learning rate of its own."""
        rates = self.config.critic
        actor = {id(p) for p in self.loss.actor_network_params.parameters()}
        parts = [
            ([p for p in self.loss.parameters() if id(p) in actor], rates.actor_learning_rate),
            ([p for p in self.loss.parameters() if id(p) not in actor], rates.learning_rate),
        ]
        return [{"params": p, "lr": rate, "weight_decay": 0.0} for p, rate in parts]

    def losses(self, step: int) -> dict[str, Tensor]:
        """The terms of the loss on the batch of a step."""
        batch = self.transitions.draw(self.config.batch_size, self.config.seed, step)
        batch = batch.to(self.device)
        return self.terms(replace(batch, rewards=batch.rewards * self._reward_scale), step)

    def as_tensordict(self, batch: TransitionBatch) -> TensorDict:
        """Transitions as TorchRL's losses take them."""
        following = {
            "observation": batch.next_states,
            "reward": batch.rewards,
            "done": batch.terminated,
            "terminated": batch.terminated,
        }
        plain = {"observation": batch.states, "action": batch.actions, "next": following}
        return TensorDict(plain, [len(batch.states)], device=self.device)

    def after_step(self, step: int) -> None:
        """Let the target networks follow."""
        self._targets.step()

    def policy(self, target: float | None) -> MemorylessPolicy:
        """Act by the current state; there is no return to ask for."""
        return MemorylessPolicy(self.act, self.scaling.states, self.scaling.actions)

    @torch.inference_mode()
    def act(self, states: NDArray[Any]) -> NDArray[np.float32]:
        """(n, *shape) in and out."""
        observed = {"observation": self.scaling.scale_states(states)}
        scaled = TensorDict(observed, [len(states)], device=self.device)
        with self.loss.actor_network_params.to_module(self.loss.actor_network):
            return self.scaling.raw_actions(self.mean_actions(self.loss.actor_network, scaled))

    def perceptron(self, inputs: int, outputs: int) -> MLP:
        """Hidden layers with ReLU, of the configured size."""
        sizes = self.config.critic
        return MLP(
            in_features=inputs,
            out_features=outputs,
            num_cells=[sizes.width] * sizes.layers,
            activation_class=nn.ReLU,
        )

    def critic(self, state_size: int, action_size: int) -> ValueOperator:
        """Q of a state and an action."""
        network = self.perceptron(state_size + action_size, 1)
        return ValueOperator(network, in_keys=["observation", "action"])
