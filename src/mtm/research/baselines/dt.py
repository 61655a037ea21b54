"""DT: actions from past returns-to-go, states and actions, by a causal transformer (Chen, 2021).

The loss is TorchRL's. The network is written here, because TorchRL's comes from the transformers
library, which nothing else needs; like that one, it knows places in the context, not the time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torch import Tensor, nn
from torchrl.objectives import DTLoss

from mtm.core.errors import ConfigError
from mtm.data.modalities import BoolArray
from mtm.data.returns import RETURNS
from mtm.data.segments import Segments
from mtm.data.trajectories import TrajectoryDataset
from mtm.research.baselines.imitation_settings import DTConfig
from mtm.research.baselines.learner import Learner
from mtm.research.baselines.replay import Scaling
from mtm.research.baselines.settings import AgentConfig

if TYPE_CHECKING:
    from typing_extensions import Self

INPUTS = ["returns", "states", "actions"]


class DecisionTransformer(nn.Module):
    """Tokens in the order return, state, action; each action is read off its state."""

    def __init__(self, state_size: int, action_size: int, config: DTConfig) -> None:
        super().__init__()
        D = config.width
        self.returns = nn.Linear(1, D)
        self.states = nn.Linear(state_size, D)
        self.actions = nn.Linear(action_size, D)
        self.positions = nn.Parameter(torch.randn(3 * config.context, D) * 0.02)
        layer = nn.TransformerEncoderLayer(
            D, config.heads, 4 * D, config.dropout, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(
            layer, config.layers, nn.LayerNorm(D), enable_nested_tensor=False
        )
        self.out = nn.Linear(D, action_size)

    def forward(self, returns: Tensor, states: Tensor, actions: Tensor) -> Tensor:
        """(B, K, 1), (B, K, S) and (B, K, A) to actions within [-1, 1], (B, K, A)."""
        B, K = states.shape[:2]
        parts = [self.returns(returns), self.states(states), self.actions(actions)]
        tokens = torch.stack(parts, dim=2).view(B, 3 * K, -1) + self.positions
        later = torch.ones(3 * K, 3 * K, dtype=torch.bool).triu(1)
        decoded = self.layers(tokens, mask=later, is_causal=True)
        return torch.tanh(self.out(decoded.view(B, K, 3, -1)[:, :, 1]))


class DT(Learner):
    """Clones what goes with a return, over segments of `context` steps."""

    def __init__(self, config: AgentConfig, scaling: Scaling) -> None:
        super().__init__(config, scaling)
        self.clip_norm = config.dt.clip_norm
        network = DecisionTransformer(scaling.states.size, scaling.actions.size, config.dt)
        actor = TensorDictModule(network, in_keys=INPUTS, out_keys=["action"])
        self.loss = DTLoss(actor, reduction="none")
        self.loss.set_keys(action_target="actions", action_pred="action")

    def train(self, mode: bool = True) -> Self:
        """Also tell the network, which TorchRL keeps apart from its parameters."""
        self.loss.actor_network.train(mode)
        return super().train(mode)

    def prepare(self, training: TrajectoryDataset) -> None:
        """Number the segments."""
        names = [RETURNS.name, self.scaling.states.name, self.scaling.actions.name]
        self.segments = Segments(training.select(names), self.config.dt.context)

    def groups(self) -> list[dict[str, Any]]:
        """AdamW on everything; the learning rate is set before each step."""
        parameters = list(self.parameters())
        return [{"params": parameters, "lr": 0.0, "weight_decay": self.config.dt.weight_decay}]

    def before_step(self, optimizer: torch.optim.Optimizer, step: int) -> None:
        """Linear warm-up, then a constant learning rate."""
        settings = self.config.dt
        share = min((step + 1) / max(settings.warmup_steps, 1), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = settings.learning_rate * share

    def losses(self, step: int) -> dict[str, Tensor]:
        """The mean squared error of the actions that are there."""
        numbers = self.segments.draw(self.config.batch_size, self.config.seed, step)
        batch = self.segments.gather(numbers)
        returns, states, actions = batch.values.values()
        known = torch.from_numpy(batch.present).to(self.device)  # (B, K, 3)
        inputs = self._inputs(returns, states, actions)
        for i, name in enumerate(INPUTS):
            inputs[name] = inputs[name].masked_fill(~known[:, :, i : i + 1], 0.0)
        errors = self.loss(TensorDict(inputs, known.shape[:2]))["loss"].mean(dim=2)  # (B, K)
        scored = known.all(dim=2)
        return {"actor": torch.where(scored, errors, 0.0).sum() / scored.sum().clamp(min=1)}

    def policy(self, target: float | None) -> DTPolicy:
        """Act as goes with an episode return.

        Raises:
            ConfigError: None is given.
        """
        if target is None:
            raise ConfigError("a Decision Transformer needs a target, such as 'auto'.")
        return DTPolicy(self, target)

    @torch.inference_mode()
    def act(
        self, returns: NDArray[Any], states: NDArray[Any], actions: NDArray[Any]
    ) -> NDArray[np.float32]:
        """The actions at every step of some histories, (n, K, *shape); later ones do not matter."""
        inputs = TensorDict(self._inputs(returns, states, actions), states.shape[:2])
        with self.loss.actor_network_params.to_module(self.loss.actor_network):
            chosen = self.loss.actor_network(inputs)["action"]
        raw = self.scaling.raw_actions(chosen.flatten(0, 1))
        return raw.reshape(*states.shape[:2], *raw.shape[1:])

    def _inputs(
        self, returns: NDArray[Any], states: NDArray[Any], actions: NDArray[Any]
    ) -> dict[str, Tensor]:
        """Raw values (n, K, *shape) in the network's units, (n, K, size) each."""
        n, K = states.shape[:2]
        flat = [values.reshape(n * K, *values.shape[2:]) for values in (states, actions)]
        asked = torch.from_numpy(np.ascontiguousarray(returns, np.float32))
        return {
            name: values.to(self.device)
            for name, values in (
                ("returns", self.scaling.normalizer.normalize(RETURNS.name, asked).view(n, K, 1)),
                ("states", self.scaling.scale_states(flat[0]).view(n, K, -1)),
                ("actions", self.scaling.scale_actions(flat[1]).view(n, K, -1)),
            )
        }


