"""What is wrong with settings: numbers outside of their limits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def too_low(part: Any, prefix: str, lows: Mapping[str, int]) -> list[str]:
    """Settings of `part` that are below their least value."""
    return [
        f"{prefix}{name} must be at least {low}, got {getattr(part, name)}"
        for name, low in lows.items()
        if getattr(part, name) < low
    ]


def not_above_zero(part: Any, prefix: str, names: Iterable[str]) -> list[str]:
    """Settings of `part` that are neither above 0 nor left open (None)."""
    return [
        f"{prefix}{name} must be above 0, got {value}"
        for name in names
        if (value := getattr(part, name)) is not None and value <= 0
    ]


def outside_unit(part: Any, prefix: str, names: Iterable[str]) -> list[str]:
    """Settings of `part` that are not strictly between 0 and 1."""
    return [
        f"{prefix}{name} must be in (0, 1), got {getattr(part, name)}"
        for name in names
        if not 0 < getattr(part, name) < 1
    ]
