"""Filling in what a question does not give, over trajectories of any length.

Whatever training has asked is asked as training did: actions between known states by inverse
dynamics, gaps in states by dynamics from both sides (`mtm.inference.smoothing`).

The rest is shown all that is known around it. A model sees T steps at once, so each missing token
is asked in a window of its own: the one that shows the most. A gap in a modality that is known on
both sides is best asked where both sides are seen. A gap too wide for that is closed from its
edges: each answer becomes part of what is known, until the rest is narrow enough. All modalities
are asked together, round by round, so their order decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mtm.data.modalities import BoolArray, IntArray
from mtm.inference.engine import Arrays, ask, ask_with_certainty, dtype_of
from mtm.inference.inputs import Given
from mtm.inference.smoothing import Asking, smooth
from mtm.masks import NAMED_MASKS, asked_in_training
from mtm.runs.run import Run


def fill(
    run: Run,
    given: Given,
    names: Sequence[str],
    asked: BoolArray | None = None,
    stated: Arrays | None = None,
    asking: Asking = ask_with_certainty,
) -> Arrays:
    """Each wanted modality at every step: what was given where it was, predictions elsewhere.

    Args:
        run: A trained run.
        given: What is known.
        names: The wanted modalities.
        asked: The tokens to predict, (B, S, M); everything that is not given if None. What stands
            where nothing was given or asked means nothing.
        stated: For some wanted modalities an array, to be filled where the model answers with how
            sure it is, see `no_certainty`.
        asking: Asks windows, and says how sure the answers are.
    """
    B, S, _ = given.visible.shape
    values = dict(given.values)
    asked = ~given.visible if asked is None else asked & ~given.visible
    for name in names:
        m = run.modalities.named(name)
        fresh = np.zeros((B, S, *m.shape), dtype_of(m))
        values[name] = values[name].copy() if name in values else fresh
    filling = _Filling(run, values, given.visible.copy(), names, asked, stated, asking)
    inferred = filling.infer_actions()
    filling.smooth_states(inferred)
    filling.asked &= ~inferred  # they are no evidence for the other actions
    filling.asked &= ~filling.infer_actions()
    filling.close_gaps()
    filling.ask_rest()
    return {name: values[name] for name in names}


def no_certainty(run: Run, names: Sequence[str], size: tuple[int, int]) -> Arrays:
    """Arrays for `stated` of `fill`, all NaN.

    Returns:
        Standard deviations of numbers, (B, S, *shape); probabilities of classes, (B, S, classes).
    """
    asked = [run.modalities.named(name) for name in names]
    forms = {m.name: (m.classes,) if m.kind == "discrete" else m.shape for m in asked}
    return {name: np.full((*size, *form), np.nan, np.float32) for name, form in forms.items()}


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


@dataclass
class _Filling:
    """Trajectories as far as they are filled.

    Attributes:
        run: A trained run.
        values: Modality -> (B, S, *shape); answers are written here.
        visible: What is known, or counts as known, (B, S, M).
        names: Wanted modalities.
        asked: The tokens that are still to be answered, and those that are visible by now.
        stated: As for `fill`.
        asking: As for `fill`.
    """

    run: Run
    values: Arrays
    visible: BoolArray
    names: Sequence[str]
    asked: BoolArray
    stated: Arrays | None
    asking: Asking

    def infer_actions(self) -> BoolArray:
        """Actions with the states before and after them known, which is all that is shown.

        Returns:
            Which tokens these are, (B, S, M); they do not count as known.
        """
        config, modalities = self.run.description.train, tuple(self.run.modalities)
        between = np.zeros_like(self.asked)
        fits = NAMED_MASKS["id"].fits(modalities, self.run.segment_length)
        if not fits or "id" not in asked_in_training(config):
            return between
        of_states = np.array([m.role == "state" for m in modalities])
        known: BoolArray = np.all(self.visible[:, :, of_states], axis=2)
        acted = [n for n in self.names if self.run.modalities.named(n).role == "action"]
        places = [self.run.modalities.place(name) for name in acted]
        between[:, :-1, places] = (known[:, :-1] & known[:, 1:])[:, :, None]
        between &= self.asked & ~self.visible
        shown = self.visible & of_states
        self._answer([_Asks.of(self.run, shown, name, between) for name in acted], shown)
        return between

    def smooth_states(self, inferred: BoolArray) -> None:
        """Gaps in states, by dynamics from both sides, which see inferred actions as known ones."""
        known, asked = self.visible | inferred, self.asked & ~self.visible
        found = smooth(self.run, self.values, known, self.names, asked, self.asking)
        for name, smoothed in found.items():
            here = smoothed.found
            self.values[name][here] = smoothed.values[here]
            if self.stated is not None and name in self.stated:
                self.stated[name][here] = smoothed.deviations[here]
            self.visible[:, :, self.run.modalities.place(name)] |= here

    def close_gaps(self) -> None:
        """Fill the gaps of all modalities together, in as many rounds as the widest gap needs."""
        run, visible = self.run, self.visible
        partly = visible.any(axis=1, keepdims=True) & self.asked  # what is known elsewhere
        while True:
            rounds = [
                _next_asks(
                    _Asks.of(run, visible, name, partly), visible[:, :, run.modalities.place(name)]
                )
                for name in self.names
            ]
            if not any(len(asks.tokens) for asks in rounds):
                return
            self._answer(rounds, visible)
            for asks in rounds:  # what is answered counts as known from the next round on
                sample, step = asks.tokens.T
                visible[sample, step, run.modalities.place(asks.name)] = True

    def ask_rest(self) -> None:
        """Modalities of which nothing is known."""
        rest = [_Asks.of(self.run, self.visible, name, self.asked) for name in self.names]
        self._answer(rest, self.visible)

    def _answer(self, rounds: Sequence[_Asks], visible: BoolArray) -> None:
        """Ask for tokens of several modalities in one pass, each in its window.

        Args:
            rounds: The tokens.
            visible: What is shown of the trajectories, (B, S, M).
        """
        rounds = [asks for asks in rounds if len(asks.tokens)]
        if not rounds:
            return
        S, place = visible.shape[1], self.run.modalities.place
        T = min(self.run.segment_length, S)
        begins = np.concatenate([asks.tokens[:, 0] * S + asks.starts for asks in rounds])
        shared, which = np.unique(begins, return_inverse=True)  # (W,), of all tokens
        rows, steps = (shared // S)[:, None], (shared % S)[:, None] + np.arange(T)  # (W, T)
        shown = visible[rows, steps]
        wanted = np.zeros_like(shown)
        ends = np.cumsum([len(asks.tokens) for asks in rounds])[:-1]
        windows = np.split(which, ends)
        for asks, mine in zip(rounds, windows, strict=True):
            wanted[mine, asks.tokens[:, 1] - asks.starts, place(asks.name)] = True
        known = {n: v for n, v in self.values.items() if visible[:, :, place(n)].any()}
        window = {name: values[rows, steps] for name, values in known.items()}
        names = [asks.name for asks in rounds]
        said: Arrays = {}
        if self.stated is None:
            answers = ask(self.run, window, shown, names, wanted, specialised=False)
        else:
            answers, said = self.asking(self.run, window, shown, names, wanted)
        for asks, mine in zip(rounds, windows, strict=True):
            (sample, step), place_in = asks.tokens.T, asks.tokens[:, 1] - asks.starts
            self.values[asks.name][sample, step] = answers[asks.name][mine, place_in]
            if self.stated is not None and asks.name in self.stated:
                self.stated[asks.name][sample, step] = said[asks.name][mine, place_in]


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
