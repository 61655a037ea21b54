"""From surprising steps to suspicious episodes.

An episode is compared with the others, channel by channel. A channel is one way in which one number
can be surprising: throughout the episode, in its worst tenth, for a few steps in a row, or because
another step's value would fit better. Its standing is how far the episode lies above the middle, in
units of how far the ninth episode of ten does: where prediction is always hard, or episodes differ
by nature, nobody stands out.

Letters: E episodes, K columns, S steps of an episode.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mtm.data.column_checks import FEWEST_EPISODES
from mtm.data.faults import CERTAIN
from mtm.data.modalities import IntArray
from mtm.evaluation.doctor.quick_model import Answered, QuickModel
from mtm.evaluation.doctor.transitions import INVERSE

Floats = NDArray[np.float64]

USUAL = 0.9
"""The share of the episodes that sets the unit."""
WORST_SHARE, FEWEST_WORST = 0.1, 3
"""The worst steps of an episode."""
IN_A_ROW = 5
"""Steps of a burst."""
LAG_WEIGHT = 3.0
"""A standing per standard error by which another step's action fits better."""
SHORT = 1.3
"""How much of its standard error a short episode is forgiven."""
SMALLEST = 1e-9


@dataclass(frozen=True)
class Channel:
    """One way in which episodes can be surprising.

    Attributes:
        what: In words, after the name of what is surprising.
        subject: A column or a modality.
        standing: Of each episode, (E,); 0 if there is nothing to tell it from.
        step: Where to look first, (E,).
    """

    what: str
    subject: str
    standing: Floats
    step: IntArray


def channels_of(
    model: QuickModel, episodes: int, tell: Callable[[int], None] | None = None
) -> list[Channel]:
    """All channels of the quick model.

    Args:
        model: Of the data.
        episodes: How many there are.
        tell: Told how many are done.
    """
    collected: dict[str, _Collected] = {}
    done = 0
    for answers in model.answers(np.arange(episodes)):
        for answered in answers:
            if answered.question not in collected:
                collected[answered.question] = _Collected(answered, episodes)
            collected[answered.question].add(answered)
        done += len(np.unique(answers[0].episodes)) if answers else 0
        if tell is not None:
            tell(done)
    return [channel for found in collected.values() for channel in found.channels()]


def standing(values: Floats, noise: Floats | None = None) -> Floats:
    """How far each episode lies above the middle, (E, K), in units of the ninth of ten.

    Args:
        values: (E, K), NaN where there is none.
        noise: Added to the unit, (E, K): what chance alone does to a short episode.
    """
    found = np.zeros(values.shape)
    for k in range(values.shape[1]):
        here = ~np.isnan(values[:, k])
        if here.sum() < FEWEST_EPISODES:
            continue
        column = values[here, k]
        middle, high = np.median(column), np.quantile(column, USUAL)
        unit = high - middle + SMALLEST + (0 if noise is None else noise[here, k])
        found[here, k] = np.clip((column - middle) / unit, 0, CERTAIN)
    return found


