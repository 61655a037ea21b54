"""How long until a held-out error is reached: our defaults against the original's recipe.

    python -m benchmarks.time_to_quality --data FILE

Both train in this project's loop, on the same split, at the size of the `cpu` preset. The recipe of
the original: one mask per batch, drawn as it draws them, its learning rate, share of warm-up steps,
weight decay and dropout, and states predicted as they are instead of as changes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from mtm import policies
from mtm.config import OptimizerConfig, TrainConfig, preset
from mtm.masks import WEIGHTS, MaskFunction
from mtm.modalities import BoolArray, Modality
from mtm.rollout import rollout
from mtm.run import Run
from mtm.scores import matching_environment, score
from mtm.trackers import read_metrics
from mtm.training import train

VISIBLE = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 1.0)
"""The shares that the original leaves visible."""
WARMUP_SHARE = 40 / 140
ERRORS = ("fd", "id")
OURS, ORIGINAL = "ours", "the original's recipe"
COLORS = {OURS: "#d9480f", ORIGINAL: "#1c7ed6"}

Curve = list[dict[str, float]]


def main() -> None:
    """Train both, say when each reached each level, and draw the curves."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", required=True)
    parser.add_argument("--out", type=Path, default=Path("runs/time-to-quality"))
    parser.add_argument("--steps", type=int, default=4000, help="of each")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fd", type=float, nargs="*", default=[0.06, 0.04, 0.03, 0.02])
    parser.add_argument("--id", type=float, nargs="*", default=[0.6, 0.5, 0.4, 0.3])
    parser.add_argument("--episodes", type=int, default=20, help="of RCBC at the end; 0: none")
    arguments = parser.parse_args()
    console = Console(highlight=False)
    curves: dict[str, Curve] = {}
    scores: dict[str, float] = {}
    for name, (config, mask) in _recipes(arguments.steps, arguments.seed).items():
        console.print(f"training with {name} ...")
        folder = arguments.out / name.replace(" ", "-").replace("'", "")
        run = train(arguments.data, config, folder, mask=mask, overwrite=True)
        rows = read_metrics(folder / "metrics.csv")
        curves[name] = [row for row in rows if "val/fd" in row]
        if arguments.episodes:
            scores[name] = _score(run, arguments.episodes)
    levels = {"fd": arguments.fd, "id": arguments.id}
    for error in ERRORS:  # and the best that the original's recipe gets
        levels[error] = [*levels[error], min(row[f"val/{error}"] for row in curves[ORIGINAL])]
    reached = [_reached(curves, error, level) for error in ERRORS for level in levels[error]]
    console.print(_table(reached, scores))
    _picture(curves).savefig(arguments.out / "time_to_quality.png", dpi=110)
    result = {"levels": reached, "rcbc": scores, "curves": curves}
    (arguments.out / "time_to_quality.json").write_text(json.dumps(result, indent=2))
    console.print(str(arguments.out))


def original_mask(
    modalities: Sequence[Modality], segment_length: int, batch_size: int, rng: np.random.Generator
) -> BoolArray:
    """One mask for the whole batch, as the original draws it.

    Each modality has a share of its own, rounded down to a number of steps; then a modality and a
    time are drawn, and that token and all after it are hidden.
    """
    T, M = segment_length, len(modalities)
    visible = np.zeros((T, M), bool)
    for m in range(M):
        visible[rng.permutation(T)[: int(T * rng.choice(VISIBLE))], m] = True
    chance = np.array([WEIGHTS[modality.role] for modality in modalities])
    first_hidden = rng.integers(T) * M + rng.choice(M, p=chance / chance.sum())
    visible &= np.arange(T * M).reshape(T, M) < first_hidden
    return np.repeat(visible[None], batch_size, axis=0)


def _recipes(steps: int, seed: int) -> dict[str, tuple[TrainConfig, MaskFunction | None]]:
    ours = replace(
        preset("cpu"), steps=steps, seed=seed, validate_every=25, validation_segments=1024
    )
    theirs = replace(
        ours,
        model=replace(ours.model, dropout=0.1, residual=False, spread=False),
        optimizer=OptimizerConfig(
            name="adamw",
            learning_rate=1e-4,
            warmup_steps=round(WARMUP_SHARE * steps),
            weight_decay=0.005,
            clip_norm=0.0,
        ),
    )
    return {OURS: (ours, None), ORIGINAL: (theirs, original_mask)}


def _score(run: Run, episodes: int) -> float:
    """Mean normalised score of return-conditioned acting at the `auto` target."""
    env_id = matching_environment(run.description.metadata)
    if env_id is None:
        raise SystemExit("the data name no environment to act in: use --episodes 0")
    episodes_of = rollout({"rcbc": policies.return_conditioned(run)}, env_id, episodes=episodes)
    return float(np.mean(score(env_id, episodes_of["rcbc"].returns)))  # type: ignore[arg-type]


def _reached(curves: dict[str, Curve], error: str, level: float) -> dict[str, Any]:
    """Step and seconds of the first validation at or below a level; None if there is none."""
    first = {
        name: next((row for row in curve if row[f"val/{error}"] <= level), None)
        for name, curve in curves.items()
    }
    when = {
        name: row and {"step": row["step"], "seconds": row["seconds"]}
        for name, row in first.items()
    }
    return {"error": error, "level": level, **when}


def _table(reached: Sequence[Mapping[str, Any]], scores: Mapping[str, float]) -> Table:
    table = Table("error", "level", OURS, ORIGINAL, "times faster", box=SIMPLE_HEAD)
    for row in reached:
        ours, theirs = row[OURS], row[ORIGINAL]
        cells = [
            "not reached" if when is None else f"{when['seconds']:.0f} s, step {when['step']}"
            for when in (ours, theirs)
        ]
        times = f"{theirs['seconds'] / ours['seconds']:.1f}" if ours and theirs else ""
        table.add_row(row["error"], f"{row['level']:.3g}", *cells, times)
    if scores:
        table.add_row("rcbc score", "", *(f"{scores[n]:.1f}" for n in (OURS, ORIGINAL)), "")
    return table


def _picture(curves: dict[str, Curve]) -> Figure:
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    for axes, error in zip(figure.subplots(1, len(ERRORS)), ERRORS, strict=True):
        for name, curve in curves.items():
            seconds = [row["seconds"] for row in curve]
            errors = [row[f"val/{error}"] for row in curve]
            axes.plot(seconds, errors, color=COLORS[name], label=name)
        axes.set_title(f"held-out {error} error")
        axes.set_xlabel("seconds")
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.legend(fontsize=8, frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
    return figure


if __name__ == "__main__":
    main()
