"""The known steps around each step of trajectories with gaps.

Letters: B trajectories, S steps.
"""

from __future__ import annotations

import numpy as np

from mtm.data.modalities import BoolArray, IntArray


def last_known(known: BoolArray) -> IntArray:
    """The last known step up to each step, itself included; -1 if there is none, (B, S)."""
    found: IntArray = np.maximum.accumulate(np.where(known, _steps(known), -1), axis=1)
    return found


def next_known(known: BoolArray) -> IntArray:
    """The first known step from each step on, itself included; S if there is none, (B, S)."""
    here = np.where(known, _steps(known), known.shape[1])
    found: IntArray = np.minimum.accumulate(here[:, ::-1], axis=1)[:, ::-1].copy()
    return found


def neighbours(known: BoolArray) -> tuple[IntArray, IntArray]:
    """The nearest known step before (-1 if none) and after (S if none) each step, (B, S) each."""
    before, after = np.roll(last_known(known), 1, axis=1), np.roll(next_known(known), -1, axis=1)
    before[:, 0], after[:, -1] = -1, known.shape[1]
    return before, after


def distances(known: BoolArray, most: int) -> IntArray:
    """Steps to the nearest known one before and after each, `most` if there is none, (B, S, 2)."""
    before, after = neighbours(known)
    time = _steps(known)
    gone = np.where(before >= 0, time - before, most)
    ahead = np.where(after < known.shape[1], after - time, most)
    capped: IntArray = np.minimum(np.stack([gone, ahead], axis=2), most)
    return capped


def nearest(known: BoolArray) -> IntArray:
    """The known step nearest to each other one, the earlier of two; -1 if there is none, (B, S)."""
    before, after = neighbours(known)
    time = _steps(known)
    later = (after < known.shape[1]) & ((before < 0) | (after - time < time - before))
    return np.where(later, after, before)


def _steps(known: BoolArray) -> IntArray:
    return np.arange(known.shape[1], dtype=np.int64)
