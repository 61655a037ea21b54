"""Bars with a dot for every seed, curves with bands, intervals and performance profiles, as PNG."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import nan
from pathlib import Path
from typing import Any

from mtm.core.errors import require
from mtm.research import figures
from mtm.research.experiments.over_seeds import Number
from mtm.research.statistics import Estimate

OF_NAME = {"MTM": "#1c7ed6", "S-MTM": "#d9480f", "MLP": "#7f7f7f", "Heteromodal MTM": "#2b8a3e"}
"""What is in several pictures has one colour in all of them."""

MOST_LETTERS = 60
"""Of the names below the bars of all panels; longer ones would lie over each other."""

MOST_TICKS = 10
TICKS = (1, 2, 5, 10, 20, 50, 100)
"""Places of ticks on a logarithmic scale with many points."""

COLOURS = ("#862e9c", "#e67700", "#0b7285", "#a61e4d", "#5c940d", "#364fc7", "#495057", "#c2255c")
"""For all others, in order."""


def bars(
    file: Path,
    panels: Mapping[str, Mapping[str, Mapping[str, Number | None]]],
    *,
    ylabel: str,
    xlabel: str = "",
    log: bool = False,
) -> str:
    """Grouped bars: panel -> group -> series -> number. Returns the name of the file.

    Args:
        file: Where to.
        panels: A bar is as high as the mean of its number; each of its values is a dot. On a
            logarithmic scale only the top of a bar is drawn.
        ylabel: Of all panels.
        xlabel: Of all panels.
        log: Whether heights are drawn on a logarithmic scale.
    """
    figure, axes = _figure(len(panels))
    every = [group for groups in panels.values() for group in groups.values()]
    measured = {name for group in every for name, number in group.items() if number}
    for ax, (title, groups) in zip(axes, panels.items(), strict=True):
        named = dict.fromkeys(name for group in groups.values() for name in group)
        series = [name for name in named if name in measured]  # no room for those without a number
        width, colours = 0.8 / max(len(series), 1), _colours(series)
        for i, name in enumerate(series):
            numbers = [group.get(name) for group in groups.values()]
            places = [g + (i - (len(series) - 1) / 2) * width for g in range(len(groups))]
            heights = [n.mean if n else nan for n in numbers]
            if log:  # a bar would begin nowhere
                left, right = ([x + side * width * 0.45 for x in places] for side in (-1, 1))
                ax.hlines(heights, left, right, color=colours[name], lw=4, label=name)
            else:
                ax.bar(places, heights, width * 0.9, color=colours[name], label=name)
            dots = [(x, y) for x, n in zip(places, numbers, strict=True) if n for y in n.values]
            ax.plot([x for x, _ in dots], [y for _, y in dots], "o", color="#212529", ms=2.5)
        slant = sum(map(len, groups)) > MOST_LETTERS / len(panels)
        how = {"rotation": 20, "ha": "right"} if slant else {}
        ax.set_xticks(range(len(groups)), list(groups), fontsize=8, **how)
        ax.set_xlabel(xlabel, fontsize=8)
        if log and any(n for group in groups.values() for n in group.values()):
            ax.set_yscale("log", subs=())  # a tick at 1, 2 and 5 of each decade
            ax.yaxis.set_major_locator(_ticker().LogLocator(subs=(1, 2, 5)))
            ax.yaxis.set_major_formatter("{x:g}")
        _finish(ax, title, ylabel)
    return _save(figure, file)


def lines(
    file: Path,
    panels: Mapping[str, Mapping[str, Sequence[tuple[float, Number]]]],
    *,
    xlabel: str,
    ylabel: str,
    log: bool = False,
    log_y: bool = False,
    levels: Mapping[str, float] | None = None,
) -> str:
    """Curves with bands: panel -> series -> points. Returns the name of the file.

    Args:
        file: Where to.
        panels: Points are (x, number).
        xlabel: Of all panels.
        ylabel: Of all panels.
        log: Whether x is drawn on a logarithmic scale.
        log_y: Whether heights are; bands then end at a tenth of the mean.
        levels: Panel -> height of a dashed line.
    """
    figure, axes = _figure(len(panels))
    for ax, (title, series) in zip(axes, panels.items(), strict=True):
        colours = _colours(series)
        for name, points in series.items():
            if not points:
                continue
            xs = [x for x, _ in points]
            means = [n.mean for _, n in points]
            stds = [n.std or 0.0 for _, n in points]
            colour = colours[name]
            ax.plot(xs, means, color=colour, marker="o", ms=3, lw=1.2, label=name)
            least = [m / 10 if log_y else m - s for m, s in zip(means, stds, strict=True)]
            low = [max(m - s, x) for m, s, x in zip(means, stds, least, strict=True)]
            high = [m + s for m, s in zip(means, stds, strict=True)]
            ax.fill_between(xs, low, high, color=colour, alpha=0.15, lw=0)
        if levels and title in levels:
            ax.axhline(levels[title], color="#333333", ls="--", lw=1)
        if log and ax.lines:  # an empty panel has no logarithm
            xs = sorted({x for points in series.values() for x, _ in points})
            ax.set_xscale("log", subs=())
            ax.set_xticks(xs if len(xs) < MOST_TICKS else [x for x in TICKS if x in xs])
            ax.xaxis.set_major_formatter("{x:g}")
        if log_y and ax.lines:
            ax.set_yscale("log")
        ax.set_xlabel(xlabel, fontsize=8)
        _finish(ax, title, ylabel)
    return _save(figure, file)


def intervals(file: Path, estimates: Mapping[str, Estimate], *, xlabel: str) -> str:
    """A dot with its interval for each name, below each other. Returns the name of the file."""
    figure, (ax,) = _figure(1)
    figure.set_figheight(max(0.26 * len(estimates) + 1.0, 2.0))
    colours = _colours(estimates)
    for place, (name, found) in enumerate(estimates.items()):
        if found.interval is not None:
            ax.plot(found.interval, (place, place), color=colours[name], lw=5, alpha=0.35)
        ax.plot(found.value, place, "o", color=colours[name], ms=5)
    ax.set_yticks(range(len(estimates)), list(estimates))
    ax.invert_yaxis()
    ax.grid(axis="x", lw=0.4, alpha=0.5)
    ax.set_xlabel(xlabel, fontsize=8)
    _finish(ax, "", "")
    return _save(figure, file)


def profiles(
    file: Path, levels: Sequence[float], shares: Mapping[str, Sequence[float]], *, xlabel: str
) -> str:
    """The share of runs above each level, a curve for each name. Returns the name of the file."""
    figure, (ax,) = _figure(1)
    colours = _colours(shares)
    others = [name for name in shares if name not in OF_NAME]
    for name, heights in shares.items():
        turn = 0 if name in OF_NAME else others.index(name) // len(COLOURS)
        style = {"ls": ("-", "--", ":")[turn % 3], "lw": 2.4 if name in OF_NAME else 1.2}
        ax.plot(levels, heights, color=colours[name], label=name, **style)
    ax.set_ylim(-0.02, 1.02)
    ax.set_xlabel(xlabel, fontsize=8)
    _finish(ax, "performance profile", "share of runs above")
    return _save(figure, file)


def _colours(names: Iterable[str]) -> dict[str, str]:
    others = iter(COLOURS * 4)
    return {name: OF_NAME.get(name) or next(others) for name in names}


def _ticker() -> Any:
    return require("matplotlib.ticker", extra="report")


def _figure(panels: int) -> tuple[Any, list[Any]]:
    figure_class = require("matplotlib.figure", extra="report").Figure
    figure = figure_class(figsize=(max(4.2 * panels, 4.2) + 1.6, 3.4), layout="constrained")
    return figure, list(figure.subplots(1, max(panels, 1), squeeze=False)[0][:panels])


def _finish(ax: Any, title: str, ylabel: str) -> None:
    ax.set_title(title, fontsize=9)
    ax.set_ylabel(ylabel, fontsize=8)
    ax.tick_params(labelsize=8)
    ax.spines[["top", "right"]].set_visible(False)


def _save(figure: Any, file: Path) -> str:
    """One legend for all panels, beside them, so that it hides nothing."""
    named: dict[str, Any] = {}
    for ax in figure.axes:
        handles, labels = ax.get_legend_handles_labels()
        named |= dict(zip(labels, handles, strict=True))
    if named:
        where = "outside right upper"
        figure.legend(list(named.values()), list(named), loc=where, fontsize=7, frameon=False)
    figures.save(figure, file, dpi=120)
    return file.name
