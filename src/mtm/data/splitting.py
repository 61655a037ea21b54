"""Choosing the episodes to hold out, and which of them to test on: each kind is on all sides.

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
    order = generator(seed, Purpose.SPLIT).permutation(len(starts))
    held_out = np.zeros(len(starts), bool)
    for alike in _by_kind(order, present, starts, ends):
        held_out[alike[: _count(fraction, len(alike))]] = True
    if not held_out.any():
        held_out[order[0]] = True
    return held_out


def validation_and_test(
    present: Mapping[str, BoolArray], starts: IntArray, ends: IntArray, seed: int
) -> tuple[BoolArray, BoolArray]:
    """Which of the held-out episodes choose checkpoints, and which are reported, (E,) each.

    Of every kind one half each, where the odd one is reported; one that is the only one of its kind
    serves as both.

    Args:
        present: Modality -> where it is present, (N,), of those that are absent somewhere.
        starts: First step of each held-out episode, (E,).
        ends: One past the last step of each held-out episode, (E,).
        seed: Chooses them.
    """
    order = generator(seed, Purpose.SPLIT, 1).permutation(len(starts))
    validation, test = np.zeros((2, len(starts)), bool)
    for alike in _by_kind(order, present, starts, ends):
        half = len(alike) // 2
        validation[alike[: max(half, 1)]] = True
        test[alike[half:]] = True
    return validation, test


def _by_kind(
    order: IntArray, present: Mapping[str, BoolArray], starts: IntArray, ends: IntArray
) -> list[IntArray]:
    """The episodes of each kind, in that order."""
    having = [episodes_with(known, starts, ends) for known in present.values()]
    rows = np.stack([np.ones(len(starts), bool), *having], axis=1)  # one if nothing is absent
    kinds = np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1)
    return [order[kinds[order] == kind] for kind in np.unique(kinds)]


def _count(fraction: float, episodes: int) -> int:
    """How many to hold out of so many: one at least, but not all."""
    return min(max(round(fraction * episodes), 1), episodes - 1)
