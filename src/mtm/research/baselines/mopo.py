"""MOPO: soft actor-critic on what an ensemble imagines, less where it is unsure (Yu et al., 2020).

The first steps train the ensemble, all others the actor and its critics, on TorchRL's loss. What is
imagined lies in buffers of the learner, so that a checkpoint holds it and resuming is exact.
"""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torch import Tensor, nn
from torchrl.modules import NormalParamExtractor, ProbabilisticActor, TanhNormal
from torchrl.objectives import SACLoss

from mtm.core.errors import ConfigError
from mtm.data.trajectories import TrajectoryDataset
from mtm.research.baselines.actor_critic import ActorCritic
from mtm.research.baselines.dynamics import DynamicsEnsemble
from mtm.research.baselines.dynamics_fit import DynamicsData
from mtm.research.baselines.replay import Scaling, TransitionBatch
from mtm.research.baselines.settings import AgentConfig


class MOPO(ActorCritic):
    """An ensemble of dynamics, and a squashed Gaussian actor with two critics that trust it."""

    imagined: Tensor
    written: Tensor

    def __init__(self, config: AgentConfig, scaling: Scaling) -> None:
        super().__init__(config, scaling)
        self.dynamics = DynamicsEnsemble(config.dynamics, scaling)
        settings = config.mopo
        room = settings.rollouts * settings.horizon * settings.kept
        S, A = scaling.states.size, scaling.actions.size
        self._parts = [S, A, 1, S, 1]  # state, action, penalised reward, next state, terminated
        self.register_buffer("imagined", torch.zeros(room, sum(self._parts)))
        self.register_buffer("written", torch.zeros((), dtype=torch.int64))

    def make_loss(self, state_size: int, action_size: int) -> SACLoss:
        """TorchRL's SAC loss."""
        network = nn.Sequential(
            self.perceptron(state_size, 2 * action_size), NormalParamExtractor()
        )
        actor = ProbabilisticActor(
            TensorDictModule(network, in_keys=["observation"], out_keys=["loc", "scale"]),
            in_keys=["loc", "scale"],
            distribution_class=TanhNormal,
        )
        loss = SACLoss(
            actor,
            self.critic(state_size, action_size),
            target_entropy=-float(action_size),
            loss_function="l2",
            deactivate_vmap=True,
        )
        loss.target_entropy  # noqa: B018 - becomes a buffer when first asked for, and is then saved
        return loss

    def prepare(self, training: TrajectoryDataset) -> None:
        """Find the transitions, and share them out among the networks of the ensemble.

        Raises:
            ConfigError: No step is left for the actor.
        """
        steps = self.config.mopo.dynamics_steps
        if steps >= self.config.steps:
            raise ConfigError(
                f"mopo.dynamics_steps {steps} must be below steps {self.config.steps}: they are "
                "its first, and what follows trains the actor."
            )
        super().prepare(training)
        networks = self.config.dynamics.networks
        self._of_dynamics = DynamicsData(self.transitions, networks, self.config.seed)
        self.dynamics.measure(self._of_dynamics.sample().to(self.device))

    def groups(self) -> list[dict[str, Any]]:
        """Adam without weight decay: the ensemble's is in its loss."""
        rate = self.config.dynamics.learning_rate
        parameters = list(self.dynamics.parameters())
        return [*super().groups(), {"params": parameters, "lr": rate, "weight_decay": 0.0}]

    def before_step(self, optimizer: torch.optim.Optimizer, step: int) -> None:
        """Once the ensemble is trained, imagine what the actor of now would do."""
        acting = step - self.config.mopo.dynamics_steps
        if acting == 0:
            self.dynamics.choose_elites(self._of_dynamics.held_out().to(self.device))
        if acting >= 0 and acting % self.config.mopo.imagine_every == 0:
            self._imagine()

    def losses(self, step: int) -> dict[str, Tensor]:
        """The ensemble's loss, or those of actor, critics and temperature."""
        size = self.config.batch_size
        if step < self.config.mopo.dynamics_steps:
            batch = self._of_dynamics.batch(size, step).to(self.device)
            return {"dynamics": self.dynamics.loss(batch)}
        real = round(self.config.mopo.real_share * size)
        return self.terms(self._mixed(real, size - real, step), step)

    def terms(self, batch: TransitionBatch, step: int) -> dict[str, Tensor]:
        """Losses of the critics, of the actor and its temperature."""
        plain = self.as_tensordict(batch)
        critic = self.loss.qvalue_v2_loss(plain)[0]
        actor, found = self.loss.actor_loss(plain)
        temperature = self.loss.alpha_loss(found["log_prob"]).mean()
        return {"critic": critic, "actor": actor, "temperature": temperature}

    def after_step(self, step: int) -> None:
        """Let the target networks follow, once the critics are trained."""
        if step >= self.config.mopo.dynamics_steps:
            super().after_step(step)

    def mean_actions(self, actor: ProbabilisticActor, states: TensorDict) -> Tensor:
        """The most likely action before squashing, squashed."""
        mode: Tensor = actor.get_dist(states).deterministic_sample
        return mode

    @torch.no_grad()
    def _imagine(self) -> None:
        """Follow the actor of now through the ensemble, from states of the data."""
        settings = self.config.mopo
        numbers = torch.randint(len(self.transitions.index), (settings.rollouts,))
        states = self.transitions.at(numbers.numpy()).states.to(self.device)
        for _ in range(settings.horizon):
            actions = self._drawn_actions(states)
            found = self.dynamics.imagine(states, actions)
            rewards = found.rewards - settings.penalty * found.uncertainty
            ended = found.terminated.float()
            self._write(torch.cat([states, actions, rewards, found.next_states, ended], dim=1))
            states = found.next_states[~found.terminated.squeeze(1)]
            if not len(states):
                break

    def _drawn_actions(self, states: Tensor) -> Tensor:
        observed = TensorDict({"observation": states}, [len(states)], device=self.device)
        with self.loss.actor_network_params.to_module(self.loss.actor_network):
            drawn: Tensor = self.loss.actor_network.get_dist(observed).sample()
        return drawn

    def _write(self, rows: Tensor) -> None:
        """Replace the oldest rows."""
        places = torch.arange(len(rows), device=rows.device) + self.written
        self.imagined[places % len(self.imagined)] = rows
        self.written += len(rows)

    def _mixed(self, real: int, imagined: int, step: int) -> TransitionBatch:
        """Transitions of the data and imagined ones."""
        true = self.transitions.draw(real, self.config.seed, step).to(self.device)
        filled = min(int(self.written), len(self.imagined))
        drawn = self.imagined[torch.randint(filled, (imagined,), device=self.device)]
        states, actions, rewards, after, ended = torch.split_with_sizes(drawn, self._parts, dim=1)
        return TransitionBatch(
            torch.cat([true.states, states]),
            torch.cat([true.actions, actions]),
            torch.cat([true.rewards, rewards]),
            torch.cat([true.next_states, after]),
            torch.cat([true.terminated, ended > 0]),
            torch.cat([true.next_actions, torch.zeros_like(actions)]),
            torch.cat([true.next_known, torch.zeros_like(ended) > 0]),
        )
