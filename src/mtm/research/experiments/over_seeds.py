"""A number from several seeds: mean, standard deviation, and how sure one can be of the mean."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

SEEDS_FOR_INTERVAL = 3
"""Seeds that a confidence interval needs."""

# Student's t, two-sided 95 %, for 1, 2, ... 30 degrees of freedom.
_T = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
_T_BEYOND = 1.960


@dataclass(frozen=True)
class Number:
    """One value per seed.

    Attributes:
        values: In the order of the seeds; at least one.
    """

    values: tuple[float, ...]

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Number | None:
        """The number of the seeds that have a value; None if none has."""
        found = tuple(value for value in values if value is not None)
        return cls(found) if found else None

    @property
    def mean(self) -> float:
        """Over the seeds."""
        return statistics.fmean(self.values)

    @property
    def std(self) -> float | None:
        """Standard deviation over the seeds (n - 1); None for one seed."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None

    @property
    def interval(self) -> float | None:
        """Half the 95 % confidence interval of the mean; None for fewer than 3 seeds."""
        n = len(self.values)
        if n < SEEDS_FOR_INTERVAL or self.std is None:
            return None
        t = _T[n - 2] if n - 2 < len(_T) else _T_BEYOND
        return t * self.std / math.sqrt(n)

    def text(self, form: str = ".1f") -> str:
        """`mean ± std [low, high]`, as far as there are seeds."""
        text = format(self.mean, form)
        if self.std is not None:
            text += f" ± {self.std:{form}}"
        if self.interval is not None:
            low, high = self.mean - self.interval, self.mean + self.interval
            text += f" [{low:{form}}, {high:{form}}]"
        return text

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "mean": self.mean,
            "std": self.std,
            "interval": self.interval,
            "seeds": len(self.values),
            "values": list(self.values),
        }


def text(number: Number | None, form: str = ".1f") -> str:
    """A number, or a dash where there is none."""
    return "-" if number is None else number.text(form)


Lead: TypeAlias = Literal["comparable", "better", "clearly better"]
"""How far ahead a number is: behind by no more than the larger deviation of the two; ahead;
ahead by more than that."""


def is_ahead(a: Number, b: Number, lead: Lead, *, higher_is_better: bool = True) -> bool:
    """Whether `a` has this lead over `b`."""
    std = max(a.std or 0.0, b.std or 0.0)
    gain = a.mean - b.mean if higher_is_better else b.mean - a.mean
    if lead == "comparable":
        return gain >= -std
    return gain > (std if lead == "clearly better" else 0.0)
