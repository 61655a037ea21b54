"""The questions of the quick model: what follows from a state and an action, and what led to it.

States are told as changes, in units of how far they usually change, so that a slow feature counts
as much as a fast one. What is absent is not asked for, and neither is what would have to be told
from it; where actions are absent, what follows is told from states alone.

Letters: n transitions, C columns, F inputs, K answers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mtm.data.column_checks import is_clock
from mtm.data.modalities import BoolArray, IntArray, Modality
from mtm.data.trajectories import TrajectoryDataset

Floats32 = NDArray[np.float32]

FORWARD, INVERSE = "forward dynamics", "inverse dynamics"
WITHOUT_ACTIONS = "forward dynamics without actions"

MOST_CLASSES = 32
"""A discrete modality of more classes is not looked at."""
SAMPLED_STEPS = 50_000
"""What columns are scaled by, at most."""
FARTHEST_INPUT, FARTHEST_ANSWER = 10.0, 30.0
"""Values are cut off here, in units of what is usual."""
USUAL_CHANGE = 1.645
"""Nine tenths of normal numbers are within so many standard deviations."""
SMALLEST_SCALE = 1e-6


class Column(NamedTuple):
    """One number of a modality."""

    modality: str
    feature: int

    def __str__(self) -> str:
        return f"{self.modality}[{self.feature}]"


class AskedTransitions(NamedTuple):
    """Transitions as numbers.

    Attributes:
        inputs: (n, F).
        answers: (n, K).
        known: Which answers are recorded, (n, K).
    """

    inputs: Floats32
    answers: Floats32
    known: BoolArray

    def rows(self, chosen: IntArray) -> AskedTransitions:
        """Some of them."""
        return AskedTransitions(self.inputs[chosen], self.answers[chosen], self.known[chosen])


class EpisodeTransitions:
    """Consecutive steps of episodes.

    Args:
        dataset: States and actions are looked at; clocks, returns and rewards are not.
        rng: Draws the steps that columns are scaled by.
    """

    def __init__(self, dataset: TrajectoryDataset, rng: np.random.Generator) -> None:
        self.dataset = dataset
        streams = [m for m in dataset.modalities if not is_clock(m)]
        self._states = [m for m in streams if m.role == "state" and _is_small(m)]
        self._actions = [m for m in streams if m.role == "action" and _is_small(m)]
        if not self._states:  # what there is, is all that can follow
            self._states, self._actions = self._actions, []
        states = [Column(m.name, f) for m in self._states for f in range(_width(m))]
        actions = [Column(m.name, f) for m in self._actions for f in range(_width(m))]
        self.columns = {FORWARD: states, INVERSE: actions}
        if any(m.name in dataset.present for m in self._actions):
            self.columns[WITHOUT_ACTIONS] = states
        self._scale(rng)

    @property
    def questions(self) -> tuple[str, ...]:
        """Those that there is something to ask of."""
        return tuple(name for name, columns in self.columns.items() if columns)

    def steps_of(self, episodes: IntArray) -> tuple[IntArray, IntArray]:
        """The flat steps of episodes that another one follows, and the place of each's episode."""
        starts, counts = self.dataset.starts[episodes], self.dataset.lengths[episodes] - 1
        number = np.repeat(np.arange(len(episodes)), counts)
        before = np.cumsum(counts) - counts
        return starts[number] + np.arange(counts.sum()) - before[number], number

    def ask(self, question: str, steps: IntArray, episodes: IntArray) -> AskedTransitions:
        """A question about steps of some episodes."""
        first, last = self.dataset.starts[episodes], self.dataset.ends[episodes] - 1
        has_before = (steps > first)[:, None]
        before = np.maximum(steps - 1, first)
        now, known_now = self._states_at(steps)
        then, known_then = self._states_at(steps + 1)
        earlier, known_earlier = self._states_at(before)
        change = self._change(now, then)
        past = self._change(earlier, now) * has_before
        acted, known_acted = self._actions_at(steps)
        state = [np.clip(now, -FARTHEST_INPUT, FARTHEST_INPUT), past, has_before]
        told = _whole(known_now) & _whole(known_earlier)
        if question == FORWARD:
            acted_before, known_before = self._actions_at(before)
            inputs = [*state, acted, acted_before * has_before]
            told = told & _whole(known_acted) & _whole(known_before)
            return AskedTransitions(_joined(inputs), change, known_then & told)
        if question == WITHOUT_ACTIONS:
            return AskedTransitions(
                _joined(state), change, known_then & told & ~_whole(known_acted)
            )
        has_after = (steps + 1 < last)[:, None]
        after, known_after = self._states_at(np.minimum(steps + 2, last))
        future = self._change(then, after) * has_after
        told = told & _whole(known_then) & _whole(known_after)
        return AskedTransitions(
            _joined([*state, change, future, has_after]), acted, known_acted & told
        )

    def _scale(self, rng: np.random.Generator) -> None:
        """Middle and deviation of each column, and how far each state usually changes."""
        longer = np.flatnonzero(self.dataset.lengths > 1)
        steps, _ = self.steps_of(rng.permutation(longer))
        steps = np.sort(steps[:SAMPLED_STEPS])
        self._middle, self._deviation = {}, {}
        for key, streams in (("states", self._states), ("actions", self._actions)):
            width = sum(_width(m) for m in streams)
            self._middle[key], self._deviation[key] = np.zeros(width), np.ones(width)
            if not len(steps) or not width:
                continue
            values, known = _gather(self.dataset, streams, steps)
            for c in range(width):
                told = values[known[:, c], c]
                if len(told):
                    self._middle[key][c] = np.median(told)
                    self._deviation[key][c] = told.std() + SMALLEST_SCALE
        self._usual_change = np.ones(len(self._middle["states"]))
        if not len(steps):
            return
        now, known_now = self._states_at(steps)
        then, known_then = self._states_at(steps + 1)
        changes, known = np.abs(then - now), known_now & known_then
        for c in range(changes.shape[1]):
            found = changes[known[:, c], c]
            usual = np.quantile(found, 0.9) / USUAL_CHANGE if len(found) else 0.0
            usual = usual or (found.std() if len(found) else 0.0)  # it rarely changes
            self._usual_change[c] = usual or 1.0

    def _states_at(self, steps: IntArray) -> tuple[Floats32, BoolArray]:
        return self._at("states", self._states, steps)

    def _actions_at(self, steps: IntArray) -> tuple[Floats32, BoolArray]:
        values, known = self._at("actions", self._actions, steps)
        return np.clip(values, -FARTHEST_INPUT, FARTHEST_INPUT), known

    def _at(self, key: str, streams: list[Modality], steps: IntArray) -> tuple[Floats32, BoolArray]:
        """Scaled values, zero where they are absent, and presence, (n, C)."""
        values, known = _gather(self.dataset, streams, steps)
        scaled = (values - self._middle[key]) / self._deviation[key]
        return np.where(known, scaled, 0).astype(np.float32), known

    def _change(self, now: Floats32, then: Floats32) -> Floats32:
        change = (then - now) / self._usual_change
        return np.clip(change, -FARTHEST_ANSWER, FARTHEST_ANSWER).astype(np.float32)


