"""Choosing the episodes to hold out, so that each kind of them is on both sides.

The kind of an episode is which modalities it has at all. Where few episodes have actions, a draw
among all of them would leave training or validation without any, most of the time.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mtm.core.randomness import Purpose, generator
from mtm.data.modalities import BoolArray, IntArray


def episodes_with(known: BoolArray, starts: IntArray, ends: IntArray) -> BoolArray:
    """Which episodes have a modality at any of their steps, (E,).

    Args:
        known: Where the modality is present, (N,).
        starts: First step of each episode, (E,).
        ends: One past the last step of each episode, (E,).
    """
    until = np.append(0, np.cumsum(known, dtype=np.int64))
    having: BoolArray = until[ends] > until[starts]
    return having


def episodes_to_hold_out(
    present: Mapping[str, BoolArray],
    starts: IntArray,
    ends: IntArray,
    fraction: float,
    seed: int,
) -> BoolArray:
    """Which of at least two episodes to hold out, (E,): a share of every kind.

    Of a kind with two episodes or more, one at least is held out and one at least is not; one that
    is the only one of its kind is trained on, unless nothing at all would be held out.

    Args:
        present: Modality -> where it is present, (N,), of those that are absent somewhere.
        starts: First step of each episode, (E,).
        ends: One past the last step of each episode, (E,).
        fraction: Of the episodes of each kind.
        seed: Chooses them.
    """
    having = [episodes_with(known, starts, ends) for known in present.values()]
    rows = np.stack([np.ones(len(starts), bool), *having], axis=1)  # one if nothing is absent
    kinds = np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1)
    order = generator(seed, Purpose.SPLIT).permutation(len(starts))
    held_out = np.zeros(len(starts), bool)
    for kind in np.unique(kinds):
        alike = order[kinds[order] == kind]
        held_out[alike[: _count(fraction, len(alike))]] = True
    if not held_out.any():
        held_out[order[0]] = True
    return held_out


def _count(fraction: float, episodes: int) -> int:
    """How many to hold out of so many: one at least, but not all."""
    return min(max(round(fraction * episodes), 1), episodes - 1)
