"""A number from several seeds: mean, standard deviation, and how sure one can be of the mean."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from mtm.research.statistics import SEEDS_FOR_INTERVAL, students_t


@dataclass(frozen=True)
class Number:
    """One value per seed.

    Attributes:
        values: In the order of the seeds; at least one.
        seeds: That they belong to; 0, 1, ... if not given.
    """

    values: tuple[float, ...]
    seeds: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.seeds:
            object.__setattr__(self, "seeds", tuple(range(len(self.values))))
        assert len(self.seeds) == len(self.values)

    @classmethod
    def of(
        cls, values: Iterable[float | None], seeds: Iterable[int] | None = None
    ) -> Number | None:
        """The number of the seeds that have a value; None if none has."""
        listed = list(values)
        numbered = zip(range(len(listed)) if seeds is None else seeds, listed, strict=True)
        found = [(seed, value) for seed, value in numbered if value is not None]
        if not found:
            return None
        return cls(tuple(value for _, value in found), tuple(seed for seed, _ in found))

    @property
    def by_seed(self) -> dict[int, float]:
        """Seed -> value."""
        return dict(zip(self.seeds, self.values, strict=True))

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
        return students_t(n - 1) * self.std / math.sqrt(n)

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
