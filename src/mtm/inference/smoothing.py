"""Gaps in states, from both sides: two filters that make a smoother, with one network.

Forward dynamics walks into a gap from the state before it, backward dynamics from the state after
it; what each answers is part of what it sees at its next step. Then the two walks are averaged,
every number by how sure the network was on the way there.

    states       ■ ■ ■ ? ? ? ? ■ ■
    fd               > > > >
    bd                 < < < <

Both are questions of their own: shown all that is known around a gap instead, the network answers
what training hardly ever asked, and errs several times as much (docs/research-log). Where the
action of a step is not known, but returns are, these say where it goes, and neither walk may see
them: such steps are left to who shows all that is known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mtm.core.names import RANDOM_MASKS
from mtm.data.modalities import BoolArray, IntArray, Modality
from mtm.inference.engine import Arrays, dtype_of
from mtm.masks import NAMED_MASKS, asked_in_training
from mtm.runs.run import Run

Asking: TypeAlias = Callable[
    [Run, Arrays, BoolArray, Sequence[str], BoolArray], tuple[Arrays, Arrays]
]
"""`mtm.inference.engine.ask_with_certainty`, or what goes by way of it."""

Direction: TypeAlias = Literal["fd", "bd"]

SMALLEST = 1e-100
"""Of variances, so that one can be divided by."""

UNASKED = 3.0
"""Times the stated variance of a question that training did not ask (docs/research-log)."""


@dataclass(frozen=True)
class Smoothed:
    """What was found of a modality.

    Attributes:
        values: (B, S, *shape), where it was found.
        deviations: The standard deviations to expect of them, same shape.
        found: Where that is, (B, S).
    """

    values: NDArray[Any]
    deviations: NDArray[Any]
    found: BoolArray


def smooth(
    run: Run,
    values: Arrays,
    visible: BoolArray,
    names: Sequence[str],
    asked: BoolArray,
    asking: Asking,
) -> dict[str, Smoothed]:
    """The wanted modalities of role state, at asked steps that can be walked to from known ones.

    Nothing, if the run was not trained on forward dynamics, or does not say how sure it is.

    Args:
        run: A trained run.
        values: Modality -> (B, S, *shape).
        visible: What is known of them, (B, S, M).
        names: Wanted modalities.
        asked: Wanted tokens, none of them visible, (B, S, M).
        asking: Asks windows, and says how sure the answers are.
    """
    states = [m for m in map(run.modalities.named, names) if _can_walk(run, m)]
    missing = np.zeros_like(asked)
    for m in states:
        place = run.modalities.place(m.name)
        missing[:, :, place] = asked[:, :, place]
    if not missing.any():
        return {}
    walks = [_Walk(run, way, values, visible, missing, states) for way in _directions(run)]
    for turn in range(1, int(walks[0].turns.max()) + 1):  # as many as the widest gap has steps
        _take_turn(run, walks, turn, [m.name for m in states], asking)
    return {m.name: _average(run, m, walks) for m in states}


def _can_walk(run: Run, m: Modality) -> bool:
    """Whether training has asked for the next of these states, and the run says how sure it is."""
    config = run.description.train
    return (
        m.role == "state"
        and m.kind == "continuous"
        and config.model.predict_variance
        and "fd" in asked_in_training(config)
        and NAMED_MASKS["fd"].fits(tuple(run.modalities), run.segment_length)
    )


def _directions(run: Run) -> list[Direction]:
    """The dynamics to walk by: those that training asked, or may have asked by a random mask."""
    asked = asked_in_training(run.description.train)
    both: tuple[Direction, ...] = ("fd", "bd")
    return [way for way in both if way in asked or not asked.isdisjoint(RANDOM_MASKS)]


class _Walk:
    """One direction's own idea of the gaps, as far as it has come.

    Args:
        run: A trained run.
        direction: The capability that takes the steps.
        values: What is known; copied.
        visible: Where that is, (B, S, M); copied.
        missing: The tokens to answer, (B, S, M).
        states: The modalities that these are of.
    """

    def __init__(
        self,
        run: Run,
        direction: Direction,
        values: Arrays,
        visible: BoolArray,
        missing: BoolArray,
        states: Sequence[Modality],
    ) -> None:
        self.run, self.direction, self.missing = run, direction, missing
        size = visible.shape[:2]
        self.visible = visible.copy()
        self.values, self.variances = dict(values), {}
        for m in states:
            fresh = np.zeros((*size, *m.shape), dtype_of(m))
            self.values[m.name] = values[m.name].copy() if m.name in values else fresh
            self.variances[m.name] = np.zeros((*size, *m.shape))
        gaps: BoolArray = np.any(missing, axis=2)
        forward = direction == "fd"
        self.turns = _places_in_gaps(gaps) if forward else _places_in_gaps(gaps[:, ::-1])[:, ::-1]
        self._back = -1 if forward else 1  # where it came from
        self._roles = np.array([m.role for m in run.modalities])

    def tokens(self, turn: int) -> IntArray:
        """(sample, step) of the steps that have their turn, (G, 2)."""
        return np.argwhere(self.turns == turn)

    def question(self, tokens: IntArray) -> _Question:
        """What it shows to answer for these steps; those that it cannot answer are left out."""
        S, step = self.visible.shape[1], tokens[:, 1]
        T = min(self.run.segment_length, S)
        first = step - (T - 1) if self.direction == "fd" else step
        start = np.clip(first, 0, S - T)
        place = step - start
        moment = place - 1 if self.direction == "fd" else place
        last = self.run.segment_length - 2
        sample, steps = tokens[:, :1], start[:, None] + np.arange(T)
        mask = NAMED_MASKS[self.direction].questions(
            tuple(self.run.modalities), self.run.segment_length, np.clip(moment, 0, last)
        )
        known = self.visible[sample, steps]
        shown, rows = known & mask.visible[:, :T], np.arange(len(tokens))
        before = np.clip(place + self._back, 0, T - 1)
        acting = before if self.direction == "fd" else place
        told = known[rows, acting][:, self._roles == "action"].any(axis=1)
        others = ~np.isin(self._roles, ("state", "action"))
        sees = (
            (moment >= 0)
            & (moment <= last)
            & shown[rows, before][:, self._roles == "state"].any(axis=1)
            & (told | ~known[:, :, others].any(axis=(1, 2)))
        )
        wanted = np.zeros_like(shown)
        wanted[rows, place] = self.missing[tokens[:, 0], step]
        window = {name: array[sample, steps][sees] for name, array in self.values.items()}
        return _Question(tokens[sees], place[sees], window, shown[sees], wanted[sees])

    def take(self, question: _Question, answers: Arrays, deviations: Arrays) -> None:
        """Remember what was answered: it is shown from now on, and its doubt goes along."""
        sample, step = question.tokens.T
        rows = np.arange(len(sample))
        before = np.clip(step + self._back, 0, self.visible.shape[1] - 1)
        for name, variance in self.variances.items():
            place = self.run.modalities.place(name)
            mine = self.missing[sample, step, place]
            b, s, here = sample[mine], step[mine], (rows[mine], question.places[mine])
            self.values[name][b, s] = answers[name][here]
            doubt = deviations[name][here].astype(np.float64) ** 2
            variance[b, s] = doubt + variance[b, before[mine]]
            self.visible[b, s, place] = True


@dataclass(frozen=True)
class _Question:
    """Windows of a walk, one for each step.

    Attributes:
        tokens: (sample, step), (G, 2).
        places: Of the step within its window, (G,).
        window: Modality -> (G, T, *shape).
        shown: (G, T, M).
        wanted: (G, T, M).
    """

    tokens: IntArray
    places: IntArray
    window: Arrays
    shown: BoolArray
    wanted: BoolArray


def _take_turn(
    run: Run, walks: Sequence[_Walk], turn: int, names: Sequence[str], asking: Asking
) -> None:
    """One step of all walks, in one pass."""
    asked = [walk.question(walk.tokens(turn)) for walk in walks]
    if not any(len(question.tokens) for question in asked):
        return
    shown = np.concatenate([question.shown for question in asked])
    window = {
        name: np.concatenate([question.window[name] for question in asked])
        for name in asked[0].window
        if shown[:, :, run.modalities.place(name)].any()
    }
    wanted = np.concatenate([question.wanted for question in asked])
    answers, deviations = asking(run, window, shown, names, wanted)
    end = 0
    for walk, question in zip(walks, asked, strict=True):
        begin, end = end, end + len(question.tokens)
        parts = ({n: a[begin:end] for n, a in found.items()} for found in (answers, deviations))
        walk.take(question, *parts)


def _average(run: Run, m: Modality, walks: Sequence[_Walk]) -> Smoothed:
    """The walks' answers for a modality, weighed by how sure they are."""
    place, known = run.modalities.place(m.name), asked_in_training(run.description.train)
    total = np.zeros(walks[0].variances[m.name].shape)
    mean, found = total.copy(), np.zeros(total.shape[:2], bool)
    for walk in walks:
        times = 1.0 if walk.direction in known else UNASKED
        there = walk.missing[:, :, place] & walk.visible[:, :, place]
        weight = 1 / np.maximum(times * walk.variances[m.name][there], SMALLEST)
        total[there] += weight
        mean[there] += weight * walk.values[m.name][there]
        found |= there
    mean[found] /= total[found]
    total[found] = 1 / np.sqrt(total[found])
    return Smoothed(mean.astype(dtype_of(m)), total.astype(np.float32), found)


def _places_in_gaps(gaps: BoolArray) -> IntArray:
    """Which step of its gap each one is, counted from 1, (B, S); 0 outside of gaps."""
    time = np.arange(gaps.shape[1])
    last = np.maximum.accumulate(np.where(gaps, -1, time), axis=1)  # before the gap
    places: IntArray = np.where(gaps, time - last, 0)
    return places
