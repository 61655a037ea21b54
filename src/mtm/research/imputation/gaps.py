"""Which sensors of a window are lost, and when: a pattern by its name, such as `block-20`.

steps-30       each step is lost with a chance of 30 %, all sensors at once
readings-30    each sensor at each step, by itself
block-20       all sensors for 20 steps on end, with something known before and after
sensor-20      one sensor for 20 steps on end, while the others go on
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mtm.core.errors import ConfigError
from mtm.core.randomness import Purpose, generator
from mtm.data.modalities import BoolArray

PATTERNS = (
    *("steps-10", "steps-30", "steps-50", "steps-70"),
    *("readings-30", "readings-70"),
    *("block-5", "block-10", "block-20", "block-50"),
    *("sensor-20", "sensor-50"),
)
"""What is measured, as far as it fits into a window."""

KINDS = ("steps", "readings", "block", "sensor")


def fitting(patterns: Sequence[str], window: int) -> list[str]:
    """The patterns that leave a window something known at both ends."""
    return [name for name in patterns if not _is_stretch(name) or _number(name) <= window - 2]


def draw(pattern: str, windows: int, length: int, sensors: int, seed: int) -> BoolArray:
    """What is lost, (N, W, K): the same for everybody who asks with this seed.

    Raises:
        ConfigError: There is no such pattern, or it is longer than the window.
    """
    rng = generator(seed, Purpose.GAPS, zlib.crc32(pattern.encode()))
    return _drawn(pattern, windows, length, sensors, rng)


def draw_mixed(
    patterns: Sequence[str], windows: int, length: int, sensors: int, rng: np.random.Generator
) -> BoolArray:
    """Each window with one of the patterns, (N, W, K)."""
    each = np.stack([_drawn(name, windows, length, sensors, rng) for name in patterns])
    chosen: BoolArray = each[rng.integers(len(patterns), size=windows), np.arange(windows)]
    return chosen


def _drawn(
    pattern: str, windows: int, length: int, sensors: int, rng: np.random.Generator
) -> BoolArray:
    number = _number(pattern)
    if not _is_stretch(pattern):
        each = sensors if pattern.startswith("readings") else 1
        lost = rng.random((windows, length, each)) < number / 100
        return np.repeat(lost, sensors // each, axis=2)
    if number > length - 2:
        raise ConfigError(f"{pattern} needs windows of at least {number + 2} steps, got {length}.")
    begins = rng.integers(1, length - number, size=(windows, 1))
    time = np.arange(length)
    during: NDArray[np.bool_] = (time >= begins) & (time < begins + number)
    if pattern.startswith("block"):
        return np.repeat(during[:, :, None], sensors, axis=2)
    which = rng.integers(sensors, size=(windows, 1, 1)) == np.arange(sensors)
    lost_sensor: BoolArray = during[:, :, None] & which
    return lost_sensor


def _is_stretch(pattern: str) -> bool:
    return pattern.startswith(("block", "sensor"))


def _number(pattern: str) -> int:
    kind, _, number = pattern.partition("-")
    if kind not in KINDS or not number.isdecimal():
        raise ConfigError(
            f"a pattern of gaps is one of {', '.join(KINDS)} with a number, such as block-20, got "
            f"{pattern!r}."
        )
    return int(number)
