"""Where episodes begin and end, from flags or from labels of the steps.

What is no flag is refused rather than guessed: the text `'False'` and NaN are not zero, so each
would end an episode.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mtm.core.errors import DataError
from mtm.data.modalities import BoolArray, IntArray


def as_flags(source: object, name: str, values: NDArray[Any]) -> BoolArray:
    """A flag per step, (N,), from numbers that are zero or not.

    Raises:
        DataError: There is more than one number per step, or one is no number.
    """
    values = _per_step(source, name, values)
    if values.dtype.kind not in "fiub":
        said = f", such as {values[0].item()!r} in row 0" if len(values) else ""
        raise DataError(
            f"{source}: {name!r} holds {values.dtype}{said}; a flag is a boolean or a number, 0 "
            "for no."
        )
    _refuse_not_finite(source, name, values)
    flags: BoolArray = values != 0
    return flags


def offsets_from_flags(ends: BoolArray) -> IntArray:
    """Episode offsets from a flag per step; steps after the last flag are one more episode."""
    bounds = np.flatnonzero(ends).astype(np.int64) + 1
    if len(ends) and (len(bounds) == 0 or bounds[-1] != len(ends)):
        bounds = np.append(bounds, len(ends))
    return np.concatenate([np.zeros(1, np.int64), bounds])


def offsets_from_labels(source: str, name: str, labels: NDArray[Any]) -> IntArray:
    """Episode offsets from a label per step, which changes where an episode ends.

    Raises:
        DataError: There are no steps, a label is NaN, or an episode is in two places.
    """
    labels = _per_step(source, name, labels)
    if not len(labels):
        raise DataError(f"{source}: column {name!r} has no rows; the data set is empty.")
    _refuse_not_finite(source, name, labels)
    changes = np.flatnonzero(labels[1:] != labels[:-1]) + 1
    bounds: IntArray = np.concatenate([[0], changes, [len(labels)]]).astype(np.int64)
    firsts = bounds[:-1]
    _, where = np.unique(labels[firsts], return_index=True)
    again = np.setdiff1d(np.arange(len(firsts)), where)
    if len(again):
        label = labels[firsts[again[0]]]
        first = firsts[np.flatnonzero(labels[firsts] == label)[0]]
        raise DataError(
            f"{source}: episode {label} of column {name!r} is in two places (rows {first} and "
            f"{firsts[again[0]]}); sort the rows by episode and time."
        )
    return bounds


def _per_step(source: object, name: str, values: NDArray[Any]) -> NDArray[Any]:
    """One value per step, (N,)."""
    if values.dtype.kind not in "fiubSU" or values.size != len(values):
        raise DataError(
            f"{source}: {name!r} holds {values.dtype} of shape {values.shape}; one value per step "
            "is needed."
        )
    return values.reshape(-1)


def _refuse_not_finite(source: object, name: str, values: NDArray[Any]) -> None:
    if values.dtype.kind == "f" and not (finite := np.isfinite(values)).all():
        row = int(np.argmin(finite))
        raise DataError(
            f"{source}: {name!r} is {values[row]} in row {row}; it says where episodes end, so "
            "every row needs a value."
        )
