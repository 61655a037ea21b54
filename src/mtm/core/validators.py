"""What settings may be: ranges of numbers, names among others, numbers for modalities.

This module imports neither torch nor numpy: the command line is built from it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Any

LARGEST = 1e300
"""Whole numbers have no end in Python; beyond this they cannot become a float."""

MANY = 2**53
"""Counts above this are a slip, and are not exact as floating point."""


@dataclass(frozen=True)
class Range:
    """Numbers that are allowed; what is not finite never is.

    Attributes:
        low: The least.
        high: The greatest; infinite for none.
        open_low: Whether `low` itself is not allowed.
        open_high: Whether `high` itself is not allowed.
        whole: Whether only whole numbers are.
    """

    low: float
    high: float = math.inf
    open_low: bool = False
    open_high: bool = False
    whole: bool = False

    def __str__(self) -> str:
        """As in `must be at least 1`."""
        if self.high in (math.inf, MANY):
            return f"{'above' if self.open_low else 'at least'} {self.low}"
        left, right = "(" if self.open_low else "[", ")" if self.open_high else "]"
        return f"in {left}{self.low}, {self.high}{right}"

    def fault(self, name: str, value: Any) -> str | None:
        """What is wrong with a value, if anything is."""
        if type(value) is bool or not isinstance(value, Real):
            return f"{name} must be a number, got {value!r}"
        number: Any = value  # an int is not rounded to a float here: seeds are large
        if abs(number) > LARGEST or not math.isfinite(value):
            return f"{name} must be finite and {self}, got {value}"
        if self.whole and not isinstance(value, Integral):
            return f"{name} must be a whole number, got {value}"
        above = number > self.low if self.open_low else number >= self.low
        below = number < self.high if self.open_high else number <= self.high
        if above and not below and self.high == MANY:
            return f"{name} must be at most {MANY:,}, got {value}"
        return None if above and below else f"{name} must be {self}, got {value}"


COUNT = Range(1, MANY, whole=True)
"""Of things of which there is one at least."""

COUNT_OR_NONE = Range(0, MANY, whole=True)
"""Of things that there may be none of."""

SEED = Range(0, 2**63 - 1, whole=True)
"""What every generator of random numbers takes."""

NOT_NEGATIVE = Range(0)
POSITIVE = Range(0, open_low=True)

SHARE = Range(0, 1)
"""A part of something: all of it, or none, too."""

SHARE_BELOW_ALL = Range(0, 1, open_high=True)
INSIDE_UNIT = Range(0, 1, open_low=True, open_high=True)

UPPER_EXPECTILE = Range(0.5, 1, open_high=True)
"""0.5 is the mean; towards 1 it nears the largest value."""

WIDTH = Range(1, 65_536, whole=True)
"""Features; more are a slip, and would not fit into any memory."""

LAYERS = Range(1, 1024, whole=True)
"""Of a network; more are a slip."""

MEMBERS = Range(1, 256, whole=True)
"""Networks that are trained side by side; more are a slip."""

LENGTH = Range(1, 65_536, whole=True)
"""Steps that a network sees at once; more are a slip, for attention costs their square."""


def outside(part: Any, prefix: str, ranges: Mapping[str, Range]) -> list[str]:
    """Settings of a dataclass that are not in their ranges; None is, where it is the default."""
    may_be_none = {f.name for f in fields(part) if f.default is None}
    found = (
        allowed.fault(f"{prefix}{name}", getattr(part, name))
        for name, allowed in ranges.items()
        if getattr(part, name) is not None or name not in may_be_none
    )
    return [fault for fault in found if fault is not None]


def number_faults(setting: str, numbers: Any, allowed: Range) -> list[str]:
    """What is wrong with a dict of modality -> number."""
    if not isinstance(numbers, Mapping):
        return [f"{setting} must be a dict such as {{'actions': 0.5}}, got {numbers!r}"]
    found = (allowed.fault(f"{setting} of {name!r}", value) for name, value in numbers.items())
    return [fault for fault in found if fault is not None]


def is_pair(value: Any) -> bool:
    """Whether a value is two numbers."""
    return (
        isinstance(value, tuple | list)
        and len(value) == 2
        and all(isinstance(number, Real) for number in value)
    )
