"""Whether the modalities of a data set ever meet: what never does cannot be learned together."""

from __future__ import annotations

import numpy as np

from mtm.core.errors import DataError
from mtm.data.modalities import BoolArray
from mtm.data.segments import CHUNK, Segments


def check_overlap(segments: Segments) -> None:
    """See that one modality can be told from another, if only by way of a third.

    Raises:
        DataError: The modalities fall into groups, and no segment holds values of two of them.
    """
    names = segments.dataset.names
    groups = _groups(_met(segments))
    if len(groups) > 1:
        listed = " | ".join(", ".join(names[m] for m in group) for group in groups)
        raise DataError(
            f"no segment of {segments.segment_length} steps has values of both sides of: {listed}. "
            "So nothing can be learned of one from the other. Add episodes in which they are "
            "recorded together, leave one side out (modalities), take away less (drop, gaps), or "
            "choose longer segments (model.segment_length)."
        )


def _met(segments: Segments) -> BoolArray:
    """Which two modalities are present within one segment, (M, M)."""
    M = len(segments.dataset.names)
    met = np.eye(M, dtype=bool)
    for start in range(0, len(segments), CHUNK):
        numbers = np.arange(start, min(start + CHUNK, len(segments)))
        here: BoolArray = np.any(segments.present(numbers), axis=1)  # (B, M)
        met |= here.T @ here
        if met.all():
            break
    return met


def _groups(met: BoolArray) -> list[list[int]]:
    """Modalities that are joined by meetings, directly or through others."""
    groups: list[list[int]] = []
    left = set(range(len(met)))
    while left:
        group = {min(left)}
        while (more := {m for m in left if met[sorted(group)][:, m].any()}) - group:
            group |= more
        groups.append(sorted(group))
        left -= group
    return groups
