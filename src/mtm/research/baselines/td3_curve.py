"""Learning curves: the returns of a TD3 run over its updates and over time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, TypeAlias

import numpy as np

from mtm.training.trackers import MetricsFile, read_metrics

Unit: TypeAlias = Literal["updates", "seconds"]

CURVE_FILE = "curve.csv"
FINAL_EVALUATIONS = 5
"""How many make the final return; one alone is noisy."""
SMOOTHED_OVER = 3
"""Evaluations in a row whose mean must reach a return: a single one gets there by luck."""

COLUMNS = ("seconds", "return_mean", "return_std", "critic_loss", "actor_loss")


@dataclass(frozen=True)
class Point:
    """One evaluation.

    Attributes:
        updates: Taken so far.
        seconds: Spent on them, and on encoding the data; evaluations do not count.
        return_mean: Mean return of the episodes.
        return_std: Their standard deviation.
    """

    updates: int
    seconds: float
    return_mean: float
    return_std: float


Curve: TypeAlias = list[Point]
"""In order."""


class CurveFile(MetricsFile):
    """`curve.csv`: a row per evaluation. A training that stops between two saves, but adds none.

    Args:
        out: The directory.
        resume_after: As for `MetricsFile`.
    """

    def __init__(self, out: Path, resume_after: int = 0) -> None:
        super().__init__(out / CURVE_FILE, COLUMNS, resume_after)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Append a row, if it has returns."""
        if "return_mean" in metrics:
            super().log(step, metrics)


def read_curve(out: Path) -> Curve:
    """The curve of a TD3 run, from its directory."""
    return [
        Point(int(row["step"]), row["seconds"], row["return_mean"], row["return_std"])
        for row in read_metrics(out / CURVE_FILE)
    ]


def from_points(points: Sequence[Mapping[str, Any]]) -> Curve:
    """A curve from plain data, the fields of each point."""
    return [Point(**point) for point in points]


def area(
    curve: Curve, unit: Unit = "updates", since: float = 0.0, until: float = math.inf
) -> float:
    """Mean return over the updates or seconds: the area under the curve, divided by its length.

    Args:
        curve: Of a run.
        unit: What the curve is drawn against.
        since: Where to begin, in that unit; at the beginning of the curve if that comes later.
        until: Where to stop; at the end of the curve if that comes first.
    """
    x = np.array([getattr(point, unit) for point in curve], float)
    y = np.array([point.return_mean for point in curve])
    start, end = max(since, x[0]), min(until, x[-1])
    if end <= start:
        return float(np.interp(end, x, y))
    inside = np.concatenate([[start], x[(start < x) & (x < end)], [end]])
    heights = np.interp(inside, x, y)
    return float(np.diff(inside) @ (heights[:-1] + heights[1:]) / 2 / (end - start))


def mean_curve(curves: Sequence[Curve]) -> Curve:
    """Curves of several seeds as one: evaluation i of each together, as far as all have it."""
    return [
        Point(
            same[0].updates,
            fmean(point.seconds for point in same),
            fmean(point.return_mean for point in same),
            fmean(point.return_std for point in same),
        )
        for same in zip(*curves, strict=False)
    ]


def first_to_reach(curve: Curve, target: float) -> Point | None:
    """The first evaluation that, with those just before it, has this mean return.

    The mean is over `SMOOTHED_OVER` evaluations, or all where there are fewer; None if it never
    gets there.
    """
    over = min(SMOOTHED_OVER, len(curve))
    for end in range(over, len(curve) + 1):
        if fmean(point.return_mean for point in curve[end - over : end]) >= target:
            return curve[end - 1]
    return None


def final_return(curve: Curve) -> float:
    """Mean return of the last evaluations: where the curve has come to."""
    return fmean(point.return_mean for point in curve[-FINAL_EVALUATIONS:])
