"""A quick model of the data themselves: small networks that judge what they did not learn from.

Episodes are dealt into two halves. A network that has seen one half is asked about the other, so
that no fault is judged by who has learned it; and its errors there, not those of its training, say
what is usual. It predicts each number and how far off it may be; the loss is that of a heavy-tailed
distribution, to which a few faulty episodes matter little.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mtm.core.randomness import Purpose, generator
from mtm.data.modalities import BoolArray, IntArray
from mtm.data.trajectories import TrajectoryDataset
from mtm.evaluation.doctor.transitions import AskedTransitions, Column, EpisodeTransitions
from mtm.training.threads import restored_threads

Floats = NDArray[np.float64]

WIDTH = 128
BATCH = 256
FEWEST_UPDATES, MOST_UPDATES = 200, 2000
"""Of a network."""
STEPS_PER_UPDATE = 50
"""Recorded steps per update, between these bounds."""
LEARNING_RATE = 2e-3
WEIGHT_DECAY = 1e-4
FREEDOM = 3.0
"""Degrees of freedom of the loss, a t distribution's."""
LEARNED_STEPS, LINEAR_STEPS = 100_000, 20_000
"""Transitions that a network learns from, and that its linear part begins with, at most."""
PENALTY = 1e-5
"""Of its weights, per transition."""
SMALLEST_LOG, LARGEST_LOG = -6.0, 3.0
"""Bounds of the logarithm of the predicted deviation."""
CALIBRATION_STEPS = 20_000
"""Transitions of the other half that usual errors are measured on, at most."""
MIDDLE_OF_SQUARES = 0.455
"""The median of the square of a normal number."""
STEPS_AT_ONCE = 16_384


@dataclass(frozen=True)
class Answered:
    """A question about some episodes, answered.

    Attributes:
        question: Its name.
        columns: What the K numbers are.
        episodes: Number of each transition's episode, (n,).
        steps: Step of the episode at which each transition begins, (n,).
        recorded: In units of what is usual, (n, K).
        predicted: As recorded.
        deviation: How far off is usual here, (n, K).
        known: What is recorded at all, (n, K).
    """

    question: str
    columns: list[Column]
    episodes: IntArray
    steps: IntArray
    recorded: Floats
    predicted: Floats
    deviation: Floats
    known: BoolArray

    @property
    def squares(self) -> Floats:
        """Squared errors over usual ones, (n, K), about 1 as a rule; NaN where nothing is known."""
        squares = ((self.recorded - self.predicted) / self.deviation) ** 2
        return np.where(self.known, squares, np.nan)


