"""Methods that learn nothing, or only a straight line: interpolation and a Kalman smoother."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mtm.data.modalities import BoolArray
from mtm.data.trajectories import TrajectoryDataset
from mtm.research.imputation.samples import Floats, Logs
from mtm.research.imputation.score import Filled

Doubles = NDArray[np.float64]

RIDGE = 1e-6
"""Penalty of the least squares, per step."""

SENSOR_NOISE = 1e-6
"""Variance of what is known: next to nothing, but matrices stay invertible."""


def interpolate(windows: Floats, hidden: BoolArray) -> Filled:
    """Straight lines between the known values of each column; beyond the ends, the nearest one.

    A column of which nothing is known becomes 0, the mean.
    """
    filled = windows.copy()
    time = np.arange(windows.shape[1])
    for n, d in np.argwhere(hidden.any(axis=1)):
        lost = hidden[n, :, d]
        known = ~lost
        if known.any():
            filled[n, lost, d] = np.interp(time[lost], time[known], windows[n, known, d])
        else:
            filled[n, :, d] = 0
    return Filled(filled)


@dataclass(frozen=True)
class KalmanSmoother:
    """States that follow `x' = A x + B u + c + noise`, fitted to complete steps by least squares.

    The sensors are the states themselves, as far as they are known; actions are the inputs. The
    smoother sees both sides of a gap (Rauch, Tung and Striebel).

    Attributes:
        A: (S, S).
        B: The inputs' part and the constant, (S, U + 1).
        noise: Covariance of what the lines do not explain, (S, S).
        mean: Of the states, (S,).
        covariance: Of the states, (S, S): what is known of a first step that is lost.
    """

    A: Doubles
    B: Doubles
    noise: Doubles
    mean: Doubles
    covariance: Doubles

    @classmethod
    def fit(cls, logs: Logs) -> KalmanSmoother:
        """Fit to the pairs of neighbouring steps of the training episodes."""
        training, size = logs.parts.training, sum(logs.widths)
        steps = _not_last(training)
        now = logs.normalised(training, steps).astype(np.float64)
        after = logs.normalised(training, steps + 1)[:, :size].astype(np.float64)
        known = np.hstack([now, np.ones((len(now), 1))])
        square = known.T @ known + RIDGE * len(now) * np.eye(known.shape[1])
        weights = np.linalg.solve(square, known.T @ after).T  # (S, S + U + 1)
        left = after - known @ weights.T
        states = now[:, :size]
        return cls(
            weights[:, :size],
            weights[:, size:],
            left.T @ left / len(left) + SENSOR_NOISE * np.eye(size),
            states.mean(axis=0),
            np.cov(states.T) + SENSOR_NOISE * np.eye(size),
        )

    def __call__(self, windows: Floats, hidden: BoolArray) -> Filled:
        """The mean and the standard deviation of each lost value given all known ones."""
        size = len(self.A)
        states, known = windows[:, :, :size].astype(np.float64), ~hidden[:, :, :size]
        inputs = windows[:, :, size:].astype(np.float64)
        ones = np.ones((*inputs.shape[:2], 1))
        pushed = np.concatenate([inputs, ones], axis=2) @ self.B.T  # (N, W, S)
        means, covariances = self._smoothed(np.where(known, states, 0.0), known, pushed)
        values, deviations = windows.copy(), np.zeros_like(windows)
        variances = np.maximum(np.diagonal(covariances, axis1=2, axis2=3), 0)
        values[:, :, :size] = np.where(known, windows[:, :, :size], means)
        deviations[:, :, :size] = np.where(known, 0, np.sqrt(variances))
        return Filled.normal(values, deviations)

    def _smoothed(
        self, states: Doubles, known: BoolArray, pushed: Doubles
    ) -> tuple[Doubles, Doubles]:
        """Means (N, W, S) and covariances (N, W, S, S)."""
        N, W, S = states.shape
        means, covariances = np.empty((N, W, S)), np.empty((N, W, S, S))
        expected, spread = np.empty((N, W, S)), np.empty((N, W, S, S))
        for t in range(W):
            if t == 0:
                expected[:, 0], spread[:, 0] = self.mean, self.covariance
            else:
                expected[:, t] = means[:, t - 1] @ self.A.T + pushed[:, t - 1]
                spread[:, t] = self.A @ covariances[:, t - 1] @ self.A.T + self.noise
            means[:, t], covariances[:, t] = _corrected(
                expected[:, t], spread[:, t], states[:, t], known[:, t]
            )
        for t in range(W - 2, -1, -1):
            # How much of what the next step turned out to be goes back to this one, (N, S, S).
            back = np.linalg.solve(spread[:, t + 1], self.A @ covariances[:, t]).swapaxes(1, 2)
            surprise = (means[:, t + 1] - expected[:, t + 1])[:, :, None]
            means[:, t] += (back @ surprise)[:, :, 0]
            change = covariances[:, t + 1] - spread[:, t + 1]
            covariances[:, t] += back @ change @ back.swapaxes(1, 2)
        return means, covariances


def _corrected(
    expected: Doubles, spread: Doubles, states: Doubles, known: BoolArray
) -> tuple[Doubles, Doubles]:
    """What is known of a step after its own sensors: (N, S) and (N, S, S).

    Rows of lost values are replaced by those of the identity, so that they correct nothing.
    """
    here = known[:, :, None] & known[:, None, :]
    identity = np.eye(known.shape[1])
    noisy = np.where(here, spread + SENSOR_NOISE * identity, identity)
    seen = np.where(known[:, :, None], spread, 0.0)  # (N, known, S)
    gain = np.linalg.solve(noisy, seen).swapaxes(1, 2)  # (N, S, known)
    surprise = np.where(known, states - expected, 0.0)[:, :, None]
    corrected = spread - gain @ seen
    return expected + (gain @ surprise)[:, :, 0], (corrected + corrected.swapaxes(1, 2)) / 2


def _not_last(episodes: TrajectoryDataset) -> NDArray[np.int64]:
    """All steps that another one of the same episode follows."""
    spans = zip(episodes.starts.tolist(), episodes.ends.tolist(), strict=True)
    return np.concatenate([np.arange(start, end - 1) for start, end in spans])
