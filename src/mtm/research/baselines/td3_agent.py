"""TD3 on TorchRL's loss: what is trained, and one update of it.

TorchRL's loss runs the actor and hands the critics what the actor wrote. So the chain that is the
actor there ends with what the critics read, in all variants:

    observation, noise --policy--> action
    state, action --pair--> pair --critics--> values

An encoder in `pair` is the critics' nonetheless: their loss trains it. It stands outside of them so
that it runs once for both.

The networks and their targets are in TorchRL's loss, which says what the losses are. They are
worked out here, for a fraction of its overhead; a test holds both equal.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tensordict import TensorDict
from tensordict.nn import TensorDictModule, TensorDictSequential
from torch import Tensor, nn
from torchrl.objectives import SoftUpdate, TD3Loss, ValueEstimators

from mtm.data.returns import reward_of
from mtm.data.trajectories import TrajectoryDataset
from mtm.inference.encoders import StateActionEncoder, StepEncoder, encode_all
from mtm.research.baselines.stacked import first_fixed, with_tensors_of
from mtm.research.baselines.td3_config import TD3Config
from mtm.research.baselines.td3_data import EncodedTransitions
from mtm.research.baselines.td3_networks import (
    TD3Actor,
    TD3Heads,
    frozen_observer,
    head,
    make_pair,
    run_for,
    tuned_encoder,
)
from mtm.research.baselines.transitions import TransitionIndex, check_modalities
from mtm.runs.run import Run


class TD3Agent(nn.Module):
    """Actor, twin critics, their targets, the encoders and the optimizer.

    Args:
        config: Settings.
        state_size: Numbers in a state.
        low: Least action, (A,).
        high: Greatest action, (A,).
        run: The pretrained run; None for the variant `raw`.
    """

    def __init__(
        self,
        config: TD3Config,
        state_size: int,
        low: NDArray[np.float32],
        high: NDArray[np.float32],
        run: Run | None = None,
    ) -> None:
        super().__init__()
        run = run_for(config, run)
        self.observer = frozen_observer(config, run)
        observed = state_size if self.observer is None else self.observer.features
        policy = TD3Actor(tuned_encoder(config, run), observed, config.hidden, low, high)
        pair = make_pair(config, run)
        if isinstance(pair, StateActionEncoder):
            paired = pair.features
        else:
            paired = (observed if pair.encoder is None else pair.encoder.features) + len(low)
        critics = [head(paired, config.hidden, 1) for _ in range(2)]
        self.loss = TD3Loss(
            TensorDictSequential(
                TensorDictModule(policy, ["observation", "noise"], ["action"]),
                TensorDictModule(pair, ["state", "action"], ["pair"]),
            ),
            [TensorDictModule(critic, ["pair"], ["state_action_value"]) for critic in critics],
            bounds=(torch.from_numpy(low), torch.from_numpy(high)),
            policy_noise=0.0,  # it is in the batch, where it is a function of seed and step
            loss_function="l2",
            deactivate_vmap=True,  # one critic after the other is faster, by a fifth on a CPU
        )
        self.loss.make_value_estimator(ValueEstimators.TD0, gamma=config.discount)
        self._discount = config.discount
        self._targets = SoftUpdate(self.loss, tau=config.target_rate)
        # TorchRL lists the parameters of these two; to list them here too would be twice.
        self._networks = (policy, pair)
        self._make_shortcuts()
        self._of_actor = list(policy.parameters())
        self._of_critics = [*pair.parameters(), *self.loss.qvalue_network_params.parameters()]
        self.adam = self._make_adam(config)

    @property
    def policy(self) -> TD3Actor:
        """The actor's network."""
        return self._networks[0]

    @property
    def encoders(self) -> list[StepEncoder]:
        """The encoders that stand in the networks, frozen or not."""
        parts = [part for network in self._networks for part in network.modules()]
        return [part for part in parts if isinstance(part, StepEncoder)]

    @torch.no_grad()
    def transitions(self, data: TrajectoryDataset) -> EncodedTransitions:
        """Data for the updates; what frozen encoders make of them is worked out once, here.

        Raises:
            DataError: There is no transition to learn from.
        """
        of_states, of_actions = check_modalities(data)
        data.check_stored()
        # Copies, because the data may be mapped from disk, and are read in random order.
        states, actions, rewards = (
            torch.from_numpy(np.array(data.arrays[name]))
            for name in (of_states.name, of_actions.name, reward_of(data).name)
        )
        observations, read, pair = states, states, self._networks[1]
        pairs = None
        if self.observer is not None:
            observations = encode_all(self.observer, states)
        if isinstance(pair, StateActionEncoder):
            pairs = None if pair.trainable else encode_all(pair, states, actions)
        else:
            read = observations
        index = TransitionIndex(data, of_states, of_actions)
        return EncodedTransitions(observations, read, actions, rewards.reshape(-1, 1), pairs, index)

    @torch.inference_mode()
    def act(self, states: NDArray[Any]) -> NDArray[np.float32]:
        """What the actor does without noise: (n, size) to (n, A)."""
        observations = torch.from_numpy(np.asarray(states, np.float32))
        if self.observer is not None:
            observations = self.observer(observations)
        actions: NDArray[np.float32] = self.policy(observations, torch.zeros(())).numpy()
        return actions

    def update(self, batch: TensorDict) -> Tensor:
        """One update of everything.

        Returns:
            The critics' and the actor's loss, (2,).
        """
        if batch.get("pair", None) is None:
            batch["pair"] = self._networks[1](batch["state"], batch["action"])
        critic_loss, actor_loss = self.critic_loss(batch), self.actor_loss(batch)
        self.adam.zero_grad()
        critic_loss.backward(inputs=self._of_critics)  # type: ignore[no-untyped-call]
        # Not the critics' encoder.
        actor_loss.backward(inputs=self._of_actor)  # type: ignore[no-untyped-call]
        self.adam.step()
        self._targets.step()
        return torch.stack([critic_loss.detach(), actor_loss.detach()])

    def critic_loss(self, batch: TensorDict) -> Tensor:
        """The squared errors of both critics."""
        following = batch["next"]
        policy, pair = self._target_networks
        with torch.no_grad():
            actions = policy(following["observation"], following["noise"])
            value = self._target_critics(pair(following["state"], actions)).amin(dim=0)
            goes_on = self._discount * (~following["terminated"])
            aim: Tensor = following["reward"] + goes_on * value  # (B, 1)
        return (self._critics(batch["pair"]) - aim).square().mean(dim=(1, 2)).sum()

    def actor_loss(self, batch: TensorDict) -> Tensor:
        """Less the value that the first critic sees in what the actor does."""
        policy, pair = self._networks
        actions = policy(batch["observation"], batch["noise"])
        return -self._judge(pair(batch["state"], actions)).mean()

    def _make_shortcuts(self) -> None:
        """Find the parameters of the critics and of all targets within the loss."""
        loss = self.loss
        self._critics = TD3Heads(loss.qvalue_network_params)
        self._judge = TD3Heads(first_fixed(loss.qvalue_network_params))
        self._target_critics = TD3Heads(loss.target_qvalue_network_params)
        targets = loss.target_actor_network_params
        self._target_networks = tuple(
            with_tensors_of(network, targets, "module", str(i), "module")
            for i, network in enumerate(self._networks)
        )

    def _make_adam(self, config: TD3Config) -> torch.optim.AdamW:
        tuned = {id(p) for encoder in self.encoders for p in encoder.parameters()}
        trained = [*self._of_actor, *self._of_critics]
        rate = config.encoder_learning_rate or config.learning_rate
        groups: list[dict[str, Any]] = [{"params": [p for p in trained if id(p) not in tuned]}]
        if tuned:
            groups.append({"params": [p for p in trained if id(p) in tuned], "lr": rate})
        return torch.optim.AdamW(groups, lr=config.learning_rate, weight_decay=0.0, fused=True)
