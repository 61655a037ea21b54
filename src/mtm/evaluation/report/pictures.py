"""Pictures of a run, one function each; they return Matplotlib figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from mtm.core.names import VALIDATED
from mtm.data.modalities import Modality
from mtm.data.segments import Segments
from mtm.data.trajectories import TrajectoryDataset
from mtm.evaluation.open_loop import run_open_loop
from mtm.inference.engine import ask
from mtm.masks.capabilities import NAMED_MASKS, Question
from mtm.runs.run import Run

INK, TRUTH, PREDICTION, BASELINE = "#333333", "#7f7f7f", "#d9480f", "#1c7ed6"
HORIZON = 30
"""Steps of the open-loop prediction."""
SHOWN_STEPS = 80
"""Steps of a held-out episode that predictions are drawn for."""


def training_curves(rows: Sequence[Mapping[str, float]], modalities: Sequence[Modality]) -> Figure:
    """Losses of training, and held-out errors of the capabilities, against steps."""
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    for m in modalities:
        _curve(left, rows, f"loss/{m.name}", m.name)
    left.set_title("training loss, by modality")
    for name in (*VALIDATED, "fd_copy_last"):
        style = {"linestyle": "--", "color": TRUTH} if name == "fd_copy_last" else {}
        _curve(right, rows, f"val/{name}", name.replace("_", " "), **style)
    right.set_title("error on validation episodes, by capability")
    for axes in (left, right):
        axes.set_xlabel("steps")
        axes.set_yscale("log")
        if axes.lines:
            axes.legend(fontsize=8, frameon=False)
        _clean(axes)
    return figure


def capability(run: Run, held_out: TrajectoryDataset, name: str) -> Figure:
    """Prediction against truth along a held-out episode, and the mask under it."""
    T = run.model.config.segment_length
    question = NAMED_MASKS[name].question(run.modalities, T)
    wanted = [m for i, m in enumerate(run.modalities) if question.wanted[:, i].any()]
    episode = int(np.argmax(held_out.present_steps(wanted[0].name)))
    segments = Segments(held_out.subset([episode]), T)
    numbers = np.arange(min(len(segments), SHOWN_STEPS))
    batch = segments.gather(numbers)
    answers = ask(run, batch.values, question.visible & batch.present, [m.name for m in wanted])
    m, i = wanted[0], run.modalities.index(wanted[0])
    step = int(np.flatnonzero(question.wanted[:, i])[-1])
    guess = answers[m.name][:, step].reshape(len(numbers), -1)
    truth = batch.values[m.name][:, step].reshape(len(numbers), -1).astype(np.float64)
    known = batch.present[:, step, i]
    truth[~known] = np.nan  # no line where nothing was recorded
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    grid = figure.add_gridspec(2, 3, height_ratios=(2.4, 1))
    for column, feature in enumerate(_liveliest(truth[known] if known.any() else guess, 3)):
        axes = figure.add_subplot(grid[0, column])
        axes.plot(numbers + step, truth[:, feature], color=TRUTH, label="truth")
        axes.plot(numbers + step, guess[:, feature], color=PREDICTION, lw=1, label="prediction")
        axes.set_title(f"{m.name}[{feature}]", fontsize=9)
        axes.set_xlabel("step of the episode", fontsize=8)
        _clean(axes)
    figure.axes[0].legend(fontsize=8, frameon=False)
    draw_mask(figure.add_subplot(grid[1, :]), question, run.modalities)
    return figure


def draw_mask(axes: Axes, question: Question, modalities: Sequence[Modality]) -> None:
    """A mask as a row of boxes per modality: filled visible, ? wanted, empty hidden."""
    T, M = question.visible.shape
    for t in range(T):
        for i in range(M):
            shown, wanted = question.visible[t, i], question.wanted[t, i]
            face = BASELINE if shown else "white"
            axes.add_patch(
                _box(t, M - 1 - i, facecolor=face, edgecolor=PREDICTION if wanted else "#bbbbbb")
            )
            if wanted:
                axes.text(
                    t, M - 1 - i, "?", ha="center", va="center", color=PREDICTION, weight="bold"
                )
    axes.set_xlim(-0.6, max(T - 0.4, 12))
    axes.set_ylim(-0.6, M - 0.4)
    axes.set_yticks(range(M), [m.name for m in reversed(modalities)], fontsize=8)
    axes.set_xticks(range(T), [f"t={t}" for t in range(T)], fontsize=8)
    axes.set_aspect("equal", anchor="W")
    for side in axes.spines.values():
        side.set_visible(False)
    axes.tick_params(length=0)


def open_loop(run: Run, held_out: TrajectoryDataset, horizon: int = HORIZON) -> Figure | None:
    """Forward-dynamics error against how far ahead, beside copying the last state."""
    errors = run_open_loop(run, held_out, horizon)
    if errors is None:
        return None
    model, copied = errors
    figure = Figure(figsize=(5.5, 3.2), layout="constrained")
    axes = figure.subplots()
    ahead = np.arange(1, len(model) + 1)
    axes.plot(ahead, model, color=PREDICTION, label="model, open loop")
    axes.plot(ahead, copied, color=TRUTH, linestyle="--", label="copying the last state")
    axes.set_xlabel("steps ahead")
    axes.set_ylabel("squared error, normalised")
    axes.legend(fontsize=8, frameon=False)
    _clean(axes)
    return figure


def asked_and_got(tasks: Mapping[str, Any], *, discounted: bool = False) -> Figure | None:
    """Return against asked-for return, with cloning for comparison.

    Args:
        tasks: Of `mtm.evaluation.evaluate.evaluate`.
        discounted: What was asked for is, so that it does not compare with what was got.

    Returns:
        None where nothing was measured.
    """
    rcbc = tasks.get("rcbc")
    if not rcbc:
        return None
    rolls = [r for r in (rcbc["auto"], *rcbc["sweep"].values()) if r["return"]["mean"] is not None]
    if not rolls:
        return None
    rolls = sorted(rolls, key=lambda roll: roll["target"])
    asked = [roll["target"] for roll in rolls]
    got = [roll["return"]["mean"] for roll in rolls]
    stds = [roll["return"]["std"] for roll in rolls]
    figure = Figure(figsize=(5.5, 3.2), layout="constrained")
    axes = figure.subplots()
    axes.errorbar(asked, got, stds, color=PREDICTION, marker="o", capsize=3, label="got")
    if not discounted:
        ends = [min(asked), max(asked)]
        axes.plot(ends, ends, color=TRUTH, lw=1, label="asked")
    clone = tasks["bc"]["return"]["mean"] if tasks.get("bc") else None
    if clone is not None:
        axes.axhline(clone, color=BASELINE, linestyle="--", label="behaviour cloning")
    auto = rcbc["auto"]
    if auto in rolls:
        axes.plot(
            [auto["target"]], [auto["return"]["mean"]], "*", ms=14, color=INK, label="auto target"
        )
    axes.set_xlabel("discounted return asked for" if discounted else "return asked for")
    axes.set_ylabel("return, mean and standard deviation")
    axes.set_ylim(bottom=min(0, *(mean - std for mean, std in zip(got, stds, strict=True))))
    axes.legend(fontsize=8, frameon=False)
    _clean(axes)
    return figure


def _curve(
    axes: Axes, rows: Sequence[Mapping[str, float]], key: str, label: str, **style: Any
) -> None:
    points = [(row["step"], row[key]) for row in rows if key in row]
    if points:
        axes.plot(*zip(*points, strict=True), label=label, lw=1.2, **style)


def _liveliest(values: NDArray[Any], count: int) -> NDArray[np.int64]:
    """The features that change most, in their own order."""
    return np.sort(np.argsort(-values.std(axis=0))[:count])


def _box(x: float, y: float, **style: Any) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((x - 0.42, y - 0.42), 0.84, 0.84, lw=1.5, **style)


def _clean(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
