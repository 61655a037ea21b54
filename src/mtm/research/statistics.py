"""Scores of several sets and seeds as one number, and how sure one can be of it.

Interquartile mean, stratified bootstrap, probability of improvement and performance profiles are
those of Agarwal et al., 2021 (https://arxiv.org/abs/2108.13264). Sets are strata: seeds are drawn
again within each of them, and what is said is said of these sets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray: TypeAlias = NDArray[np.float64]

Scores: TypeAlias = Mapping[str, Sequence[float]]
"""Set -> a score for each seed."""

SEEDS_FOR_INTERVAL = 3
"""Seeds of every set that an interval needs."""

LEVEL = 0.95
"""Of all intervals."""

RESAMPLES = 2000
"""Of a bootstrap."""

# Student's t, two-sided 95 %, for 1, 2, ... 30 degrees of freedom.
_T = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
_T_BEYOND = 1.960


class Estimate(NamedTuple):
    """A number and its 95 % interval, which is None where there are too few seeds."""

    value: float
    interval: tuple[float, float] | None


def students_t(degrees: float) -> float:
    """Student's t, two-sided 95 %; of the next lower whole number of degrees of freedom."""
    whole = max(math.floor(degrees), 1)
    return _T[whole - 1] if whole <= len(_T) else _T_BEYOND


def interquartile_mean(values: ArrayLike) -> FloatArray:
    """The mean of the middle half: a quarter of the values, rounded down, is cut off each end.

    Args:
        values: (..., n).

    Returns:
        (...,).
    """
    ordered = np.sort(np.asarray(values, float), axis=-1)
    count = ordered.shape[-1]
    cut = count // 4
    return np.asarray(ordered[..., cut : count - cut].mean(axis=-1))


def bootstrapped(
    scores: Sequence[Scores], statistic: Callable[[Sequence[Sequence[FloatArray]]], FloatArray]
) -> Estimate:
    """A statistic of one or more methods, with its percentile interval.

    Args:
        scores: Of each method.
        statistic: Of (method, set) -> the scores of the seeds, (..., seeds); gives (...,).
    """
    groups = [[np.asarray(of, float) for of in method.values()] for method in scores]
    value = float(statistic(groups))
    if any(len(group) < SEEDS_FOR_INTERVAL for method in groups for group in method):
        return Estimate(value, None)
    rng = np.random.default_rng(0)
    drawn = [
        [group[rng.integers(len(group), size=(RESAMPLES, len(group)))] for group in method]
        for method in groups
    ]
    low, high = np.quantile(statistic(drawn), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(value, (float(low), float(high)))


def interquartile_mean_of(scores: Scores) -> Estimate:
    """The interquartile mean over all sets and seeds."""
    return bootstrapped([scores], lambda of: interquartile_mean(np.concatenate(of[0], axis=-1)))


def probability_of_improvement(ours: Scores, other: Scores) -> Estimate:
    """How likely a run of ours scores higher than one of the other: the mean over the sets.

    Args:
        ours: Scores by set.
        other: Those of the same sets.
    """

    def statistic(of: Sequence[Sequence[FloatArray]]) -> FloatArray:
        return np.asarray(np.mean([_chance(a, b) for a, b in zip(*of, strict=True)], axis=0))

    return bootstrapped([ours, {name: other[name] for name in ours}], statistic)


def performance_profile(scores: Scores, levels: Sequence[float]) -> list[float]:
    """Level -> the share of runs that score more; every set counts alike."""
    groups = [np.asarray(of, float) for of in scores.values()]
    return [float(np.mean([np.mean(of > level) for of in groups])) for level in levels]


def mean_difference(differences: Sequence[Sequence[float]]) -> Estimate:
    """The mean of paired differences over sets, which count alike, with Student's interval.

    The variance of a set's mean is its own, and the degrees of freedom are Welch and
    Satterthwaite's. A bootstrap of three seeds would be too sure of itself.

    Args:
        differences: Of each set, one for each seed that both methods have.
    """
    groups = [np.asarray(of, float) for of in differences]
    value = float(np.mean([group.mean() for group in groups]))
    if any(len(group) < SEEDS_FOR_INTERVAL for group in groups):
        return Estimate(value, None)
    parts = np.array([group.var(ddof=1) / len(group) for group in groups]) / len(groups) ** 2
    freedom = np.array([len(group) - 1 for group in groups])
    variance = float(parts.sum())
    degrees = variance**2 / float((parts**2 / freedom).sum()) if variance > 0 else 1.0
    half = students_t(degrees) * math.sqrt(variance)
    return Estimate(value, (value - half, value + half))


def _chance(ours: FloatArray, other: FloatArray) -> FloatArray:
    """That one of ours, (..., n), is above one of the other, (..., m); ties count half."""
    a, b = ours[..., :, None], other[..., None, :]
    return np.asarray(np.mean((a > b) + 0.5 * (a == b), axis=(-2, -1)))
