"""How good labels are, beside what one would say without a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mtm.data.modalities import BoolArray, Modality
from mtm.data.neighbours import nearest
from mtm.inference.error_calibration import Floats
from mtm.runs.run import Run


@dataclass(frozen=True)
class LabelErrors:
    """Means over the labels of a modality for values that are known but were hidden.

    Errors are squared, in units of the training data's variance (1 is as good as the mean), or the
    share of wrong classes.

    Attributes:
        lacking: Values that the data set lacks.
        measured: Values that the errors are means of.
        error: Of the labels.
        raw: The same in the data's own units.
        surest: Error of the half with the lower expected error; None if too few were measured to
            tell one from the other.
        least_sure: Error of the other half; None likewise.
        by_mean: Error of the mean, or of the commonest class, instead.
        by_nearest: Error of copying the value nearest in time instead, and the mean where an
            episode has none; None if none ever has one.
    """

    lacking: int
    measured: int
    error: float
    raw: float
    surest: float | None
    least_sure: float | None
    by_mean: float
    by_nearest: float | None


@dataclass(frozen=True)
class Trial:
    """What was found for n hidden values.

    Attributes:
        features: What stood around them, (n, F).
        error: Of the labels, (n,).
        raw: In the data's own units, (n,).
        by_mean: Error of the mean, or of the commonest class, (n,).
        by_nearest: Error of the nearest known value, NaN where there is none, (n,).
    """

    features: Floats
    error: Floats
    raw: Floats
    by_mean: Floats
    by_nearest: Floats

    @classmethod
    def of(
        cls,
        run: Run,
        m: Modality,
        features: Floats,
        answers: NDArray[Any],
        truth: NDArray[Any],
        given: BoolArray,
        chosen: BoolArray,
    ) -> Trial:
        """Compare answers with the truth, both (B, S, *shape), where `chosen`, (B, S)."""
        right, guess = truth[chosen], answers[chosen]
        places = nearest(given)[chosen]
        copied = truth[np.nonzero(chosen)[0], places]
        return cls(
            features[chosen],
            errors(run, m, guess, right),
            errors(run, m, guess, right, raw=True),
            errors(run, m, _middle(run, m, right), right),
            np.where(places < 0, np.nan, errors(run, m, copied, right)),
        )

    @classmethod
    def joined(cls, trials: list[Trial]) -> Trial:
        """All of them as one."""
        return cls(*(np.concatenate([getattr(t, key) for t in trials]) for key in _COLUMNS))

    def summary(self, lacking: int, scores: Floats | None) -> LabelErrors:
        """Means; the scores, (n,), rise with the expected error, if that is told at all."""
        halves: list[float | None] = [None, None]
        if scores is not None:
            order = np.argsort(scores, kind="stable")
            halves = [float(half.mean()) for half in np.array_split(self.error[order], 2)]
        alone = np.isnan(self.by_nearest)
        copied = np.where(alone, self.by_mean, self.by_nearest)
        return LabelErrors(
            lacking=lacking,
            measured=len(self.error),
            error=float(self.error.mean()),
            raw=float(self.raw.mean()),
            surest=halves[0],
            least_sure=halves[1],
            by_mean=float(self.by_mean.mean()),
            by_nearest=None if alone.all() else float(copied.mean()),
        )


_COLUMNS = ("features", "error", "raw", "by_mean", "by_nearest")


def errors(
    run: Run, m: Modality, guess: NDArray[Any], truth: NDArray[Any], *, raw: bool = False
) -> Floats:
    """Squared error of each value, normalised unless `raw`, or whether the class is wrong, (n,)."""
    if m.kind == "discrete":
        wrong: Floats = np.asarray(guess != truth, np.float64)
        return wrong
    std = 1.0 if raw else run.normalizer.statistics[m.name].std.astype(np.float64)
    squared = ((guess.astype(np.float64) - truth) / std) ** 2
    means: Floats = squared.reshape(len(squared), m.size).mean(axis=1)
    return means


def _middle(run: Run, m: Modality, truth: NDArray[Any]) -> NDArray[Any]:
    """What one would say without knowing anything: the mean, or the commonest class."""
    if m.kind == "discrete":
        return np.full(len(truth), np.bincount(truth).argmax() if len(truth) else 0)
    return np.broadcast_to(run.normalizer.statistics[m.name].mean, truth.shape)
