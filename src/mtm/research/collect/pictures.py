"""Pictures of a collection."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from mtm.research.collect.agents import Snapshot, Trained
    from mtm.research.collect.coverage import Coverage

LINE, CHOSEN, QUIET = "#1c7ed6", "#d9480f", "#7f7f7f"


def learning_curve(env_id: str, trained: Trained, expert: Snapshot, medium: Snapshot) -> Figure:
    """Return of the snapshots against steps, with the chosen ones marked."""
    figure = Figure(figsize=(6, 3.4), layout="constrained")
    axes = figure.subplots()
    steps = [s.step for s in trained.snapshots]
    axes.plot(steps, [s.mean_return for s in trained.snapshots], color=LINE, marker=".", lw=1.2)
    axes.axhline(trained.random_return, color=QUIET, linestyle="--", lw=1)
    axes.annotate("random", (0, trained.random_return), color=QUIET, fontsize=8, va="bottom")
    for name, chosen in (("medium", medium), ("expert", expert)):
        axes.plot(chosen.step, chosen.mean_return, "*", color=CHOSEN, ms=12)
        axes.annotate(
            name,
            (chosen.step, chosen.mean_return),
            xytext=(0, 8),
            textcoords="offset points",
            ha="center",
            fontsize=8,
        )
    axes.set_title(f"{env_id}: return of the agent while it learned", fontsize=9)
    axes.set_xlabel("steps")
    axes.set_ylabel("mean return")
    axes.margins(y=0.15)
    axes.set_xlim(left=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
    return figure


def coverage_maps(title: str, explored: Coverage, random: Coverage) -> Figure:
    """Where the explorer has been, beside random actions, on the same grid."""
    figure = Figure(figsize=(8.6, 3.6), layout="constrained")
    both = figure.subplots(1, 2, sharex=True, sharey=True)
    most = max(explored.counts.max(), random.counts.max(), 2)
    for axes, name, coverage in zip(
        both, (title, "random actions"), (explored, random), strict=True
    ):
        grid = coverage.grid
        visited = np.ma.masked_equal(coverage.counts.T, 0)
        colours = axes.pcolormesh(
            *grid.edges, visited, norm=LogNorm(1, most), cmap="viridis", rasterized=True
        )
        axes.set_title(
            f"{name}: {coverage.cells:,} cells, entropy {coverage.entropy:.2f}", fontsize=9
        )
        axes.set_xlabel(grid.names[0], fontsize=8)
        axes.set_ylabel(grid.names[1], fontsize=8)
        axes.tick_params(labelsize=8)
    bar = figure.colorbar(colours, ax=both)
    bar.set_label("visits of a cell", fontsize=8)
    bar.ax.tick_params(labelsize=8)
    return figure
