"""Filling in what a question does not give, over trajectories of any length.

A model sees T steps at once, so each missing token is asked in a window of its own: the one that
shows the most of what is known around it. A gap in a modality that is known on both sides is best
asked where both sides are seen. A gap too wide for that is closed from its edges: each answer
becomes part of what is known, until the rest is narrow enough. All modalities are asked together,
round by round, so their order decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
    for name in names:
        m = run.modalities.named(name)
        fresh = np.zeros((B, S, *m.shape), dtype_of(m))
        values[name] = values[name].copy() if name in values else fresh
    _close_gaps(run, values, visible, names, asked, stated, asking)
    rest = [_Asks.of(run, visible, name, asked) for name in names]
    _answer(run, values, visible, rest, stated, asking)
    return {name: values[name] for name in names}


@dataclass(frozen=True)
class _Asks:
    """Missing tokens of a modality, each with the window that it is asked in.

    Attributes:
        name: Of the modality.
        tokens: (sample, step) of each, (G, 2).
        starts: First steps of the windows, (G,).
        surrounded: Whether the modality is visible on both sides of the token there, (G,).
    """

    name: str
    tokens: IntArray
    starts: IntArray
    surrounded: BoolArray

    @classmethod
    def of(cls, run: Run, visible: BoolArray, name: str, asked: BoolArray) -> _Asks:
        """All that are asked for and not known, (B, S, M) both."""
        tokens = np.argwhere((asked & ~visible)[:, :, run.modalities.place(name)])
        return cls(name, tokens, *_best_windows(run, visible, name, tokens))

    def some(self, chosen: BoolArray) -> _Asks:
        """Those that are chosen, (G,)."""
        return _Asks(self.name, self.tokens[chosen], self.starts[chosen], self.surrounded[chosen])


def _close_gaps(
    run: Run,
    values: Arrays,
    visible: BoolArray,
    names: Sequence[str],
    asked: BoolArray,
    stated: Arrays | None,
    asking: Asking,
) -> None:
    """Fill the gaps of all modalities together, in as many rounds as the widest gap needs."""
    partly = visible.any(axis=1, keepdims=True) & asked  # where the modality is known elsewhere
    while True:
        rounds = [
            _next_asks(
                _Asks.of(run, visible, name, partly), visible[:, :, run.modalities.place(name)]
            )
            for name in names
        ]
        if not any(len(asks.tokens) for asks in rounds):
            return
        _answer(run, values, visible, rounds, stated, asking)
        for asks in rounds:  # what is answered counts as known from the next round on
            visible[asks.tokens[:, 0], asks.tokens[:, 1], run.modalities.place(asks.name)] = True


def _next_asks(asks: _Asks, known: BoolArray) -> _Asks:
    """Those to ask now: with the modality known on both sides, or right beside."""
    now = asks.surrounded | _beside_known(known)[asks.tokens[:, 0], asks.tokens[:, 1]]
    now |= not now.any()  # nothing known will come any nearer: what lies between is not asked
    return asks.some(now)


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
    rounds: Sequence[_Asks],
    stated: Arrays | None,
    asking: Asking,
) -> None:
    """Ask for tokens of several modalities in one pass, each in its window; write the answers."""
    rounds = [asks for asks in rounds if len(asks.tokens)]
    if not rounds:
        return
    S, place = visible.shape[1], run.modalities.place
    T = min(run.segment_length, S)
    begins = np.concatenate([asks.tokens[:, 0] * S + asks.starts for asks in rounds])
    shared, which = np.unique(begins, return_inverse=True)  # (W,), of all tokens
    rows, steps = (shared // S)[:, None], (shared % S)[:, None] + np.arange(T)  # (W, 1), (W, T)
    shown = visible[rows, steps]
    wanted = np.zeros_like(shown)
    ends = np.cumsum([len(asks.tokens) for asks in rounds])[:-1]
    windows = np.split(which, ends)
    for asks, mine in zip(rounds, windows, strict=True):
        wanted[mine, asks.tokens[:, 1] - asks.starts, place(asks.name)] = True
    window = {n: v[rows, steps] for n, v in values.items() if visible[:, :, place(n)].any()}
    names = [asks.name for asks in rounds]
    if stated is None:
        answers = ask(run, window, shown, names, wanted, specialised=False)
        said: Arrays = {}
    else:
        answers, said = asking(run, window, shown, names, wanted)
    for asks, mine in zip(rounds, windows, strict=True):
        (sample, step), place_in = asks.tokens.T, asks.tokens[:, 1] - asks.starts
        values[asks.name][sample, step] = answers[asks.name][mine, place_in]
        if stated is not None:
            stated[asks.name][sample, step] = said[asks.name][mine, place_in]