class _Collected:
    """What is found of one question, an episode at a time."""

    def __init__(self, answered: Answered, episodes: int) -> None:
        self.question, self.columns = answered.question, answered.columns
        K = len(self.columns)
        self.modalities = list(dict.fromkeys(column.modality for column in self.columns))
        self.mean, self.top, self.spread = (np.full((episodes, K), np.nan) for _ in range(3))
        self.burst = np.full((episodes, len(self.modalities)), np.nan)
        self.late, self.early = (np.full((episodes, K), np.nan) for _ in range(2))
        self.count = np.ones(episodes)
        self.worst = np.zeros((episodes, K), np.int64)
        self.burst_at = np.zeros(self.burst.shape, np.int64)

    def add(self, answered: Answered) -> None:
        """Episodes of one answer."""
        levels = np.log1p(answered.squares)  # (n, K)
        cuts = np.flatnonzero(np.diff(answered.episodes)) + 1
        for rows in np.split(np.arange(len(levels)), cuts):
            if len(rows):
                self._episode(answered, levels, rows)

    def channels(self) -> list[Channel]:
        """Everything in which an episode can stand out."""
        middle = np.nanmedian(self.count)
        short = np.maximum(1 / np.sqrt(self.count) - 1 / np.sqrt(middle), 0)[:, None]  # (E, 1)
        noise = SHORT * short * _middle_of(self.spread)
        found = []
        for what, values in (
            (f"{self.question} fails throughout", self.mean),
            (f"{self.question} fails at the worst steps", self.top),
        ):
            found += self._of_columns(what, standing(values, noise))
        runs = standing(self.burst)
        for i, name in enumerate(self.modalities):
            what = f"{self.question} fails for several steps in a row"
            found.append(Channel(what, name, runs[:, i], self.burst_at[:, i]))
        if self.question == INVERSE:
            for what, fits in (
                ("comes a step late", self.late),
                ("comes a step early", self.early),
            ):
                weighed = np.clip(LAG_WEIGHT * np.nan_to_num(fits), 0, CERTAIN)
                found += self._of_columns(what, weighed)
        return found

    def _of_columns(self, what: str, standings: Floats) -> list[Channel]:
        return [
            Channel(what, str(column), standings[:, k], self.worst[:, k])
            for k, column in enumerate(self.columns)
        ]

    def _episode(self, answered: Answered, all_levels: Floats, rows: IntArray) -> None:
        e, levels, steps = int(answered.episodes[rows[0]]), all_levels[rows], answered.steps[rows]
        self.count[e] = len(rows)
        for k in range(len(self.columns)):
            known = answered.known[rows, k]
            if not known.any():
                continue
            column = levels[known, k]
            worst = max(-(-len(column) * WORST_SHARE // 1), FEWEST_WORST)
            self.mean[e, k], self.spread[e, k] = column.mean(), column.std()
            self.top[e, k] = np.sort(column)[-int(worst) :].mean()
            self.worst[e, k] = steps[known][column.argmax()]
        for i, name in enumerate(self.modalities):
            mine = [k for k, column in enumerate(self.columns) if column.modality == name]
            together = levels[:, mine].mean(axis=1)  # NaN where the modality is absent
            here = ~np.isnan(together)
            if here.any():
                self.burst[e, i], at = _highest_mean(together[here])
                self.burst_at[e, i] = steps[here][at]
        if self.question == INVERSE and answered.known[rows].all() and len(rows) > 2:
            part = (a[rows] for a in (answered.recorded, answered.predicted, answered.deviation))
            self.late[e], self.early[e] = _lags(*part)


def _lags(recorded: Floats, predicted: Floats, deviation: Floats) -> tuple[Floats, Floats]:
    """By how many standard errors the next and the last step's values fit better, (K,) each."""

    def misfit(shown: slice, at: slice) -> Floats:
        error = (recorded[shown] - predicted[at]) / deviation[at]
        return np.asarray(np.log1p(error**2))

    found = []
    inner = slice(1, -1)
    for shown in (slice(2, None), slice(None, -2)):
        gain = misfit(inner, inner) - misfit(shown, inner)  # (S - 2, K)
        error = gain.std(axis=0) / np.sqrt(len(gain)) + 1e-3
        found.append(gain.mean(axis=0) / error)
    return found[0], found[1]


def _highest_mean(values: Floats) -> tuple[float, int]:
    """The highest mean of a few values in a row, and where its first is."""
    width = min(IN_A_ROW, len(values))
    sums = np.cumsum(np.append(0.0, values))
    means = (sums[width:] - sums[:-width]) / width
    return float(means.max()), int(means.argmax())


def _middle_of(values: Floats) -> Floats:
    """The median of each column, (K,), 0 where there is nothing."""
    return np.array([np.median(c[~np.isnan(c)]) if not np.isnan(c).all() else 0 for c in values.T])
