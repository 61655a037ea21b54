"""TT: a causal transformer over discretised steps, and plans by beam search (Janner, 2021)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from mtm.core.config import OptimizerConfig
from mtm.core.randomness import Purpose, generator
from mtm.data.modalities import BoolArray
from mtm.data.trajectories import TrajectoryDataset
from mtm.research.baselines.learner import Learner
from mtm.research.baselines.replay import Scaling
from mtm.research.baselines.settings import AgentConfig
from mtm.research.baselines.tt_network import TokenTransformer
from mtm.research.baselines.tt_planning import Planner
from mtm.research.baselines.tt_tokens import Bins, TokenSegments
from mtm.training.optimization import learning_rate

BETAS = (0.9, 0.95)
"""AdamW's averaging, as the authors have it."""
FINAL_SHARE = 0.1
"""Of the learning rate, at the last step."""
MOST_PLANS = 1024
"""Plans that are searched at once, of several environments: memory stays bounded."""


class TT(Learner):
    """Learns what comes next, token by token; acts by the first action of a good plan."""

    clip_norm = 1.0

    def __init__(self, config: AgentConfig, scaling: Scaling) -> None:
        super().__init__(config, scaling)
        settings, S, A = config.tt, scaling.states.size, scaling.actions.size
        self.bins = Bins(S + A + 2, settings.bins)
        self.network = TokenTransformer(S + A + 2, settings)
        weights = torch.ones(S + A + 2)
        weights[S : S + A] = settings.action_weight
        self._weights = weights
        self._rates = OptimizerConfig(
            name="adamw",
            learning_rate=settings.learning_rate,
            final_share=FINAL_SHARE,
            warmup_steps=settings.warmup_steps,
        )

    def prepare(self, training: TrajectoryDataset) -> None:
        """Measure the bins, and make tokens of all steps."""
        self.segments = TokenSegments(training, self.scaling, self.config.tt, self.bins)

    def groups(self) -> list[dict[str, Any]]:
        """AdamW, which decays matrices only; the learning rate is set before each step."""
        decayed = [m.weight for m in self.modules() if isinstance(m, nn.Linear)]
        decayed.append(self.network.out)
        ids = {id(p) for p in decayed}
        rest = [p for p in self.parameters() if id(p) not in ids]
        decay, common = self.config.tt.weight_decay, {"lr": 0.0, "betas": BETAS}
        return [
            {"params": decayed, "weight_decay": decay, **common},
            {"params": rest, "weight_decay": 0.0, **common},
        ]

    def before_step(self, optimizer: torch.optim.Optimizer, step: int) -> None:
        """Linear warm-up, then cosine decay."""
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, self.config.steps, self._rates)

    def losses(self, step: int) -> dict[str, Tensor]:
        """The cross-entropy of all tokens that are known, but the first."""
        rng = generator(self.config.seed, Purpose.SEGMENTS, step)
        tokens = self.segments.draw(self.config.batch_size, rng).to(self.device)
        scored = tokens != self.bins.unknown
        scored[:, 0] = False  # nothing comes before it
        truth = tokens.masked_fill(~scored, 0).flatten()
        errors = F.cross_entropy(self.network(tokens).flatten(0, 1), truth, reduction="none")
        weights = self._weights.to(self.device).repeat(self.config.tt.context)
        errors = torch.where(scored, errors.view(tokens.shape) * weights, 0.0)
        return {"tokens": errors.sum() / scored.sum().clamp(min=1)}

    def policy(self, target: float | None) -> TTPolicy:
        """Act by planning; there is no return to ask for."""
        return TTPolicy(self)

    @torch.inference_mode()
    def plan(self, past: NDArray[np.int64], uniform: NDArray[np.float32]) -> NDArray[np.int64]:
        """As `Planner.plan`, a few environments at a time."""
        size = self.scaling.states.size
        planner = Planner(self.network, self.bins, size, self.config.tt)
        several = max(MOST_PLANS // uniform.shape[1], 1)
        parts = [
            planner.plan(
                torch.from_numpy(past[i : i + several]).to(self.device),
                torch.from_numpy(uniform[i : i + several]).to(self.device),
            )
            for i in range(0, len(past), several)
        ]
        actions: NDArray[np.int64] = torch.cat(parts).cpu().numpy()
        return actions


class TTPolicy:
    """Keeps the past of each row as tokens, and plans anew at every step.

    The numbers that a plan is drawn by are a function of the seed and the step of the episode, the
    same in all rows: what a row does does not depend on the others.

    Args:
        learner: Trained.
    """

    def __init__(self, learner: TT) -> None:
        self._learner, self._config = learner, learner.config.tt
        self.states, self.actions = learner.scaling.states, learner.scaling.actions
        self._centres = learner.bins.centres().cpu().numpy()
        self.reset(1)

    def reset(self, n: int) -> None:
        """Begin n episodes."""
        J = self._learner.network.numbers
        self._past = np.zeros((n, self._config.history + 1, J), np.int64)
        self._filled = np.zeros(n, np.int64)  # steps before now that the row remembers
        self._steps = np.zeros(n, np.int64)

    def act(self, states: NDArray[Any]) -> NDArray[np.float32]:
        """Remember the states and plan for each row."""
        S, A = self.states.size, self.actions.size
        full = self._filled > self._config.history
        self._past[full] = np.roll(self._past[full], -1, axis=1)
        self._filled[full] -= 1
        rows = np.arange(len(self._filled))
        flat = np.asarray(states).reshape(len(rows), S)
        self._past[rows, self._filled, :S] = self._learner.bins.tokens(flat)
        chosen = np.empty((len(rows), A), np.int64)
        for filled in np.unique(self._filled):  # those of equally long pasts plan together
            mine = np.flatnonzero(self._filled == filled)
            past = self._past[mine].reshape(len(mine), -1)[:, : filled * (S + A + 2) + S]
            chosen[mine] = self._learner.plan(past, self._uniform(mine))
        self._past[rows, self._filled, S : S + A] = chosen
        raw = self._centres[np.arange(S, S + A), chosen].astype(np.float32)
        return raw.reshape(len(rows), *self.actions.shape)

    def observe(self, rewards: NDArray[Any], dones: BoolArray) -> None:
        """Remember the rewards; rows that are done begin a new episode."""
        rows, reward = np.arange(len(self._filled)), self._past.shape[2] - 2
        column = np.asarray(rewards, np.float64).reshape(-1, 1)
        self._past[rows, self._filled, reward] = self._learner.bins.tokens(column, reward)[:, 0]
        done = np.asarray(dones, bool)
        self._filled = np.where(done, 0, self._filled + 1)
        self._steps = np.where(done, 0, self._steps + 1)

    def keep(self, rows: NDArray[np.int64]) -> None:
        """Go on with these rows only."""
        self._past, self._filled = self._past[rows], self._filled[rows]
        self._steps = self._steps[rows]

    def _uniform(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """The numbers that draw the plans of some rows, (n, W * X, horizon * A)."""
        config = self._config
        shape = (config.beam * config.expand, config.horizon * self.actions.size)
        seed, steps = self._learner.config.seed, self._steps[rows]
        by_step = {
            int(step): generator(seed, Purpose.BEAM_SEARCH, int(step)).random(shape, np.float32)
            for step in np.unique(steps)
        }
        return np.stack([by_step[int(step)] for step in steps])
