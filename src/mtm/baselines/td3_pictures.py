"""The learning curves of TD3's variants side by side, as a picture and as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mtm.baselines.td3_config import VARIANTS
from mtm.baselines.td3_curve import Curve, area, final_return, first_to_reach
from mtm.checkpoint import write_atomically
from mtm.collect.pictures import save

RAW = "raw"
COLORS = dict(zip(VARIANTS, ("#7f7f7f", "#74c0fc", "#1c7ed6", "#ffa94d", "#d9480f"), strict=True))

Variants = Mapping[str, Sequence[Curve]]
"""Variant -> a curve per seed."""


def draw(tasks: Mapping[str, Variants], out: Path) -> list[Path]:
    """Write a picture per task and a table of all.

    Args:
        tasks: Task -> variant -> a curve per seed.
        out: The directory to write to.

    Returns:
        The files: `representation-TASK.png` for each task, then `representation.md`.
    """
    out.mkdir(parents=True, exist_ok=True)
    files = []
    for task, variants in tasks.items():
        files.append(out / f"representation-{task}.png")
        save(learning_curves(task, variants), files[-1])
    files.append(out / "representation.md")
    write_atomically(files[-1], table(tasks).encode())
    return files


def learning_curves(task: str, variants: Variants) -> Figure:
    """Mean return over the seeds, with their spread, over updates and over seconds."""
    figure = Figure(figsize=(10, 3.8), layout="constrained")
    axes: tuple[Axes, Axes] = figure.subplots(1, 2, sharey=True)
    for name in [name for name in VARIANTS if name in variants]:
        curves = _same_length(variants[name])
        returns = np.array([[p.return_mean for p in curve] for curve in curves])  # (seeds, points)
        mean, std = returns.mean(axis=0), returns.std(axis=0)
        for ax, unit in zip(axes, ("updates", "seconds"), strict=True):
            x = np.mean([[getattr(p, unit) for p in curve] for curve in curves], axis=0)
            ax.plot(x, mean, color=COLORS[name], lw=1.4, label=name)
            ax.fill_between(x, mean - std, mean + std, color=COLORS[name], alpha=0.15, lw=0)
    for ax, unit in zip(axes, ("updates", "seconds"), strict=True):
        if RAW in variants:
            ax.axhline(_asymptote(variants[RAW]), color=COLORS[RAW], ls="--", lw=1)
        ax.set_xlabel(unit)
        ax.set_xlim(left=0)
        ax.spines[["top", "right"]].set_visible(False)
        ax.tick_params(labelsize=8)
    axes[0].set_ylabel("return")
    axes[0].set_title(f"{task}: mean and spread over seeds; dashed: where raw comes to", fontsize=9)
    axes[1].legend(fontsize=8, frameon=False)
    return figure


def table(tasks: Mapping[str, Variants]) -> str:
    """Area, final return, and what it takes to reach the raw agent's final return, as Markdown."""
    lines = [
        "| task | variant | seeds | area under the curve | final return | updates to raw's final "
        "return | seconds to it | ratio of updates, raw / variant |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for task, variants in tasks.items():
        target = _asymptote(variants[RAW]) if RAW in variants else float("nan")
        raw = _effort(variants.get(RAW, ()), target)[0]
        for name in [name for name in VARIANTS if name in variants]:
            curves = variants[name]
            updates, seconds = _effort(curves, target)
            cells = [
                task,
                name,
                str(len(curves)),
                _spread([area(curve) for curve in curves]),
                _spread([final_return(curve) for curve in curves]),
                "not reached" if updates is None else f"{updates:,.0f}",
                "not reached" if seconds is None else f"{seconds:,.0f}",
                "" if updates is None or raw is None else f"{raw / updates:.2f}",
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _asymptote(curves: Sequence[Curve]) -> float:
    return float(np.mean([final_return(curve) for curve in curves]))


def _effort(curves: Sequence[Curve], target: float) -> tuple[float | None, float | None]:
    """Mean updates and seconds until a return; None unless every seed reaches it."""
    reached = [first_to_reach(curve, target) for curve in curves]
    points = [point for point in reached if point is not None]
    if not points or len(points) < len(reached):
        return None, None
    return (
        float(np.mean([point.updates for point in points])),
        float(np.mean([point.seconds for point in points])),
    )


def _spread(values: Sequence[float]) -> str:
    return f"{np.mean(values):,.0f} ± {np.std(values):,.0f}"


def _same_length(curves: Sequence[Curve]) -> list[Curve]:
    """As many points of each as the shortest has, so that seeds can be averaged."""
    shortest = min(len(curve) for curve in curves)
    return [curve[:shortest] for curve in curves]
