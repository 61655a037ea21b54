"""Taking values away, to see how a method does without them.

What is taken is marked absent; no value is copied or changed. Each modality has random numbers of
its own, so that what one loses does not depend on what others lose, and with one seed whatever a
smaller share takes, a larger one takes as well. The episodes that keep a modality are spread evenly
over all returns, if there are any: else a seed would measure whether it has drawn good ones.
"""

from __future__ import annotations

import math
import zlib

import numpy as np
from numpy.typing import NDArray

from mtm.core.errors import ConfigError
from mtm.core.randomness import Purpose, generator
from mtm.data.modalities import BoolArray, IntArray
from mtm.data.splitting import episodes_with
from mtm.data.validate_arrays import CHUNK_STEPS

GOLDEN_SECTION = (math.sqrt(5) - 1) / 2


def without_episodes(
    name: str,
    known: BoolArray,
    starts: IntArray,
    ends: IntArray,
    share: float,
    seed: int,
    worth: NDArray[np.float64] | None = None,
) -> BoolArray:
    """Presence of a modality after a share of the episodes that have it lost it, (N,).

    A share above 0 takes it from at least one episode, a share below 1 leaves it to at least one;
    where only one has it, that one keeps it.

    Args:
        name: Of the modality; it chooses the random numbers.
        known: Where the modality is present until now, (N,).
        starts: First step of each episode, (E,).
        ends: One past the last step of each episode, (E,).
        share: Of the episodes in which the modality is present at all.
        seed: Chooses the episodes.
        worth: What each episode earned, (E,), over which those that keep the modality are spread
            evenly. None: they are any.

    Raises:
        ConfigError: The share is not within 0 to 1.
    """
    _check(name, share)
    having = np.flatnonzero(episodes_with(known, starts, ends))
    count = round(share * len(having))
    if 0 < share < 1:
        count = min(max(count, 1), len(having) - 1)
    rng = generator(seed, Purpose.DROP, _stream(name))
    order = rng.permutation(len(having))
    if worth is not None:
        order = order[_evenly(worth[having[order]], rng.random())[::-1]]
    left: BoolArray = known.copy()
    for episode in having[order[: max(count, 0)]]:
        left[starts[episode] : ends[episode]] = False
    return left


def without_steps(
    name: str, known: BoolArray, listed: BoolArray, share: float, seed: int
) -> BoolArray:
    """Presence of a modality after single steps lost it, each with the same chance, (N,).

    Args:
        name: Of the modality; it chooses the random numbers.
        known: Where the modality is present until now, (N,).
        listed: Which steps may lose it, (N,).
        share: The chance.
        seed: Chooses the steps.

    Raises:
        ConfigError: The chance is not within 0 to 1.
    """
    _check(name, share)
    rng = generator(seed, Purpose.GAPS, _stream(name))
    left: BoolArray = known.copy()
    for start in range(0, len(left), CHUNK_STEPS):
        part = slice(start, start + CHUNK_STEPS)
        left[part] &= (rng.random(len(left[part])) >= share) | ~listed[part]
    return left


def _evenly(worth: NDArray[np.float64], first: float) -> IntArray:
    """Numbers of episodes in an order whose every beginning is spread evenly over their worth.

    By the multiples of the golden section: those within any interval are all but equally far apart.

    Args:
        worth: Of each, (n,); unknown ones, NaN, count as the highest.
        first: Where to begin, from 0 to 1.
    """
    order = np.argsort((np.arange(len(worth)) * GOLDEN_SECTION + first) % 1)
    spread: IntArray = worth.argsort(kind="stable")[order]
    return spread


def _stream(name: str) -> int:
    """A number that stands for a modality, whatever its place among the others."""
    return zlib.crc32(name.encode())


def _check(name: str, share: float) -> None:
    if not 0 <= share <= 1:
        raise ConfigError(f"the share of {name!r} to take away must be in [0, 1], got {share}.")
