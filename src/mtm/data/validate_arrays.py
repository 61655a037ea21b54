"""What is wrong with arrays that are to become a data set: every fault, with its place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mtm.core.errors import DataError, unknown
from mtm.data.modalities import BoolArray, IntArray, Modality

CHUNK_STEPS = 1 << 18
"""Steps looked at together when a whole array is read, so that memory-mapped sets stay on disk."""


def raise_if(faults: Sequence[str]) -> None:
    """Raise a `DataError` of these faults, if there are any."""
    if faults:
        raise DataError(*faults)


def as_array(name: str, values: ArrayLike) -> NDArray[Any]:
    """A modality's values as an array of numbers with a row per step; one with a mask keeps it.

    Raises:
        DataError: They are something else.
    """
    try:
        array = values if isinstance(values, np.ma.MaskedArray) else np.asarray(values)
    except ValueError as error:
        raise DataError(f"modality {name!r} is not a regular array: {error}.") from error
    if array.dtype.kind not in "fiub":
        raise DataError(
            f"modality {name!r} has dtype {array.dtype}; allowed are floating point, integer and "
            "boolean numbers."
        )
    if array.ndim == 0:
        raise DataError(f"modality {name!r} is a single number; a value per step is needed.")
    return array


def as_offsets(offsets: ArrayLike) -> IntArray:
    """Episode offsets as rising integers from 0 on, (E + 1,).

    Raises:
        DataError: They are something else, with every episode that is wrong.
    """
    bounds = np.asarray(offsets)
    if bounds.ndim != 1 or bounds.dtype.kind not in "iu":
        raise DataError(
            f"offsets must be a one-dimensional integer array, got {bounds.dtype} of shape "
            f"{bounds.shape}."
        )
    bounds = bounds.astype(np.int64)
    if len(bounds) < 2 or bounds[-1] == 0:
        raise DataError("the data set is empty: it has no steps.")
    if bounds[0] != 0:
        raise DataError(f"offsets must begin with 0, got {bounds[0]}.")
    faults = []
    for episode in np.flatnonzero(np.diff(bounds) <= 0):
        what = "has length 0" if bounds[episode] == bounds[episode + 1] else "ends before it begins"
        faults.append(
            f"episode {episode} {what} (offsets {bounds[episode]} and {bounds[episode + 1]}); "
            "every episode needs at least one step."
        )
    raise_if(faults)
    return bounds


def misfits(
    modalities: Sequence[Modality], arrays: Mapping[str, NDArray[Any]], steps: int
) -> list[str]:
    """Names, shapes and lengths that do not go together."""
    names = [m.name for m in modalities]
    faults = []
    if len(set(names)) != len(names):
        faults.append(f"modality names must differ, got {', '.join(names)}.")
    for modality in modalities:
        if modality.name not in arrays:
            faults.append(unknown("modality", modality.name, arrays))
            continue
        shape = arrays[modality.name].shape[1:]
        if shape != modality.shape:
            faults.append(
                f"modality {modality.name!r} is declared with shape {modality.shape}, its array "
                f"holds values of shape {shape}."
            )
    lengths = {name: len(array) for name, array in arrays.items()}
    if set(lengths.values()) != {steps}:
        listed = ", ".join(f"{name} {length:,}" for name, length in lengths.items())
        faults.append(
            f"all modalities need one value per step; the episodes have {steps:,} steps, the "
            f"arrays have: {listed}."
        )
    return faults


def presence_faults(
    present: Mapping[str, NDArray[Any]], arrays: Mapping[str, NDArray[Any]]
) -> list[str]:
    """What is wrong with the marks of presence."""
    faults = []
    for name, mask in present.items():
        if name not in arrays:
            faults.append(unknown("modality in `present`:", name, arrays))
        elif mask.dtype != np.bool_ or mask.shape != (len(arrays[name]),):
            faults.append(
                f"present[{name!r}] must be {len(arrays[name]):,} booleans, one per step, got "
                f"{mask.dtype} of shape {mask.shape}."
            )
    return faults


def ending_faults(terminated: ArrayLike | None, episodes: int) -> list[str]:
    """What is wrong with the marks of terminal states."""
    if terminated is None:
        return []
    marks = np.asarray(terminated)
    if marks.dtype == np.bool_ and marks.shape == (episodes,):
        return []
    return [
        f"terminated must be {episodes:,} booleans, one per episode, got {marks.dtype} of shape "
        f"{marks.shape}."
    ]


def with_dtype(modality: Modality, values: NDArray[Any]) -> NDArray[Any]:
    """Values as they are stored: float32, or int64 for classes.

    Raises:
        DataError: Classes are not integers.
    """
    if modality.kind == "continuous":
        with np.errstate(over="ignore"):  # becomes infinite, which is told as a fault
            return np.ascontiguousarray(values, dtype=np.float32)
    if values.dtype.kind not in "iu":
        raise DataError(
            f"modality {modality.name!r} is discrete and needs integers, got {values.dtype}."
        )
    return np.ascontiguousarray(values, dtype=np.int64)


def value_faults(
    modality: Modality, values: NDArray[Any], present: BoolArray | None, bounds: IntArray
) -> Iterator[str]:
    """Values that are present and no numbers, or no classes: the first of each episode."""
    told = -1
    for start in range(0, len(values), CHUNK_STEPS):
        chunk = values[start : start + CHUNK_STEPS]
        if modality.kind == "continuous":
            faulty = ~np.isfinite(chunk).reshape(len(chunk), -1).all(axis=1)
        else:
            faulty = (chunk < 0) | (chunk >= modality.classes)
        if present is not None:
            faulty &= present[start : start + CHUNK_STEPS]
        steps = start + np.flatnonzero(faulty)
        episodes = np.searchsorted(bounds, steps, side="right") - 1
        _, firsts = np.unique(episodes, return_index=True)
        for first in firsts:
            if episodes[first] > told:
                told = int(episodes[first])
                yield _describe(modality, values, told, int(steps[first]), bounds)


def _describe(
    modality: Modality, values: NDArray[Any], episode: int, index: int, bounds: IntArray
) -> str:
    where = f"modality {modality.name!r}, episode {episode}, step {index - int(bounds[episode])}"
    if modality.kind == "discrete":
        return (
            f"{where}: class {values[index]} is outside 0 to {modality.classes - 1}. Count classes "
            "from 0; mark what stands for none as absent (present=... in Python, "
            f"{modality.name}_present in a file); store numbers as floating point."
        )
    value = values[index].reshape(-1)
    feature = int(np.argmin(np.isfinite(value)))
    return (
        f"{where}: feature {feature} is {value[feature]}. Repair the value, or mark it absent "
        "(present=... in Python; NaN with --reading.nan-is-absent on the command line, "
        "nan_is_absent=True in Python)."
    )
