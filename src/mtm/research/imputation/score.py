"""How good filled gaps are: their error, and whether intervals hold what they promise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from mtm.data.modalities import BoolArray
from mtm.research.imputation.samples import Floats

LEVELS = (50, 90)
"""Percent of the true values that lie within an interval, if it is right."""

NORMAL = {50: 0.674490, 90: 1.644854}
"""Half the width of such an interval in standard deviations, of a normal distribution."""


@dataclass(frozen=True)
class Filled:
    """What a method says, in units of the training data's standard deviation.

    Attributes:
        values: (N, W, D).
        intervals: Level -> lower and upper ends, (N, W, D) each; nothing if the method states none.
    """

    values: Floats
    intervals: Mapping[int, tuple[Floats, Floats]] = field(default_factory=dict)

    @classmethod
    def normal(cls, values: Floats, deviations: Floats) -> Filled:
        """Of a method that states standard deviations."""
        ends = {
            level: (values - z * deviations, values + z * deviations) for level, z in NORMAL.items()
        }
        return cls(values, ends)


Filler: TypeAlias = Callable[[Floats, BoolArray], Filled]
"""Fills windows, (N, W, D), where they are hidden, (N, W, D); what stands there means nothing."""


def measure(filled: Filled, truth: Floats, hidden: BoolArray) -> dict[str, Any]:
    """Means over all hidden values.

    Returns:
        `error`, squared, in units of the variance; `coverage_50` and `coverage_90`, shares, None
        where no interval is stated; `values`, how many were hidden.
    """
    right = truth[hidden].astype(np.float64)
    found: dict[str, Any] = {
        "error": float(np.mean((filled.values[hidden] - right) ** 2)),
        "values": int(hidden.sum()),
    }
    for level in LEVELS:
        share = None
        if level in filled.intervals:
            low, high = (ends[hidden] for ends in filled.intervals[level])
            share = float(np.mean((low <= right) & (right <= high)))
        found[f"coverage_{level}"] = share
    return found
