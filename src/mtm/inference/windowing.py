"""Filling in what a question does not give, over trajectories of any length.

A model sees T steps at once, so each missing token is asked in a window of its own: the one that
shows the most of what is known around it. A gap in a modality that is known on both sides is best
asked where both sides are seen. A gap too wide for that is closed from its edges: each answer
becomes part of what is known, until the rest is narrow enough.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mtm.core.errors import DataError, unknown
from mtm.data.modalities import BoolArray, IntArray
from mtm.inference.engine import Arrays, ask, ask_with_errors, dtype_of
from mtm.inference.inputs import as_classes, as_numbers_batch, infinite
from mtm.runs.run import Run

Asking: TypeAlias = Callable[
    [Run, Arrays, BoolArray, Sequence[str], BoolArray], tuple[Arrays, Arrays]
]
"""What asks windows and says more than the answers: `ask_with_errors`, `ask_with_certainty`."""


@dataclass(frozen=True)
class Given:
    """What is known of some trajectories, as a full batch.

    Attributes:
        values: For each modality of which anything is given, (B, S, *shape).
        visible: Which tokens are given, (B, S, M).
        batched: Whether there was a batch; if not, B is 1.
    """

    values: Arrays
    visible: BoolArray
    batched: bool

    @classmethod
    def of(
        cls, run: Run, given: Mapping[str, ArrayLike], present: Mapping[str, ArrayLike]
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


def fill(
    run: Run,
    given: Given,
    names: Sequence[str],
    asked: BoolArray | None = None,
    stated: Arrays | None = None,
    asking: Asking = ask_with_errors,
) -> Arrays:
    """Each wanted modality at every step: what was given where it was, predictions elsewhere.

    Args:
        run: A trained run.
        given: What is known.
        names: The wanted modalities.
        asked: The tokens to predict, (B, S, M); everything that is not given if None. What stands
            where nothing was given or asked means nothing.
        stated: For each wanted modality an array, (B, S, ...), to be filled where the model answers
            with what it says of the answer.
        asking: Says it: by default the error that the model itself expects, (B, S).
    """
    B, S, _ = given.visible.shape
    values, visible = dict(given.values), given.visible.copy()
    asked = ~visible if asked is None else asked & ~visible
    in_part = [name for name in names if visible[:, :, run.modalities.place(name)].any()]
    for name in in_part:
        values[name] = values[name].copy()
        wanted = asked[:, :, run.modalities.place(name)]
        _close_gaps(run, values, visible, name, wanted, stated, asking)
    answers = {}
    for name in names:
        m = run.modalities.named(name)
        if name not in values:
            values[name] = np.zeros((B, S, *m.shape), dtype_of(m))
        missing = np.argwhere((asked & ~visible)[:, :, run.modalities.place(name)])
        answers[name] = values[name].copy()
        if len(missing):
            starts, _ = _best_windows(run, visible, name, missing)
            _answer(run, values, visible, name, missing, starts, answers[name], stated, asking)
    return answers


def _close_gaps(
    run: Run,
    values: Arrays,
    visible: BoolArray,
    name: str,
    asked: BoolArray,
    stated: Arrays | None,
    asking: Asking,
) -> None:
    """Fill the gaps of a modality, in as many rounds as its widest gap needs."""
    known = visible[
        :, :, run.modalities.place(name)
    ]  # a view: what is answered counts as known at once
    rows = known.any(axis=1, keepdims=True)
    while True:
        missing = np.argwhere(~known & rows & asked)
        if not len(missing):
            return
        starts, surrounded = _best_windows(run, visible, name, missing)
        now = np.logical_or(surrounded, _beside_known(known)[missing[:, 0], missing[:, 1]])
        now |= not now.any()  # nothing known will come any nearer: what lies between is not asked
        asks, begins = missing[now], starts[now]
        _answer(run, values, visible, name, asks, begins, values[name], stated, asking)
        known[missing[now, 0], missing[now, 1]] = True


def _beside_known(known: BoolArray) -> BoolArray:
    beside = np.zeros_like(known)
    beside[:, 1:] |= known[:, :-1]
    beside[:, :-1] |= known[:, 1:]
    return beside


def _best_windows(
    run: Run, visible: BoolArray, name: str, missing: IntArray
) -> tuple[IntArray, BoolArray]:
    """For each missing token (sample, step), (G, 2), the start of the window that shows most.

    Returns:
        Starts (G,), and whether the modality is visible on both sides of the token there, (G,).
    """
    S = visible.shape[1]
    T = min(run.segment_length, S)
    sample, step = missing[:, :1], missing[:, 1:]
    starts = np.clip(step - np.arange(T)[::-1], 0, S - T)  # (G, T)
    mine = _counts(visible[:, :, run.modalities.place(name)])
    before = mine[sample, step] - mine[sample, starts]
    after = mine[sample, starts + T] - mine[sample, step + 1]
    seen = _counts(visible.sum(axis=2))
    shown = seen[sample, starts + T] - seen[sample, starts]
    central = np.minimum(step - starts, starts + T - 1 - step)
    both = (before > 0) & (after > 0)
    # Both sides first, then as much as possible, then far from the window's edges, late if alike.
    most = T * visible.shape[2] + 1
    best = ((both * most + shown) * T + central).argmax(axis=1)
    rows = np.arange(len(missing))
    return starts[rows, best], both[rows, best]


def _counts(values: NDArray[Any]) -> IntArray:
    """Sums until each step, (B, S + 1)."""
    until = np.cumsum(values, axis=1, dtype=np.int64)
    return np.concatenate([np.zeros((len(values), 1), np.int64), until], axis=1)


def _answer(
    run: Run,
    values: Arrays,
    visible: BoolArray,
    name: str,
    missing: IntArray,
    starts: IntArray,
    into: NDArray[Any],
    stated: Arrays | None,
    asking: Asking,
) -> None:
    """Ask for some tokens, each in its window, and write the answers."""
    S = visible.shape[1]
    T = min(run.segment_length, S)
    sample, step = missing[:, 0], missing[:, 1]
    shared, which = np.unique(sample * S + starts, return_inverse=True)  # (W,), (G,)
    rows, steps = (shared // S)[:, None], (shared % S)[:, None] + np.arange(T)  # (W, 1), (W, T)
    shown = visible[rows, steps]
    wanted = np.zeros_like(shown)
    wanted[which, step - starts, run.modalities.place(name)] = True
    window = {
        n: v[rows, steps] for n, v in values.items() if visible[:, :, run.modalities.place(n)].any()
    }
    if stated is None:
        answers = ask(run, window, shown, [name], wanted)
    else:
        answers, said = asking(run, window, shown, [name], wanted)
        stated[name][sample, step] = said[name][which, step - starts]
    into[sample, step] = answers[name][which, step - starts]


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
