"""The flat layout of D4RL and its kin: arrays over all steps, and flags that end episodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mtm.errors import DataError
from mtm.trajectories import IntArray

END_FLAGS = ("terminals", "timeouts")
"""Arrays that are not zero at the last step of an episode."""

MODALITY_NAMES = {"observations": "states"}
"""What the layout calls otherwise than we do."""


def split_arrays(
    source: str, arrays: Mapping[str, NDArray[Any]]
) -> tuple[dict[str, NDArray[Any]], IntArray]:
    """Sort a file's arrays into modalities and episode offsets, (E + 1,).

    Episodes are given by `offsets`, or end where `terminals` or `timeouts` is set.

    Raises:
        DataError: Nothing says where episodes end, or the arrays differ in length.
    """
    modalities = {
        MODALITY_NAMES.get(key, key): values
        for key, values in arrays.items()
        if key not in (*END_FLAGS, "offsets")
    }
    if not modalities:
        raise DataError(
            f"{source}: no modality found; the file holds {', '.join(arrays) or 'nothing'}."
        )
    lengths = {key: len(values) for key, values in arrays.items() if key != "offsets"}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{key} {n:,}" for key, n in lengths.items())
        raise DataError(f"{source}: all arrays need one row per step, but have: {listed}.")
    if "offsets" in arrays:
        return modalities, arrays["offsets"]
    flags = [np.asarray(arrays[key]).reshape(-1) != 0 for key in END_FLAGS if key in arrays]
    if not flags:
        raise DataError(
            f"{source}: nothing says where episodes end. Add 'offsets' (E + 1 integers), or a flag "
            f"per step named {' or '.join(END_FLAGS)}; the file holds {', '.join(arrays)}."
        )
    return modalities, offsets_from_flags(np.logical_or.reduce(flags))


def offsets_from_flags(ends: NDArray[np.bool_]) -> IntArray:
    """Episode offsets from a flag per step; steps after the last flag are one more episode."""
    bounds = np.flatnonzero(ends).astype(np.int64) + 1
    if len(ends) and (len(bounds) == 0 or bounds[-1] != len(ends)):
        bounds = np.append(bounds, len(ends))
    return np.concatenate([np.zeros(1, np.int64), bounds])