class QuickModel:
    """Predicts each transition of a data set by a network that did not learn from its episode.

    Args:
        dataset: States, and actions if there are any.
        seed: Of the halves, the first weights and the batches.
    """

    def __init__(self, dataset: TrajectoryDataset, seed: int = 0) -> None:
        self.transitions = EpisodeTransitions(dataset, generator(seed, Purpose.VALIDATION))
        self.updates = 2 * len(self.transitions.questions) * updates_of(dataset)
        self._seed = seed
        self._half = generator(seed, Purpose.SPLIT).permutation(dataset.num_episodes) % 2
        self._networks: dict[tuple[str, int], _Network] = {}
        self._usual: dict[tuple[str, int], Floats] = {}

    @restored_threads()
    def learn(self, tell: Callable[[int], None] = lambda done: None) -> None:
        """Train all networks.

        Args:
            tell: Told how many of `updates` are done.
        """
        torch.set_num_threads(1)  # so small that they are slower on several
        for question in self.transitions.questions:
            for half in (0, 1):
                number = len(self._networks)
                rng = generator(self._seed, Purpose.SEGMENTS, number)
                done = number * updates_of(self.transitions.dataset)
                learned, asked = (np.flatnonzero(self._half == h) for h in (1 - half, half))
                network = _fit(self.transitions, question, learned, rng, done, tell)
                self._networks[question, half] = network
                self._usual[question, half] = self._calibrate(question, half, asked, rng)

    def answers(self, episodes: IntArray) -> Iterator[list[Answered]]:
        """All questions about some episodes, a number of episodes at a time."""
        lengths = self.transitions.dataset.lengths[episodes]
        cuts = np.flatnonzero(np.diff(np.cumsum(lengths) // STEPS_AT_ONCE)) + 1
        for part in np.split(episodes, cuts):
            yield [self._answer(question, part) for question in self.transitions.questions]

    def _answer(self, question: str, episodes: IntArray) -> Answered:
        steps, number = self.transitions.steps_of(episodes)
        of = episodes[number]
        asked = self.transitions.ask(question, steps, of)
        predicted = np.zeros(asked.answers.shape)
        deviation = np.ones(asked.answers.shape)
        for half in (0, 1):
            mine = self._half[of] == half
            said = self._networks[question, half].predict(asked.inputs[mine])
            predicted[mine], deviation[mine] = said[0], said[1] * self._usual[question, half]
        return Answered(
            question,
            self.transitions.columns[question],
            of,
            steps - self.transitions.dataset.starts[of],
            asked.answers.astype(np.float64),
            predicted,
            deviation,
            asked.known,
        )

    def _calibrate(
        self, question: str, half: int, episodes: IntArray, rng: np.random.Generator
    ) -> Floats:
        """How far off held-out answers are over what the network says, (K,)."""
        asked = _drawn(self.transitions, question, episodes, CALIBRATION_STEPS, rng)
        usual = np.ones(asked.answers.shape[1])
        mean, deviation = self._networks[question, half].predict(asked.inputs)
        squares = ((asked.answers - mean) / deviation) ** 2
        for k in range(len(usual)):
            found = squares[asked.known[:, k], k]
            if len(found):
                usual[k] = np.sqrt(max(float(np.median(found)), 1e-6) / MIDDLE_OF_SQUARES)
        return usual


def updates_of(dataset: TrajectoryDataset) -> int:
    """Updates of each network."""
    return min(max(dataset.num_steps // STEPS_PER_UPDATE, FEWEST_UPDATES), MOST_UPDATES)


class _Network(nn.Module):
    """A linear map, what it leaves to be explained, and how far off both may be."""

    def __init__(self, inputs: int, answers: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, answers)
        self.body = nn.Sequential(
            nn.Linear(inputs, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH), nn.SiLU()
        )
        self.head = nn.Linear(WIDTH, 2 * answers)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Means and logarithms of deviations, (n, K) each."""
        rest, log = self.head(self.body(inputs)).chunk(2, dim=1)
        return self.linear(inputs) + rest, log.clamp(SMALLEST_LOG, LARGEST_LOG)

    @torch.no_grad()
    def predict(self, inputs: NDArray[np.float32]) -> tuple[Floats, Floats]:
        """Means and deviations, (n, K) each."""
        mean, log = self(torch.from_numpy(inputs))
        return mean.double().numpy(), log.exp().double().numpy()


def _fit(
    transitions: EpisodeTransitions,
    question: str,
    episodes: IntArray,
    rng: np.random.Generator,
    done: int,
    tell: Callable[[int], None],
) -> _Network:
    """A network that has learned from these episodes."""
    learned = _drawn(transitions, question, episodes, LEARNED_STEPS, rng)
    learned = learned.rows(np.flatnonzero(learned.known.any(axis=1)))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(rng.integers(2**31)))
        network = _Network(learned.inputs.shape[1], learned.answers.shape[1])
    if not len(learned.inputs):
        return network
    _begin_linear(network, learned.rows(rng.permutation(len(learned.inputs))[:LINEAR_STEPS]))
    total = updates_of(transitions.dataset)
    optimizer = torch.optim.AdamW(network.parameters(), weight_decay=WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=total)
    for update in range(total):
        asked = learned.rows(rng.integers(len(learned.inputs), size=BATCH))
        loss = _loss(network, asked)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        tell(done + update + 1)
    return network


def _loss(network: _Network, asked: AskedTransitions) -> Tensor:
    """The negative log likelihood of a t distribution, over what is known."""
    mean, log = network(torch.from_numpy(asked.inputs))
    known = torch.from_numpy(asked.known)
    squares = (torch.from_numpy(asked.answers) - mean) ** 2 * torch.exp(-2 * log)
    losses = log + (FREEDOM + 1) / 2 * torch.log1p(squares / FREEDOM)
    loss: Tensor = (losses * known).sum() / known.sum().clamp(min=1)
    return loss


def _begin_linear(network: _Network, asked: AskedTransitions) -> None:
    """Set the linear part to least squares, and the deviations to what it leaves."""
    rows = asked.known.all(axis=1)
    x = np.hstack([asked.inputs, np.ones((len(asked.inputs), 1))])[rows].astype(np.float64)
    y = asked.answers[rows].astype(np.float64)
    if not len(x):
        return
    penalties = (PENALTY * len(x) + 1e-9) * np.eye(x.shape[1])
    weights = np.linalg.solve(x.T @ x + penalties, x.T @ y)  # (F + 1, K)
    left = np.sqrt(np.median((y - x @ weights) ** 2, axis=0) / MIDDLE_OF_SQUARES)
    with torch.no_grad():
        network.linear.weight.copy_(torch.from_numpy(weights[:-1].T))
        network.linear.bias.copy_(torch.from_numpy(weights[-1]))
        logs = torch.from_numpy(np.log(np.clip(left, np.exp(SMALLEST_LOG), None)))
        network.head.bias[len(left) :] = logs.float()


def _drawn(
    transitions: EpisodeTransitions,
    question: str,
    episodes: IntArray,
    count: int,
    rng: np.random.Generator,
) -> AskedTransitions:
    """A question about so many transitions of these episodes, at most."""
    steps, number = transitions.steps_of(episodes)
    if len(steps) > count:
        chosen = np.sort(rng.choice(len(steps), count, replace=False))
        steps, number = steps[chosen], number[chosen]
    return transitions.ask(question, steps, episodes[number])
