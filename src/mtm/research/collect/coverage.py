"""How much of the state space was visited: cells of a grid over two quantities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

CELLS = 40
"""Along each side of the grid."""

OUTSIDE = 0.1
"""Percent of the pooled states beyond each edge of the grid; they count to its outermost cells."""

NAMED_MASKS = {"dmc:walker": {"torso height": 14, "horizontal velocity": 16}}
"""Quantities to draw, and where they are in an observation, by the beginning of the id."""


@dataclass(frozen=True)
class Grid:
    """A map from observations to two numbers, and the cells that these fall into.

    Attributes:
        names: Of the two numbers.
        mean: Subtracted from an observation, (size,).
        axes: Then multiplied with it, (size, 2).
        edges: Of the cells, (2, CELLS + 1).
    """

    names: tuple[str, str]
    mean: NDArray[Any]
    axes: NDArray[Any]
    edges: NDArray[Any]


@dataclass(frozen=True)
class Coverage:
    """Visits of each cell, (CELLS, CELLS), on a grid."""

    grid: Grid
    counts: NDArray[Any]

    @property
    def cells(self) -> int:
        """Cells that were visited at all."""
        return int((self.counts > 0).sum())

    @property
    def entropy(self) -> float:
        """Of the visits, in nats: log(cells) if all were visited alike."""
        shares = self.counts[self.counts > 0] / self.counts.sum()
        return float(-(shares * np.log(shares)).sum())


def make_grid(env_id: str, states: NDArray[Any]) -> Grid:
    """The grid that fits states, (N, size): known quantities, else two principal components."""
    size = states.shape[1]
    known = next((q for start, q in NAMED_MASKS.items() if env_id.startswith(start)), None)
    if known is not None:
        names = tuple(known)
        mean, axes = np.zeros(size), np.eye(size)[:, list(known.values())]
    else:
        names = ("first principal component", "second principal component")
        mean, std = states.mean(axis=0), states.std(axis=0).clip(1e-6)
        _, vectors = np.linalg.eigh(np.cov((states - mean).T / std[:, None]).reshape(size, size))
        axes = np.zeros((size, 2))
        axes[:, : min(size, 2)] = (vectors[:, ::-1] / std[:, None])[:, :2]
    points = (states - mean) @ axes
    low, high = np.percentile(points, (OUTSIDE, 100 - OUTSIDE), axis=0)
    high = np.where(high > low, high, low + 1)
    edges = np.linspace(low, high, CELLS + 1, axis=1)
    return Grid((names[0], names[1]), mean, axes, edges)


def measure(grid: Grid, states: NDArray[Any]) -> Coverage:
    """Count the states, (N, size), in each cell."""
    points = (states - grid.mean) @ grid.axes
    places = [
        np.digitize(points[:, i], grid.edges[i][1:-1]) for i in range(2)
    ]  # each in [0, CELLS)
    counts = np.zeros((CELLS, CELLS), np.int64)
    np.add.at(counts, (places[0], places[1]), 1)
    return Coverage(grid, counts)
