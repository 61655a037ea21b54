"""Planning: a policy's own answer, and variations of it that the model itself has tried out.

At each step, in each environment:

    propose   sequences of actions: the plain policy's, and some with noise around it
    imagine   what comes of them, by forward dynamics of the same weights
    score     rewards on the way, the return after it, less the model's doubt
    act       by the weighted mean of the best (MPPI; with several rounds, CEM)

Each part can be switched off in `PlanConfig`; with one candidate, this is the plain policy.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mtm.control.masked_policy import MaskedPolicy
from mtm.control.return_targets import discount_of, sum_to_come
from mtm.core.errors import ConfigError
from mtm.core.plan_config import PlanConfig
from mtm.core.randomness import Purpose, generator
from mtm.data.modalities import BoolArray
from mtm.inference.engine import dtype_of
from mtm.inference.imagination import Imagined, imagine, reward_modality
from mtm.inference.state_returns import expected_returns, reachable_returns
from mtm.runs.run import Run

SMALLEST_SPREAD = 0.05
"""Of a further round of candidates, as a share of the first round's deviation."""


class PlanningPolicy:
    """Improves on a plain policy by trying variations of its actions in imagination.

    Args:
        plain: A policy that clones or asks for a return; it keeps the history.
        config: How to plan.

    Raises:
        ConfigError: Actions are classes, or the policy is two-stage; or there is nothing to score
            candidates by.
    """

    def __init__(self, plain: MaskedPolicy, config: PlanConfig) -> None:
        self.plain, self.run, self.config = plain, plain.run, config
        self.states, self.actions = plain.states, plain.actions
        if self.actions.kind == "discrete":
            raise ConfigError(
                f"planning adds noise to actions, and {self.actions.name!r} are classes; act by "
                "return_conditioned or behavior_cloning."
            )
        if any(way.future for way in plain.ways):
            raise ConfigError(
                "planning varies the actions of cloning or of return-conditioned acting; a policy "
                "that acts in two stages or tracks states cannot be its plain policy."
            )
        if self.run.segment_length < 2:
            raise ConfigError(
                "planning imagines the next state, and the run's segments have one step; train "
                "with a longer model.segment_length."
            )
        self.score = Score(self.run, config)
        self.horizon = config.horizon or self.run.segment_length - 1
        shape = (config.iterations, config.candidates, self.horizon, *self.actions.shape)
        self._noise = correlated_noise(shape, config.correlation, config.seed)

    def reset(self, n: int) -> None:
        """Begin n episodes."""
        self.plain.reset(n)

    def observe(self, rewards: NDArray[Any], dones: BoolArray) -> None:
        """What the last actions brought."""
        self.plain.observe(rewards, dones)

    def keep(self, rows: NDArray[np.int64]) -> None:
        """Go on with these rows only."""
        self.plain.keep(rows)

    def act(self, states: NDArray[Any]) -> NDArray[Any]:
        """The weighted mean of the best first actions, (n, *shape)."""
        action = self.plain.act(states)
        if self.config.candidates == 1:
            return action
        now = np.asarray(states, dtype_of(self.states))
        means, deviations = self._plain_sequence(now, action)
        smallest = SMALLEST_SPREAD * deviations
        for noise in self._noise:
            candidates = self._candidates(means, deviations, noise)  # (n, N, H, *shape)
            scores = self.score(self._imagine(now, candidates), self.plain.steps)  # (n, N)
            weights = weigh(scores, self.config.best, self.config.temperature).astype(means.dtype)
            means = np.einsum("nk,nk...->n...", weights, candidates)
            squares = np.einsum("nk,nk...->n...", weights, (candidates - means[:, None]) ** 2)
            deviations = np.maximum(np.sqrt(squares), smallest)
        chosen: NDArray[Any] = means[:, 0]
        self.plain.take(chosen)
        return chosen

    def _plain_sequence(
        self, states: NDArray[Any], action: NDArray[Any]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """What the plain policy would do at the states that it imagines, and how far to vary it.

        Returns:
            Actions and standard deviations, (n, H, *shape) each.
        """
        twin, known, actions = self.plain.fork(), states[:, None], [action]
        for _ in range(self.horizon - 1):
            ahead = imagine(self.run, known, np.stack(actions, axis=1))
            earned = np.zeros(len(states)) if ahead.rewards is None else ahead.rewards[:, 0]
            twin.observe(earned, np.zeros(len(states), bool))
            known = np.concatenate([known, ahead.states], axis=1)
            actions.append(twin.act(known[:, -1]))
        sequence = np.stack(actions, axis=1)
        return sequence, np.broadcast_to(self._deviations(action)[:, None], sequence.shape)

    def _deviations(self, actions: NDArray[Any]) -> NDArray[np.float32]:
        """How far to vary actions, (n, *shape): as predicted, else as the data's actions vary."""
        found = self.plain.deviations()
        if found is None:
            usual = self.run.normalizer.statistics[self.actions.name].std
            found = np.broadcast_to(usual, actions.shape)
        return np.asarray(self.config.noise * found, np.float32)

    def _candidates(
        self,
        means: NDArray[np.float32],
        deviations: NDArray[np.float32],
        noise: NDArray[np.float32],
    ) -> NDArray[np.float32]:
        """Sequences of actions, (n, N, H, *shape): the mean one first, then with noise around it.

        Noise does not leave the range of the data's actions, beyond which nothing is known.
        """
        known = self.run.normalizer.statistics[self.actions.name]
        candidates = means[:, None] + noise * deviations[:, None]
        candidates = np.clip(candidates, known.low, known.high)
        candidates[:, 0] = means
        return candidates

    def _imagine(self, states: NDArray[Any], candidates: NDArray[np.float32]) -> Imagined:
        """What comes of all candidates of all environments: n * N sequences in one batch."""
        n, N = candidates.shape[:2]
        starts = np.repeat(states, N, axis=0)[:, None]
        sequences = candidates.reshape(n * N, *candidates.shape[2:])
        return imagine(self.run, starts, sequences, per_pass=self.config.per_pass)


class Score:
    """How good imagined futures are, in units of the standard deviation of the data's returns.

    Args:
        run: A trained run.
        config: What counts.

    Raises:
        ConfigError: Nothing that counts is modelled.
    """

    def __init__(self, run: Run, config: PlanConfig) -> None:
        self.run, self.config = run, config
        returns = run.modalities.of_role("return")
        self.rewards = config.rewards and reward_modality(run) is not None
        self.tail = config.tail and len(returns) == 1 and returns[0].size == 1
        if not (self.rewards or self.tail or config.disagreement):
            raise ConfigError(
                "planning has nothing to score candidates by: the run models "
                f"{', '.join(run.modalities.names)}, and plan.rewards is {config.rewards}, "
                f"plan.tail {config.tail}, plan.disagreement {config.disagreement}. Train with "
                "returns or with rewards among the modalities."
            )

    def __call__(self, imagined: Imagined, steps: NDArray[np.int64]) -> NDArray[np.float64]:
        """Scores, (n, N).

        Args:
            imagined: The futures of n * N sequences.
            steps: That the n episodes have behind them, (n,).
        """
        n, ahead = len(steps), imagined.states.shape[1]
        discount = discount_of(self.run)
        total = np.zeros((n, len(imagined.states) // n))
        if self.rewards:
            assert imagined.rewards is not None
            earned = imagined.rewards @ np.power(discount, np.arange(ahead))
            total += earned.reshape(n, -1)
        if self.tail:
            reachable = self.run.description.train.model.values > 0
            find = reachable_returns if reachable else expected_returns
            values = find(self.run, imagined.states[:, -1]).reshape(n, -1)
            total += discount**ahead * sum_to_come(self.run, values, steps[:, None] + ahead)
        doubt = imagined.doubt.mean(axis=1).reshape(n, -1)
        score: NDArray[np.float64] = (
            total / self._unit(steps, ahead)[:, None] - self.config.disagreement * doubt
        )
        return score

    def _unit(self, steps: NDArray[np.int64], ahead: int) -> NDArray[np.float64]:
        """The standard deviation of the sum of rewards that is still to come, (n,)."""
        returns, reward = self.run.modalities.of_role("return"), reward_modality(self.run)
        if returns:
            std = float(self.run.normalizer.statistics[returns[0].name].std.mean())
            return np.maximum(sum_to_come(self.run, np.full(steps.shape, std), steps), std)
        std = 1.0 if reward is None else float(self.run.normalizer.statistics[reward.name].std)
        return np.full(steps.shape, std * ahead)


def actions_per_second(policy: PlanningPolicy, batch: int, seconds: float = 1.0) -> float:
    """How fast a policy acts in so many environments at once; it begins anew for it.

    Args:
        policy: What acts.
        batch: Environments.
        seconds: How long to measure, at least; after a first step that is not counted.
    """
    policy.reset(batch)
    known = policy.run.normalizer.statistics.get(policy.states.name)
    usual = np.zeros(policy.states.shape, np.int64) if known is None else known.mean
    states = np.broadcast_to(usual, (batch, *policy.states.shape))
    policy.act(states)
    began, steps = time.perf_counter(), 0
    while (took := time.perf_counter() - began) < seconds or not steps:
        policy.observe(np.zeros(batch), np.zeros(batch, bool))
        policy.act(states)
        steps += 1
    return steps * batch / took


def correlated_noise(shape: tuple[int, ...], correlation: float, seed: int) -> NDArray[np.float32]:
    """Standard normal noise, (rounds, candidates, steps, *shape), none for the first candidate.

    The others come in pairs of opposite noise, so that candidates of equal scores have the plain
    sequence as their mean; one that is left over has none either.

    Args:
        shape: Of the noise.
        correlation: From one step to the next.
        seed: Makes it.
    """
    rounds, candidates, steps, *action = shape
    pairs = (candidates - 1) // 2
    drawn = generator(seed, Purpose.PLANNING).standard_normal((rounds, pairs, steps, *action))
    for step in range(1, steps):
        drawn[:, :, step] *= np.sqrt(1 - correlation**2)
        drawn[:, :, step] += correlation * drawn[:, :, step - 1]
    plain = np.zeros((rounds, candidates - 2 * pairs, steps, *action))
    return np.concatenate([plain, drawn, -drawn], axis=1).astype(np.float32)


def weigh(scores: NDArray[np.float64], best: float, temperature: float) -> NDArray[np.float64]:
    """The weight of each candidate, (n, N): a softmax over the best, zero for the others.

    Args:
        scores: (n, N).
        best: The share of them that gets a weight; one at least.
        temperature: Of the softmax.
    """
    chosen = max(round(best * scores.shape[1]), 1)
    least = np.sort(scores, axis=1)[:, [-chosen]]
    top = scores.max(axis=1, keepdims=True)
    weights = np.where(scores >= least, np.exp((scores - top) / temperature), 0.0)
    normalized: NDArray[np.float64] = weights / weights.sum(axis=1, keepdims=True)
    return normalized
