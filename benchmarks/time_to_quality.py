"""How long until an error or a score is reached: our defaults against the original's recipe.

    python -m benchmarks.time_to_quality --data FILE

Both train in this project's loop, on the same split, at the size of the `cpu` preset; ours for as
long as that says. Scores are those of return-conditioned acting, of checkpoints on the way; acting
does not count as time. The recipe of the original is the preset `paper` in all but the size, with
its share of warm-up steps. It is trained with several learning rates, its own among them, and each
level counts as reached when the first of these trainings reaches it.

Levels of forward dynamics are shares of the error of copying the last state. Others say nothing:
with our defaults, an untrained network copies it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
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
from mtm.core.config import TrainConfig, preset
from mtm.core.names import PREDICTION_TASKS
from mtm.data.environment_ids import matching_environment
from mtm.research.experiments.provenance import here
from mtm.runs import checkpoint
from mtm.runs.run import load_run
from mtm.training.trackers import read_metrics
from mtm.training.train import train

RATES = (1e-4, 3e-4, 1e-3, 3e-3)
"""Learning rates of the original's recipe; the first is its own, made for 140,000 steps."""
WARMUP_SHARE = 40 / 140
LOWER_IS_BETTER = {"fd": True, "id": True, "rcbc": False}
TITLES = {"fd": "held-out fd error", "id": "held-out id error", "rcbc": "score of RCBC at `auto`"}
ACT_EVERY = 250
"""Steps between the checkpoints that act."""
OURS, ORIGINAL = "ours", "the original's recipe"
COLORS = {OURS: "#d9480f", ORIGINAL: "#1c7ed6"}
COPYING = "fd_copy_last"
"""The error of repeating the last visible state."""

Curve = list[dict[str, float]]


def main() -> None:
    """Train all, let checkpoints act, say when each reached each level, and draw the curves."""
    arguments = _arguments()
    console = Console(highlight=False)
    curves: dict[str, dict[str, Curve]] = {OURS: {}, ORIGINAL: {}}
    for whose, recipes in _recipes(arguments.steps, arguments.seed, arguments.rates).items():
        for name, config in recipes.items():
            console.print(f"training with {whose}, {name} ...")
            folder = arguments.out / f"{whose}, {name}".replace(" ", "-").replace("'", "")
            train(arguments.data, config, folder, overwrite=True)
            curves[whose][name] = _curve(folder)
            if arguments.episodes:
                console.print("acting ...")
                _add_scores(curves[whose][name], folder, arguments.episodes)
    (ours,) = curves[OURS].values()
    copying = ours[0][COPYING]
    levels = {"fd": [share * copying for share in arguments.fd], "id": arguments.id}
    levels |= {"rcbc": arguments.rcbc} if arguments.episodes else {}
    reached = [_reached(curves, what, level) for what, told in levels.items() for level in told]
    reached += [_reached(curves, what, best) for what, best in _bests(curves, levels, copying)]
    console.print(f"copying the last state has an error of {copying:.4f}")
    console.print(_table(reached))
    _picture(curves, list(levels), copying).savefig(arguments.out / "time_to_quality.png", dpi=110)
    result = {"levels": reached, "copying": copying, "curves": curves, "about": here()}
    (arguments.out / "time_to_quality.json").write_text(json.dumps(result, indent=2))
    console.print(str(arguments.out))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", required=True)
    parser.add_argument("--out", type=Path, default=Path("runs/time-to-quality"))
    parser.add_argument("--steps", type=int, default=4000, help="of the original's recipe")
    parser.add_argument("--rates", type=float, nargs="+", default=RATES, help="of it")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--fd", type=_share, nargs="*", default=[0.7, 0.5, 0.3, 0.15], help="shares of copying"
    )
    parser.add_argument("--id", type=float, nargs="*", default=[0.6, 0.5, 0.4, 0.3])
    parser.add_argument("--rcbc", type=float, nargs="*", default=[60.0, 80.0, 95.0, 110.0])
    parser.add_argument("--episodes", type=int, default=10, help="of every checkpoint; 0: none")
    return parser.parse_args()


def _share(text: str) -> float:
    """A level of `fd`: better than copying the last state."""
    if not 0 < float(text) < 1:
        raise argparse.ArgumentTypeError(f"a share of the error of copying, below 1, got {text}")
    return float(text)


