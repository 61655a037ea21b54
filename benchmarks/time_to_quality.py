"""How long until an error or a score is reached: our defaults against the original's recipe.

    python -m benchmarks.time_to_quality --data FILE

Both train in this project's loop, on the same split, at the size of the `cpu` preset; ours for as
long as that says. Scores are those of return-conditioned acting, of checkpoints on the way; acting
does not count as time. The recipe of the original: one mask per batch, drawn as it draws them, its
learning rate, share of warm-up steps, weight decay and dropout, and states predicted as they are
instead of as changes.
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

from mtm.control import policies
from mtm.control.rollout import rollout
from mtm.control.scores import score
from mtm.core.config import OptimizerConfig, TrainConfig, preset
from mtm.core.names import PREDICTION_TASKS
from mtm.data.environment_ids import matching_environment
from mtm.data.modalities import BoolArray, Modality
from mtm.masks import MaskFunction
from mtm.masks.training_masks import WEIGHTS
from mtm.research.experiments.provenance import here
from mtm.runs import checkpoint
from mtm.runs.run import load_run
from mtm.training.trackers import read_metrics
from mtm.training.train import train

VISIBLE = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 1.0)
"""The shares that the original leaves visible."""
WARMUP_SHARE = 40 / 140
LOWER_IS_BETTER = {"fd": True, "id": True, "rcbc": False}
TITLES = {"fd": "held-out fd error", "id": "held-out id error", "rcbc": "score of RCBC at `auto`"}
ACT_EVERY = 250
"""Steps between the checkpoints that act."""
OURS, ORIGINAL = "ours", "the original's recipe"
COLORS = {OURS: "#d9480f", ORIGINAL: "#1c7ed6"}

Curve = list[dict[str, float]]


def main() -> None:
    """Train both, let checkpoints act, say when each reached each level, and draw the curves."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", required=True)
    parser.add_argument("--out", type=Path, default=Path("runs/time-to-quality"))
    parser.add_argument("--steps", type=int, default=4000, help="of the original's recipe")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fd", type=float, nargs="*", default=[0.06, 0.04, 0.03, 0.02])
    parser.add_argument("--id", type=float, nargs="*", default=[0.6, 0.5, 0.4, 0.3])
    parser.add_argument("--rcbc", type=float, nargs="*", default=[60.0, 80.0, 95.0, 110.0])
    parser.add_argument("--episodes", type=int, default=10, help="of every checkpoint; 0: none")
    arguments = parser.parse_args()
    console = Console(highlight=False)
    curves: dict[str, Curve] = {}
    for name, (config, mask) in _recipes(arguments.steps, arguments.seed).items():
        console.print(f"training with {name} ...")
        folder = arguments.out / name.replace(" ", "-").replace("'", "")
        train(arguments.data, config, folder, mask=mask, overwrite=True)
        curves[name] = _curve(folder)
        if arguments.episodes:
            console.print("acting ...")
            _add_scores(curves[name], folder, arguments.episodes)
    levels = {"fd": arguments.fd, "id": arguments.id}
    levels |= {"rcbc": arguments.rcbc} if arguments.episodes else {}
    reached = [
        _reached(curves, what, level)
        for what, told in levels.items()
        for level in (*told, _best(curves[ORIGINAL], what))
    ]
    console.print(_table(reached))
    _picture(curves, list(levels)).savefig(arguments.out / "time_to_quality.png", dpi=110)
    result = {"levels": reached, "curves": curves, "about": here()}
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
        preset("cpu"),
        seed=seed,
        validate_every=25,
        validation_segments=1024,
        checkpoint_every=ACT_EVERY,
        keep_checkpoints=1000,
    )
    theirs = replace(
        ours,
        steps=steps,
        model=replace(ours.model, dropout=0.1, residual=False, predict_variance=False),
        optimizer=OptimizerConfig(
            name="adamw",
            learning_rate=1e-4,
            warmup_steps=round(WARMUP_SHARE * steps),
            weight_decay=0.005,
            clip_norm=0.0,
        ),
    )
    return {OURS: (ours, None), ORIGINAL: (theirs, original_mask)}


def _curve(folder: Path) -> Curve:
    """Step, seconds and held-out errors of every validation."""
    rows = read_metrics(folder / "metrics.csv")
    return [
        {
            "step": row["step"],
            "seconds": row["seconds"],
            **{e: row[f"val/{e}"] for e in PREDICTION_TASKS},
        }
        for row in rows
        if "val/fd" in row
    ]


def _add_scores(curve: Curve, folder: Path, episodes: int) -> None:
    """Add the mean score of return-conditioned acting to the rows that have a checkpoint."""
    steps = checkpoint.steps(folder / "checkpoints")
    acting = {str(s): policies.return_conditioned(load_run(folder, s)) for s in steps}
    env_id = matching_environment(load_run(folder).description.metadata)
    if env_id is None:
        raise SystemExit("the data name no environment to act in: use --episodes 0")
    earned = rollout(acting, env_id, episodes=episodes)
    for row in curve:
        if int(row["step"]) in steps:
            scores = score(env_id, earned[str(int(row["step"]))].returns)
            row["rcbc"] = float(np.mean(scores))  # type: ignore[arg-type]


def _best(curve: Curve, what: str) -> float:
    choose = min if LOWER_IS_BETTER[what] else max
    return choose(row[what] for row in curve if what in row)


def _reached(curves: dict[str, Curve], what: str, level: float) -> dict[str, Any]:
    """Step and seconds of the first row that has a level; None if there is none."""
    sign = 1 if LOWER_IS_BETTER[what] else -1
    first = {
        name: next((r for r in curve if what in r and sign * r[what] <= sign * level), None)
        for name, curve in curves.items()
    }
    when = {
        name: row and {"step": row["step"], "seconds": row["seconds"]}
        for name, row in first.items()
    }
    return {"what": what, "level": level, **when}


def _table(reached: Sequence[Mapping[str, Any]]) -> Table:
    table = Table("what", "level", OURS, ORIGINAL, "times faster", box=SIMPLE_HEAD)
    for row in reached:
        ours, theirs = row[OURS], row[ORIGINAL]
        cells = [
            "not reached" if when is None else f"{when['seconds']:.1f} s, step {when['step']:.0f}"
            for when in (ours, theirs)
        ]
        times = f"{theirs['seconds'] / ours['seconds']:.1f}" if ours and theirs else ""
        table.add_row(row["what"], f"{row['level']:.3g}", *cells, times)
    return table


def _picture(curves: dict[str, Curve], shown: Sequence[str]) -> Figure:
    figure = Figure(figsize=(4.2 * len(shown), 3.2), layout="constrained")
    for axes, what in zip(figure.subplots(1, len(shown)), shown, strict=True):
        for name, curve in curves.items():
            points = [(row["seconds"], row[what]) for row in curve if what in row]
            axes.plot(*zip(*points, strict=True), color=COLORS[name], label=name)
        axes.set_title(TITLES[what])
        axes.set_xlabel("seconds")
        if LOWER_IS_BETTER[what]:  # errors; a score is drawn as it is
            axes.set_xscale("log")
            axes.set_yscale("log")
        axes.legend(fontsize=8, frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
    return figure


if __name__ == "__main__":
    main()
