"""Linear regression whose weights are kept small."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

SMALLEST_SCALE = 1e-6
"""Added to the standard deviation of a feature, which may be constant."""


@dataclass(frozen=True)
class RidgeRegression:
    """Predicts a number from F features.

    Attributes:
        center: Mean of each feature, (F,).
        scale: Standard deviation of each, (F,).
        weights: Of the standardised features, and the intercept, (F + 1,).
    """

    center: NDArray[np.float64]
    scale: NDArray[np.float64]
    weights: NDArray[np.float64]

    @classmethod
    def fit(cls, features: NDArray[Any], targets: NDArray[Any], penalty: float) -> RidgeRegression:
        """Fit to features (n, F) and targets (n,); the penalty is per measurement."""
        x, y = features.astype(np.float64), targets.astype(np.float64)
        center, scale = x.mean(axis=0), x.std(axis=0) + SMALLEST_SCALE
        design = np.hstack([(x - center) / scale, np.ones((len(x), 1))])  # (n, F + 1)
        penalties = penalty * len(x) * np.eye(design.shape[1])
        weights = np.linalg.solve(design.T @ design + penalties, design.T @ y)
        return cls(center, scale, weights)

    def __call__(self, features: NDArray[Any]) -> NDArray[np.float64]:
        """Predictions for features (n, F): (n,)."""
        standardised = (features - self.center) / self.scale
        found: NDArray[np.float64] = standardised @ self.weights[:-1] + self.weights[-1]
        return found
