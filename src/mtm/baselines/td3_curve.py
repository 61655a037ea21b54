"""Learning curves: the returns of a TD3 run over its updates and over time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, TypeAlias

import numpy as np

from mtm.trackers import read_metrics

Unit: TypeAlias = Literal["updates", "seconds"]

CURVE_FILE = "curve.csv"
FINAL_EVALUATIONS = 5
"""How many make the final return; one alone is noisy."""

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
"""At least one, in order."""


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


def first_to_reach(curve: Curve, target: float) -> Point | None:
    """The first evaluation with at least this mean return; None if there is none."""
    return next((point for point in curve if point.return_mean >= target), None)


def final_return(curve: Curve) -> float:
    """Mean return of the last evaluations: where the curve has come to."""
    return fmean(point.return_mean for point in curve[-FINAL_EVALUATIONS:])