def _recipes(steps: int, seed: int, rates: Sequence[float]) -> dict[str, dict[str, TrainConfig]]:
    """Whose -> learning rate -> settings."""
    looks = {"validate_every": 25, "validation_segments": 1024, "checkpoint_every": ACT_EVERY}
    ours = replace(preset("cpu"), seed=seed, keep_checkpoints=1000, **looks)
    paper = preset("paper")
    theirs = {
        f"{rate:g}": replace(
            paper,
            **{"seed": seed, "steps": steps, "batch_size": ours.batch_size},
            **{"keep_checkpoints": 1000, **looks},
            model=replace(paper.model, width=ours.model.width),
            optimizer=replace(
                paper.optimizer, learning_rate=rate, warmup_steps=round(WARMUP_SHARE * steps)
            ),
        )
        for rate in rates
    }
    return {OURS: {f"{ours.optimizer.learning_rate:g}": ours}, ORIGINAL: theirs}


def _curve(folder: Path) -> Curve:
    """Step, seconds and held-out errors of every validation."""
    rows = read_metrics(folder / "metrics.csv")
    return [
        {
            "step": row["step"],
            "seconds": row["seconds"],
            **{e: row[f"val/{e}"] for e in (*PREDICTION_TASKS, COPYING)},
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


def _bests(
    curves: Mapping[str, Mapping[str, Curve]], levels: Mapping[str, Any], copying: float
) -> Iterator[tuple[str, float]]:
    """What the original's recipe reached at best; of `fd` only if it is better than copying."""
    for what in levels:
        choose = min if LOWER_IS_BETTER[what] else max
        rows = [row for curve in curves[ORIGINAL].values() for row in curve if what in row]
        best = choose(row[what] for row in rows)
        if what != "fd" or best < copying:
            yield what, best


def _reached(curves: Mapping[str, Mapping[str, Curve]], what: str, level: float) -> dict[str, Any]:
    """The soonest row of any learning rate that has a level; None if there is none."""
    sign = 1 if LOWER_IS_BETTER[what] else -1
    when: dict[str, Any] = {}
    for whose, by_rate in curves.items():
        rows = [
            {"step": row["step"], "seconds": row["seconds"], "rate": rate}
            for rate, curve in by_rate.items()
            for row in curve
            if what in row and sign * row[what] <= sign * level
        ]
        when[whose] = min(rows, key=lambda row: row["seconds"], default=None)
    return {"what": what, "level": level, **when}


def _table(reached: Sequence[Mapping[str, Any]]) -> Table:
    table = Table("what", "level", OURS, ORIGINAL, "times faster", box=SIMPLE_HEAD)
    for row in reached:
        ours, theirs = row[OURS], row[ORIGINAL]
        cells = [
            "not reached"
            if when is None
            else f"{when['seconds']:.1f} s, step {when['step']:.0f}, rate {when['rate']}"
            for when in (ours, theirs)
        ]
        times = f"{theirs['seconds'] / ours['seconds']:.1f}" if ours and theirs else ""
        table.add_row(row["what"], f"{row['level']:.3g}", *cells, times)
    return table


def _picture(
    curves: Mapping[str, Mapping[str, Curve]], shown: Sequence[str], copying: float
) -> Figure:
    figure = Figure(figsize=(4.2 * len(shown), 3.2), layout="constrained")
    for axes, what in zip(figure.subplots(1, len(shown)), shown, strict=True):
        for whose, by_rate in curves.items():
            for i, (rate, curve) in enumerate(by_rate.items()):
                points = [(row["seconds"], row[what]) for row in curve if what in row]
                shade = 1 - 0.6 * i / max(len(by_rate), 1)
                label = f"{whose}, rate {rate}"
                axes.plot(*zip(*points, strict=True), color=COLORS[whose], alpha=shade, label=label)
        if what == "fd":
            axes.axhline(copying, color="#868e96", linestyle=":", label="copying the last state")
        axes.set_title(TITLES[what])
        axes.set_xlabel("seconds")
        if LOWER_IS_BETTER[what]:  # errors; a score is drawn as it is
            axes.set_xscale("log")
            axes.set_yscale("log")
        axes.legend(fontsize=7, frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
    return figure


if __name__ == "__main__":
    main()
