"""The one call that everything comes down to: windows in raw units, and tokens asked back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from mtm.core.errors import ConfigError, DataError, unknown
from mtm.data.modalities import BoolArray, Modality, Role
from mtm.runs.run import Run

Arrays: TypeAlias = dict[str, NDArray[Any]]

LARGEST_BATCH = 4096
"""Windows in one forward pass; more are asked in several."""


def ask(
    run: Run,
    window: Arrays,
    visible: BoolArray,
    want: Sequence[str],
    wanted: BoolArray | None = None,
) -> Arrays:
    """One window per sample, in raw units.

    A window shorter than a segment is answered as one whose later steps are hidden, because whole
    segments are what the model was trained on.

    Args:
        run: A trained run.
        window: Modality -> (B, T, *shape); modalities that are left out must not be visible.
        visible: (B, T, M).
        want: Names.
        wanted: The tokens that matter, (B, T, M); all of the wanted modalities if None.

    Returns:
        Each wanted modality, (B, T, *shape); the likeliest class of a discrete one. What stands at
        tokens that do not matter means nothing.
    """
    T = visible.shape[1]
    if wanted is None:
        wanted = np.zeros_like(visible)
        wanted[:, :, [index(run, name) for name in want]] = True
    lacking = run.model.config.segment_length - T
    if lacking > 0:
        visible, wanted = _lengthen(visible, lacking), _lengthen(wanted, lacking)
        window = {name: _lengthen(values, lacking) for name, values in window.items()}
    answers: dict[str, list[NDArray[Any]]] = {name: [] for name in want}
    for part in batches(len(visible)):
        inputs = tensors(run, {n: v[part] for n, v in window.items()}, visible[part])
        shown, asked = torch.from_numpy(visible[part]), torch.from_numpy(wanted[part])
        with torch.inference_mode():
            out = run.model(inputs, shown, asked).values
        for name in want:
            m = modality_of(run, name)
            if name not in out:  # none of its tokens matters in this part
                shape = (*visible[part].shape[:2], *m.shape)
                answers[name].append(np.zeros(shape, dtype_of(m)))
            elif m.kind == "discrete":
                answers[name].append(out[name].argmax(dim=-1).cpu().numpy())
            else:
                answers[name].append(run.normalizer.denormalize(name, out[name]).cpu().numpy())
    return {name: np.concatenate(parts)[:, :T] for name, parts in answers.items()}


def modality_of(run: Run, name: str) -> Modality:
    """The run's modality of a name.

    Raises:
        DataError: It has none; the message lists the near ones.
    """
    for m in run.modalities:
        if m.name == name:
            return m
    known = [m.name for m in run.modalities]
    raise DataError(unknown("modality", name, known) + f" {run.path} was trained on these alone.")


def only(run: Run, role: Role) -> str:
    """The one modality of a role.

    Raises:
        ConfigError: There is none, or there are several: then only `predict` can be asked.
    """
    names = [m.name for m in run.modalities if m.role == role]
    if len(names) != 1:
        raise ConfigError(
            f"this capability needs exactly one modality of role {role!r}, the run has "
            f"{', '.join(names) or 'none'}. Use predict(given, want), which takes any."
        )
    return names[0]


def as_batch(run: Run, name: str, values: ArrayLike) -> tuple[NDArray[Any], bool]:
    """Values without gaps as (B, S, *shape), and whether they came as a batch.

    Raises:
        DataError: They are no numbers, of another shape, no classes of a discrete modality, or
            there is a gap.
    """
    array, batched = as_numbers_batch(run, name, values)
    gaps = np.isnan(array) if array.dtype.kind == "f" else np.zeros(array.shape, bool)
    if gaps.any():
        step = np.argwhere(gaps)[0, 1]
        raise DataError(
            f"modality {name!r} has a gap (NaN) at step {step}, which this capability does not "
            "take. Use predict(given, want), which fills gaps."
        )
    return as_classes(modality_of(run, name), array), batched


def as_numbers_batch(run: Run, name: str, values: ArrayLike) -> tuple[NDArray[Any], bool]:
    """As `as_batch`, for values with gaps: whether they are classes is left to `as_classes`."""
    m = modality_of(run, name)
    array = as_numbers(m, values)
    extra = array.ndim - len(m.shape)
    if array.shape[max(extra, 0) :] != m.shape or extra not in (1, 2):
        raise DataError(misfit(run, m, array.shape))
    if 0 in array.shape[:extra]:
        raise DataError(f"modality {name!r} has no steps: shape {array.shape}.")
    return (array, True) if extra == 2 else (array[None], False)


def as_numbers(m: Modality, values: ArrayLike) -> NDArray[Any]:
    """An array of numbers: float32, or whatever classes are given as.

    Raises:
        DataError: It is something else.
    """
    try:
        array = np.asarray(values, None if m.kind == "discrete" else np.float32)
    except (TypeError, ValueError) as error:
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
            f"numbers from 0 to {m.classes - 1}. Mark gaps with `present`."
        )
    return np.where(known, array, 0).astype(np.int64)


def dtype_of(m: Modality) -> type[np.generic]:
    """Of the values that a model takes and gives."""
    return np.int64 if m.kind == "discrete" else np.float32


def misfit(run: Run, m: Modality, shape: tuple[int, ...]) -> str:
    """Say that values of a shape do not fit the model."""
    return (
        f"modality {m.name!r} has shape {shape}; this model was trained on values of shape "
        f"{m.shape} per step ({run.path / 'config.json'}), with one axis for steps and an optional "
        "one for a batch before it."
    )


def index(run: Run, name: str) -> int:
    """The place of a modality within a step."""
    return [m.name for m in run.modalities].index(name)


def tensors(run: Run, window: Arrays, visible: BoolArray) -> dict[str, torch.Tensor]:
    """Normalised tensors of every modality; zeros for those that are not in the window."""
    B, T = visible.shape[:2]
    inputs = {}
    for m in run.modalities:
        if m.name in window:
            raw = torch.from_numpy(np.ascontiguousarray(window[m.name])).to(device(run))
            inputs[m.name] = run.normalizer.normalize(m.name, raw)
        else:
            kind = torch.int64 if m.kind == "discrete" else torch.float32
            inputs[m.name] = torch.zeros(B, T, *m.shape, dtype=kind, device=device(run))
    return inputs


def device(run: Run) -> torch.device:
    """Where the model is."""
    return next(run.model.parameters()).device


def batches(count: int) -> list[slice]:
    """Parts of so many windows that fit into one forward pass each."""
    return [slice(i, i + LARGEST_BATCH) for i in range(0, count, LARGEST_BATCH)]


def _lengthen(values: NDArray[Any], steps: int) -> NDArray[Any]:
    """More steps of zeros at the end of axis 1."""
    return np.pad(values, [(0, 0), (0, steps)] + [(0, 0)] * (values.ndim - 2))