def _gather(
    dataset: TrajectoryDataset, streams: list[Modality], steps: IntArray
) -> tuple[NDArray[np.float64], BoolArray]:
    """Values and presence of some modalities, (n, C); classes as a column each."""
    values: list[NDArray[Any]] = [np.zeros((len(steps), 0))]
    known = [np.zeros((len(steps), 0), bool)]
    for m in streams:
        array = np.asarray(dataset.arrays[m.name][steps])
        if m.kind == "discrete":
            values.append(array[:, None] == np.arange(m.classes))
        else:
            values.append(array.reshape(len(steps), -1))
        present = dataset.present.get(m.name)
        here = np.ones(len(steps), bool) if present is None else np.asarray(present[steps])
        known.append(np.repeat(here[:, None], _width(m), axis=1))
    return np.concatenate(values, axis=1, dtype=np.float64), np.concatenate(known, axis=1)


def _whole(known: BoolArray) -> BoolArray:
    """Where nothing is absent, (n, 1)."""
    return np.asarray(known.all(axis=1, keepdims=True))


def _is_small(m: Modality) -> bool:
    return m.kind == "continuous" or m.classes <= MOST_CLASSES


def _width(m: Modality) -> int:
    return m.classes if m.kind == "discrete" else m.size


def _joined(parts: list[NDArray[Any]]) -> Floats32:
    return np.concatenate(parts, axis=1, dtype=np.float32, casting="unsafe")
