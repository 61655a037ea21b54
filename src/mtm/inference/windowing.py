"""Filling in what a question does not give, over trajectories of any length.

A model sees T steps at once, so each missing token is asked in a window of its own: the one that
shows the most of what is known around it. A gap in a modality that is known on both sides is best
asked where both sides are seen. A gap too wide for that is closed from its edges: each answer
becomes part of what is known, until the rest is narrow enough.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mtm.data.modalities import BoolArray, IntArray
from mtm.inference.engine import Arrays, ask, ask_with_errors, dtype_of
from mtm.inference.inputs import Given
from mtm.runs.run import Run

Asking: TypeAlias = Callable[
    [Run, Arrays, BoolArray, Sequence[str], BoolArray], tuple[Arrays, Arrays]
]
"""What asks windows and says more than the answers: `ask_with_errors`, `ask_with_certainty`."""


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
        answers = ask(run, window, shown, [name], wanted, specialised=False)
    else:
        answers, said = asking(run, window, shown, [name], wanted)
        stated[name][sample, step] = said[name][which, step - starts]
    into[sample, step] = answers[name][which, step - starts]
