"""How far a predicted value may be off, step by step.

Where the truth is known, the errors of predictions are measured; a regression then tells an
expected error from what stands around a value: the values of its step and how they change from the
step before and to the step after, how far away the nearest given values are, and how much the
members of a run disagree, if it has several. Its scores are
turned into expected errors by a rising function that was measured on episodes the regression did
not see.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mtm.data.modalities import BoolArray, IntArray
from mtm.data.neighbours import distances
from mtm.inference.engine import Arrays
from mtm.inference.ridge_regression import RidgeRegression
from mtm.runs.run import Run

Floats = NDArray[np.float64]

LARGEST_SIZE = 64
"""Modalities with more numbers per value than this enter only by where they are given."""

LARGEST_VALUE = 5.0
"""Normalised values are cut off here."""

RIDGE = 1e-2
"""Penalty of the regression."""
FEWEST = 40
"""With fewer measured errors than this, all values are expected to be off by their mean."""
LEVELS = 20
"""Steps of the rising function at most."""
SMALLEST = 1e-6
"""The least error that is expected: 0 is for what was given."""


def surroundings(
    run: Run, values: Arrays, given: BoolArray, there: BoolArray, stated: Arrays
) -> Floats:
    """What stands around each step of a batch, as features, (B, S, F).

    Args:
        run: It knows the modalities and their scale.
        values: Modality -> (B, S, *shape), with predictions where they were made.
        given: What was known before anything was predicted, (B, S, M).
        there: What is known or predicted, (B, S, M).
        stated: For some modalities the error that the model itself expects, (B, S); 0 where it was
            not asked.
    """
    T = run.model.config.segment_length
    parts = [distances(given[:, :, i], T) / T for i in range(given.shape[2])]
    for i, m in enumerate(run.modalities):
        size = m.classes if m.kind == "discrete" else m.size
        if size > LARGEST_SIZE:
            continue
        here = there[:, :, i, None]
        if m.name not in values:
            x = np.zeros((*here.shape[:2], size))
        elif m.kind == "discrete":
            x = np.eye(size)[np.where(here[:, :, 0], values[m.name], 0)] * here
        else:
            s = run.normalizer.statistics[m.name]
            scaled = ((values[m.name] - s.mean) / s.std).reshape(*here.shape[:2], size)
            x = np.clip(np.where(here, scaled, 0.0), -LARGEST_VALUE, LARGEST_VALUE)
        change = np.diff(x, axis=1) * (here[:, 1:] & here[:, :-1])
        nothing = np.zeros_like(x[:, :1])
        parts += [x, np.hstack([nothing, change]), np.hstack([change, nothing])]
    for error in stated.values():
        parts.append(np.log(np.maximum(np.where(error > 0, error, 1.0), SMALLEST))[:, :, None])
    return np.concatenate(parts, axis=2)


@dataclass(frozen=True)
class Regression:
    """Ridge regression of the logarithm of the error on features and their squares."""

    ridge: RidgeRegression

    @classmethod
    def fit(cls, features: Floats, errors: Floats) -> Regression:
        """Fit to features (n, F) and errors (n,)."""
        logarithms = np.log(errors + 0.01 * errors.mean() + 1e-12)
        return cls(RidgeRegression.fit(_with_squares(features), logarithms, RIDGE))

    def __call__(self, features: Floats) -> Floats:
        """Scores that rise with the error, (n,)."""
        return self.ridge(_with_squares(features))


@dataclass(frozen=True)
class Confidence:
    """Tells the expected error of predicted values.

    Attributes:
        regression: Gives scores; None where too few errors were measured for one.
        scores: Rising, (K,).
        errors: The mean error around each of these scores, rising, (K,).
        crossed: The score of each measured error, given by a regression that did not see it, (n,);
            None where there is no regression.
    """

    regression: Regression | None
    scores: Floats
    errors: Floats
    crossed: Floats | None

    @classmethod
    def fit(cls, features: Floats, errors: Floats) -> Confidence:
        """Fit to measured errors (n,) and their features (n, F), in the order of the episodes."""
        n, half = len(errors), len(errors) // 2
        if n < FEWEST:
            return cls(None, np.zeros(1), errors.mean(keepdims=True), None)
        first, second = slice(None, half), slice(half, None)
        crossed = np.concatenate(
            [
                Regression.fit(features[second], errors[second])(features[first]),
                Regression.fit(features[first], errors[first])(features[second]),
            ]
        )
        parts = np.array_split(np.argsort(crossed, kind="stable"), min(LEVELS, n // FEWEST + 1))
        scores = np.array([crossed[part].mean() for part in parts])
        means = np.array([errors[part].mean() for part in parts])
        counts = np.array([len(part) for part in parts])
        return cls(Regression.fit(features, errors), scores, rising(means, counts), crossed)

    def expected(self, features: Floats) -> Floats:
        """The expected error of values with these features, (n, F) to (n,); never quite 0."""
        if self.regression is None:
            found = np.full(len(features), self.errors[0])
        else:
            found = np.interp(self.regression(features), self.scores, self.errors)
        floored: Floats = np.maximum(found, SMALLEST)
        return floored


def rising(means: Floats, counts: IntArray) -> Floats:
    """The nearest values that never fall: neighbours that do are replaced by their mean."""
    pools: list[list[float]] = []  # mean, count, how many of the means it stands for
    for mean, count in zip(means, counts, strict=True):
        pools.append([float(mean), float(count), 1])
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            value, weight, length = pools.pop()
            before = pools[-1]
            before[0] = (before[0] * before[1] + value * weight) / (before[1] + weight)
            before[1] += weight
            before[2] += length
    return np.repeat([pool[0] for pool in pools], [int(pool[2]) for pool in pools])


def _with_squares(features: Floats) -> Floats:
    return np.hstack([features, features**2])
