"""What results say to a claim, by the interval of a difference: yes, no, or nothing yet.

Two methods are compared seed by seed: runs of one seed share the split and the seeds of the
episodes. Errors are compared by their ratio, everything else by its difference.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from mtm.research.experiments.over_seeds import Number
from mtm.research.statistics import (
    Estimate,
    mean_difference,
    probability_of_improvement,
)

Verdict: TypeAlias = Literal["supported", "undecided", "contradicted", "not measured"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)

Lead: TypeAlias = Literal["as good", "better"]
"""What ours must have over the other: comparable or better; better."""

POINTS = 5.0
"""Comparable: the interval of the difference of scores lies within so many points."""

PERCENT = 5.0
"""The same of errors: within so many percent of the other's."""

SMALLEST_ERROR = 1e-12
"""Errors below have no ratio."""


@dataclass(frozen=True)
class Comparison:
    """Two numbers that a claim compares, and where they are from.

    Attributes:
        where: Data set, task or both.
        ours: Of every seed.
        other: Of every seed.
        higher_is_better: Else they are errors or times, which are compared by their ratio.
    """

    where: str
    ours: Number | None
    other: Number | None
    higher_is_better: bool = True

    @property
    def differences(self) -> list[float]:
        """By how much ours is better, for each seed that both have."""
        if self.ours is None or self.other is None:
            return []
        ours, other = self.ours.by_seed, self.other.by_seed
        seeds = [seed for seed in ours if seed in other]
        if self.higher_is_better:
            return [ours[seed] - other[seed] for seed in seeds]
        return [
            math.log(max(other[seed], SMALLEST_ERROR) / max(ours[seed], SMALLEST_ERROR))
            for seed in seeds
        ]


@dataclass(frozen=True)
class Case:
    """One comparison that a claim is about.

    Attributes:
        where: Data set, task or both.
        ours: Mean over seeds.
        other: The same of what it is compared with.
        verdict: On this case alone.
        difference: Ours less the other's, or of errors the ratio of ours to the other's.
        interval: Of the difference; None where there are too few pairs.
        pairs: Seeds that both have.
    """

    where: str
    ours: float
    other: float
    verdict: Verdict
    difference: float
    interval: tuple[float, float] | None
    pairs: int


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, and what these results say to it.

    Attributes:
        text: The claim.
        verdict: By the mean of the differences over all cases, which count alike.
        cases: What it is about.
        difference: That mean; of errors, of their ratios.
        interval: Of it.
        probability: That a run of ours is better than one of the other, all seeds of both.
        probability_interval: Of it.
        is_ratio: Whether errors were compared.
    """

    text: str
    verdict: Verdict
    cases: tuple[Case, ...] = ()
    difference: float | None = None
    interval: tuple[float, float] | None = None
    probability: float | None = None
    probability_interval: tuple[float, float] | None = None
    is_ratio: bool = False


def judge(found: Estimate, lead: Lead, *, is_ratio: bool = False) -> Verdict:
    """What an interval of differences says; `as good` allows the margin of *comparable*."""
    if found.interval is None:
        return "undecided"
    margin = math.log1p(PERCENT / 100) if is_ratio else POINTS
    least = -margin if lead == "as good" else 0.0
    low, high = found.interval
    return "supported" if low > least else "contradicted" if high < least else "undecided"


def compare(ours: Number | None, other: Number | None, *, higher_is_better: bool = True) -> str:
    """One word for two numbers: better, comparable, worse or undecided; a dash if not measured."""
    pair = Comparison("", ours, other, higher_is_better)
    if not pair.differences:
        return "-"
    found = mean_difference([pair.differences])
    if found.interval is None:
        return "undecided"
    margin = POINTS if higher_is_better else math.log1p(PERCENT / 100)
    low, high = found.interval
    if -margin < low and high < margin:
        word = "comparable"
    else:
        word = "better" if low > 0 else "worse" if high < 0 else "undecided"
    return f"{word} {_text(found, is_ratio=not higher_is_better)}"


def claim(text: str, pairs: Iterable[Comparison], lead: Lead = "as good") -> Claim:
    """What the cases that were measured say together; all are of scores, or all of errors.

    Args:
        text: The claim.
        pairs: The cases.
        lead: What ours must have over the other.
    """
    found = [pair for pair in pairs if pair.differences]
    if not found:
        return Claim(text, "not measured")
    is_ratio = not found[0].higher_is_better
    assert all(pair.higher_is_better != is_ratio for pair in found)
    together = mean_difference([pair.differences for pair in found])
    return Claim(
        text,
        judge(together, lead, is_ratio=is_ratio),
        tuple(_case(pair, lead) for pair in found),
        *_shown(together, is_ratio=is_ratio),
        *_probability(found),
        is_ratio,
    )


def difference_text(
    value: float | None, interval: Sequence[float] | None, *, is_ratio: bool = False
) -> str:
    """`+3.1 [-2.0, 8.2]`, or of a ratio `x 0.31 [0.20, 0.50]`."""
    if value is None:
        return "-"
    form = "x {:.3g}" if is_ratio else "{:+.1f}"
    bare = "{:.3g}" if is_ratio else "{:+.1f}"
    if interval is None:
        return f"{form.format(value)} [no interval]"
    return f"{form.format(value)} [{bare.format(interval[0])}, {bare.format(interval[1])}]"


def _case(pair: Comparison, lead: Lead) -> Case:
    assert pair.ours is not None
    assert pair.other is not None
    is_ratio = not pair.higher_is_better
    found = mean_difference([pair.differences])
    verdict = judge(found, lead, is_ratio=is_ratio)
    shown = _shown(found, is_ratio=is_ratio)
    means = (pair.ours.mean, pair.other.mean)
    return Case(pair.where, *means, verdict, *shown, len(pair.differences))


def _shown(found: Estimate, *, is_ratio: bool) -> Estimate:
    """As people read it: a ratio instead of its logarithm, ours over the other's."""
    if not is_ratio:
        return found
    interval = found.interval
    ends = None if interval is None else (math.exp(-interval[1]), math.exp(-interval[0]))
    return Estimate(math.exp(-found.value), ends)


def _text(found: Estimate, *, is_ratio: bool) -> str:
    return difference_text(*_shown(found, is_ratio=is_ratio), is_ratio=is_ratio)


def _probability(pairs: Sequence[Comparison]) -> Estimate:
    """The chance that a run of ours is better, over all seeds of both."""
    ours: dict[str, Sequence[float]] = {}
    other: dict[str, Sequence[float]] = {}
    for i, pair in enumerate(pairs):
        assert pair.ours is not None
        assert pair.other is not None
        sign = 1.0 if pair.higher_is_better else -1.0
        ours[str(i)] = [sign * value for value in pair.ours.values]
        other[str(i)] = [sign * value for value in pair.other.values]
    return probability_of_improvement(ours, other)
