"""Masks as grids of text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mtm.data.modalities import BoolArray, IntArray, Modality


def draw(
    visible: BoolArray, modalities: Sequence[Modality], wanted: BoolArray | None = None
) -> str:
    """A mask as a grid of text: ■ visible, ? wanted, · hidden; a row per modality.

    Args:
        visible: (T, M).
        modalities: Their names label the rows.
        wanted: (T, M), if there is a question.
    """
    wide = max(len(m.name) for m in modalities)
    times: IntArray = np.arange(len(visible))
    lines = [" " * wide + "  " + " ".join(f"{t:>2}" for t in times)]
    for i, modality in enumerate(modalities):
        cells = [
            "■" if visible[t, i] else "?" if wanted is not None and wanted[t, i] else "·"
            for t in times
        ]
        lines.append(f"{modality.name:<{wide}}  " + " ".join(f"{c:>2}" for c in cells))
    return "\n".join(lines)
