"""Values that a user hands in, checked and in the form that the model takes; NumPy only.

NaN marks a gap where a function takes gaps; an infinite number is never taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mtm.core.errors import DataError, unknown
from mtm.data.modalities import BoolArray, Modalities, Modality


class TakesValues(Protocol):
    """What values are handed to: a run, or what was exported of one."""

    @property
    def path(self) -> Path:
        """The directory."""

    @property
    def modalities(self) -> Modalities:
        """The streams that it knows."""


@dataclass(frozen=True)
class Given:
    """What is known of some trajectories, as a full batch.

    Attributes:
        values: For each modality of which anything is given, (B, S, *shape).
        visible: Which tokens are given, (B, S, M).
        batched: Whether there was a batch; if not, B is 1.
    """

    values: dict[str, NDArray[Any]]
    visible: BoolArray
    batched: bool

    @classmethod
    def of(
        cls, run: TakesValues, given: Mapping[str, ArrayLike], present: Mapping[str, ArrayLike]
    ) -> Given:
        """Check what is given and mark what of it is there.

        Raises:
            DataError: Nothing is given, a name is unknown, or values do not fit the model.
        """
        if not given:
            raise DataError(
                "the question gives nothing; give at least one modality of "
                f"{', '.join(run.modalities.names)}."
            )
        arrays, batched = {}, set()
        for name, values in given.items():
            arrays[name], is_batch = as_numbers_batch(run, name, values)
            batched.add(is_batch)
        sizes = {name: a.shape[:2] for name, a in arrays.items()}
        if len(set(sizes.values())) > 1 or len(batched) > 1:
            listed = ", ".join(f"{n} {b} x {s}" for n, (b, s) in sizes.items())
            raise DataError(f"all given modalities need the same batch and steps, got {listed}.")
        B, S = next(iter(sizes.values()))
        visible = np.zeros((B, S, len(run.modalities)), bool)
        for name, array in arrays.items():
            known = _known(name, array, present.get(name))
            arrays[name] = as_classes(run.modalities.named(name), array, known)
            visible[:, :, run.modalities.place(name)] = known
        for name in present:
            if name not in arrays:
                raise DataError(unknown("modality in `present`:", name, arrays))
        if not visible.any():
            raise DataError("the question gives nothing: every value is a gap.")
        return cls(arrays, visible, batched.pop())


def as_batch(run: TakesValues, name: str, values: ArrayLike) -> tuple[NDArray[Any], bool]:
    """Values without gaps as (B, S, *shape), and whether they came as a batch.

    Raises:
        DataError: They are no numbers, not finite, of another shape, no classes of a discrete
            modality, or there is a gap.
    """
    array, batched = as_numbers_batch(run, name, values)
    _check_finite(name, array, axis=1)
    return as_classes(run.modalities.named(name), array), batched


def as_numbers_batch(run: TakesValues, name: str, values: ArrayLike) -> tuple[NDArray[Any], bool]:
    """As `as_batch`, for values with gaps: whether they are classes is left to `as_classes`."""
    m = run.modalities.named(name)
    array = as_numbers(m, values)
    extra = array.ndim - len(m.shape)
    if array.shape[max(extra, 0) :] != m.shape or extra not in (1, 2):
        raise DataError(misfit(run, m, array.shape))
    if 0 in array.shape[:extra]:
        raise DataError(f"modality {name!r} has no steps: shape {array.shape}.")
    return (array, True) if extra == 2 else (array[None], False)


def as_values(run: TakesValues, name: str, values: ArrayLike) -> NDArray[Any]:
    """Values of any leading axes, (..., *shape), without gaps.

    Raises:
        DataError: As `as_batch`.
    """
    m = run.modalities.named(name)
    array = as_numbers(m, values)
    if array.shape[max(array.ndim - len(m.shape), 0) :] != m.shape:
        raise DataError(misfit(run, m, array.shape))
    _check_finite(name, array)
    return as_classes(m, array)


def as_goals(run: TakesValues, name: str, goal: ArrayLike, count: int | None) -> NDArray[Any]:
    """One goal for all histories, (*shape), or for each of `count`, (count, *shape), if a batch.

    Raises:
        DataError: It is of another shape, or not finite.
    """
    m = run.modalities.named(name)
    array = as_numbers(m, goal)
    allowed = [m.shape] if count is None else [m.shape, (count, *m.shape)]
    if array.shape not in allowed:
        listed = " or ".join(map(str, allowed))
        raise DataError(f"a goal is a value of {name!r}, of shape {listed}; got {array.shape}.")
    _check_finite(name, array)
    return as_classes(m, array)


def as_returns(
    run: TakesValues, name: str, returns: ArrayLike, shape: tuple[int, int], *, batched: bool
) -> tuple[NDArray[np.float32], bool]:
    """Returns to ask for as (B, S), and whether each step has its own; else only the last counts.

    Args:
        run: A trained run.
        name: Of the modality.
        returns: One number; for a batch also one for each trajectory, (B,); or one for each step,
            (S,) or for a batch (B, S).
        shape: B and S.
        batched: Whether there is a batch.

    Raises:
        DataError: It is of another shape, or not finite.
    """
    array = as_numbers(run.modalities.named(name), returns)
    B, S = shape
    forms = {"one number": (), "one for each step": shape if batched else (S,)}
    if batched:
        forms["one for each trajectory"] = (B,)
    if array.shape not in forms.values():
        listed = ", ".join(f"{form} for {what}" for what, form in forms.items())
        raise DataError(f"returns have shape {array.shape}; allowed are {listed}.")
    _check_finite(name, array)
    per_step = array.shape == forms["one for each step"]
    wide = array[:, None] if batched and array.ndim == 1 else array
    return np.ascontiguousarray(np.broadcast_to(wide, shape)), per_step


def as_numbers(m: Modality, values: ArrayLike) -> NDArray[Any]:
    """An array of numbers: float32, or whatever classes are given as; NaN where one is masked.

    Raises:
        DataError: It is something else.
    """
    if isinstance(values, np.ma.MaskedArray):
        values = np.ma.filled(values.astype(np.float64), np.nan)
    try:
        with np.errstate(over="ignore"):  # too large for float32: infinite, and told by others
            array = np.asarray(values, None if m.kind == "discrete" else np.float32)
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(f"modality {m.name!r} must be numbers: {error}.") from error
    if array.dtype.kind not in "biuf":
        raise DataError(f"modality {m.name!r} must be numbers, got values of type {array.dtype}.")
    return array


def as_classes(m: Modality, array: NDArray[Any], known: BoolArray | None = None) -> NDArray[Any]:
    """Classes of a discrete modality as integers, 0 where none is known; others pass unchanged.

    Args:
        m: The modality.
        array: Numbers, (..., *shape).
        known: Where there is a value, (...); everywhere if None.

    Raises:
        DataError: A known value is not a class.
    """
    if m.kind != "discrete":
        return array
    known = np.ones(array.shape, bool) if known is None else known
    is_class = (array == np.floor(array)) & (array >= 0) & (array < m.classes)
    if (known & ~is_class).any():
        raise DataError(
            f"modality {m.name!r} holds {array[known & ~is_class][0]}; its classes are the whole "
            f"numbers from 0 to {m.classes - 1}. Mark gaps with `present`, or mask them (numpy.ma)."
        )
    return np.where(known, array, 0).astype(np.int64)


def misfit(run: TakesValues, m: Modality, shape: tuple[int, ...]) -> str:
    """Say that values of a shape do not fit the model."""
    return (
        f"modality {m.name!r} has shape {shape}; this model was trained on values of shape "
        f"{m.shape} per step ({run.path}), with one axis for steps and an optional "
        "one for a batch before it."
    )


def infinite(name: str, where: str = "") -> str:
    """Say that a value is infinite."""
    return (
        f"modality {name!r} holds a value{where} that is infinite, or too large for single "
        "precision. Use NaN for a gap."
    )


def _check_finite(name: str, array: NDArray[Any], axis: int | None = None) -> None:
    """Raise `DataError` if there is a gap or an infinity; `axis` is that of the steps, if any."""
    if array.dtype.kind != "f" or np.isfinite(array).all():
        return
    place = np.argwhere(~np.isfinite(array))[0]
    where = "" if axis is None else f" at step {place[axis]}"
    if np.isinf(array[tuple(place)]):
        raise DataError(infinite(name, where))
    raise DataError(
        f"modality {name!r} has a gap (NaN){where}, which this capability does not take. "
        "Use predict(given, want), which fills gaps."
    )


def _known(name: str, array: NDArray[Any], present: ArrayLike | None) -> BoolArray:
    known = np.ones(array.shape[:2], bool)
    if present is not None:
        mask = np.asarray(present)
        if mask.dtype != np.bool_ or mask.shape not in (array.shape[:2], array.shape[1:2]):
            raise DataError(
                f"present[{name!r}] must be booleans of shape {array.shape[:2]}, got {mask.dtype} "
                f"of shape {mask.shape}."
            )
        known &= mask
    if array.dtype.kind == "f":
        flat = array.reshape(*array.shape[:2], -1)
        known &= ~np.isnan(flat).any(axis=2)
        if np.isinf(flat[known]).any():
            raise DataError(infinite(name))
    return known
