"""10 %BC: behaviour cloning of the best tenth of the episodes (as named by Chen et al., 2021).

The network, its optimizer and its budget are those of the perceptron of behaviour cloning
(`mtm.research.baselines.mlp_config`); what differs is what it is shown.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from mtm.control.memoryless_policy import MemorylessPolicy
from mtm.core.config import ModelConfig, OptimizerConfig
from mtm.core.errors import DataError
from mtm.core.randomness import Purpose, generator
from mtm.data.modalities import IntArray
from mtm.data.returns import episode_returns
from mtm.data.trajectories import TrajectoryDataset
from mtm.models.mlp import MLP
from mtm.research.baselines.learner import Learner
from mtm.research.baselines.replay import Scaling
from mtm.research.baselines.settings import AgentConfig
from mtm.training.losses import distances
from mtm.training.optimization import learning_rate


class BC10(Learner):
    """A perceptron from a state to the action that the best episodes took there."""

    def __init__(self, config: AgentConfig, scaling: Scaling) -> None:
        super().__init__(config, scaling)
        settings = config.bc10
        self._rates = OptimizerConfig(
            name="adamw",
            learning_rate=settings.learning_rate,
            final_share=0.0,
            warmup_steps=settings.warmup_steps,
            weight_decay=settings.weight_decay,
        )
        self.clip_norm = self._rates.clip_norm
        model = ModelConfig(
            network="mlp",
            segment_length=1,
            width=settings.width,
            encoder_layers=settings.layers,
            heads=1,
            residual=False,
            predict_variance=False,
        )
        self.network = MLP((scaling.states, scaling.actions), model)

    def prepare(self, training: TrajectoryDataset) -> None:
        """Find the steps of the best episodes."""
        training.check_stored()
        self.dataset = training
        self.steps = best_steps(training, self.config.bc10.share, self.scaling)

    def groups(self) -> list[dict[str, Any]]:
        """AdamW, which decays matrices only; the learning rate is set before each step."""
        matrices = [m.weight for m in self.modules() if isinstance(m, nn.Linear)]
        biases = [m.bias for m in self.modules() if isinstance(m, nn.Linear)]
        decay = self._rates.weight_decay
        return [
            {"params": matrices, "lr": 0.0, "weight_decay": decay},
            {"params": biases, "lr": 0.0, "weight_decay": 0.0},
        ]

    def before_step(self, optimizer: torch.optim.Optimizer, step: int) -> None:
        """Linear warm-up, then cosine decay."""
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, self.config.steps, self._rates)

    def losses(self, step: int) -> dict[str, Tensor]:
        """The mean error of the normalised actions."""
        rng = generator(self.config.seed, Purpose.SEGMENTS, step)
        drawn = self.steps[rng.integers(len(self.steps), size=self.config.batch_size)]
        states, actions = (
            torch.from_numpy(self.dataset.arrays[m.name][drawn])
            for m in (self.scaling.states, self.scaling.actions)
        )
        truth = self.scaling.normalizer.normalize(self.scaling.actions.name, actions)
        truth, chosen = truth.to(self.device), self._predict(states)
        if self.config.bc10.action_loss == "squared":
            return {"actor": F.mse_loss(chosen, truth)}
        return {"actor": distances(chosen.unsqueeze(1), truth.unsqueeze(1)).mean()}

    def policy(self, target: float | None) -> MemorylessPolicy:
        """Act by the current state; there is no return to ask for."""
        return MemorylessPolicy(self.act, self.scaling.states, self.scaling.actions)

    @torch.inference_mode()
    def act(self, states: NDArray[Any]) -> NDArray[np.float32]:
        """(n, *shape) in and out, within the range of the training split."""
        name = self.scaling.actions.name
        chosen = self._predict(torch.from_numpy(np.ascontiguousarray(states, np.float32)))
        raw = self.scaling.normalizer.denormalize(name, chosen).cpu().numpy()
        known = self.scaling.normalizer.statistics[name]
        return np.asarray(np.clip(raw, known.low, known.high), np.float32)

    def _predict(self, states: Tensor) -> Tensor:
        """Raw states to normalised actions, (n, *shape) each."""
        scaling, n = self.scaling, len(states)
        shown = scaling.normalizer.normalize(scaling.states.name, states).to(self.device)
        hidden = torch.zeros(n, 1, *scaling.actions.shape, device=self.device)
        values = {scaling.states.name: shown.unsqueeze(1), scaling.actions.name: hidden}
        visible = torch.tensor([True, False]).expand(n, 1, 2)
        actions: Tensor = self.network(values, visible).values[scaling.actions.name]
        return actions.squeeze(1)


def best_steps(data: TrajectoryDataset, share: float, scaling: Scaling) -> IntArray:
    """The steps of the episodes of the highest returns that have a state and an action.

    Args:
        data: With rewards.
        share: Of the episodes whose return is known; one episode at least.
        scaling: Which modalities are states and actions.

    Raises:
        DataError: No return is known, or no step of the best episodes is complete.
    """
    returns = episode_returns(data)
    known = np.flatnonzero(~np.isnan(returns))
    if not len(known):
        raise DataError(
            "no episode has all of its rewards, so which are the best is not known. Fill in the "
            "rewards (0 where nothing was earned), or clone all episodes: mtm train --mask bc."
        )
    order = known[np.argsort(-returns[known], kind="stable")]
    best = order[: max(int(share * len(order)), 1)]
    steps = np.concatenate([np.arange(data.starts[e], data.ends[e]) for e in best])
    complete = data.known(scaling.states.name) & data.known(scaling.actions.name)
    found: IntArray = steps[complete[steps]]
    if not len(found):
        raise DataError(
            f"none of the {len(best)} best episodes has a step with a state and an action; clone "
            "more of them with a larger bc10.share."
        )
    return found