class DTPolicy:
    """Keeps the history of each row, and takes what was earned off its target.

    Args:
        learner: Trained.
        target: The episode return to ask for.
    """

    def __init__(self, learner: DT, target: float) -> None:
        self._learner, self.target = learner, target
        self.states, self.actions = learner.scaling.states, learner.scaling.actions
        self.reset(1)

    def reset(self, n: int) -> None:
        """Begin n episodes."""
        K = self._learner.config.dt.context
        self._returns = np.zeros((n, K), np.float32)
        self._states = np.zeros((n, K, *self.states.shape), np.float32)
        self._actions = np.zeros((n, K, *self.actions.shape), np.float32)
        self._now = np.zeros(n, np.int64)  # the place of the current step in the context
        self._left = np.full(n, self.target)

    def act(self, states: NDArray[Any]) -> NDArray[np.float32]:
        """Remember the states and choose an action for each row."""
        full = self._now == self._returns.shape[1]
        for past in (self._returns, self._states, self._actions):
            past[full] = np.roll(past[full], -1, axis=1)
        self._now[full] -= 1
        rows = np.arange(len(self._now))
        self._returns[rows, self._now] = self._left
        self._states[rows, self._now] = states
        answers = self._learner.act(self._returns, self._states, self._actions)
        chosen = answers[rows, self._now]
        self._actions[rows, self._now] = chosen
        return chosen

    def observe(self, rewards: NDArray[Any], dones: BoolArray) -> None:
        """Take rewards off what is left; rows that are done begin a new episode."""
        done = np.asarray(dones, bool)
        self._left = np.where(done, self.target, self._left - rewards)
        self._now = np.where(done, 0, self._now + 1)

    def keep(self, rows: NDArray[np.int64]) -> None:
        """Go on with these rows only."""
        self._returns, self._states = self._returns[rows], self._states[rows]
        self._actions, self._now = self._actions[rows], self._now[rows]
        self._left = self._left[rows]
