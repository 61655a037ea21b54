"""TD3 on MTM's representations, beside TD3 on raw states (the paper's learning curves)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path, PurePath
from typing import Any

from mtm.experiments import pictures, recipes
from mtm.experiments.drawing import Drawing, Pair, Table, claim, over_seeds, record
from mtm.experiments.over_seeds import Number, text
from mtm.experiments.runner import Result
from mtm.experiments.scales import Scale
from mtm.experiments.spec import RunSpec

TITLE = "Representations that speed up TD3"

DATA: dict[str, tuple[str, ...]] = {"smoke": ("builtin:hopper",), "cpu": (), "paper": ()}
NEEDED = "a folder that `mtm collect --env dmc:walker-walk --explore` has written"

TASKS: dict[str, tuple[str | None, ...]] = {
    "smoke": (None,),
    "cpu": ("stand", "walk"),
    "paper": ("stand", "walk", "run"),
}
"""Scale -> tasks of the walker whose rewards are relabelled; None: the data's own rewards."""

VARIANTS = (
    *("raw", "state-frozen", "state-finetuned"),
    *("state-action-frozen", "state-action-finetuned"),
)
"""What TD3 sees: raw states, or encodings, frozen or fine-tuned."""

EVALUATIONS = 20
"""Points of a curve."""


def runs(scale: Scale, data: Sequence[str], seeds: int) -> list[RunSpec]:
    """A pretrained MTM of states and actions, and five TD3 agents on it for every task."""
    listed = []
    for d in data:
        for seed in range(seeds):
            only = {"modalities": ("states", "actions")}
            pretrained = recipes.masked(
                scale, d, seed, tasks=(), changes=only, name="MTM, pretraining"
            )
            for task in TASKS[scale.name]:
                listed += [_agent(scale, d, seed, task, v, pretrained) for v in VARIANTS]
    return listed


def draw(results: Sequence[Result], out: Path) -> Drawing:
    """Curves in updates and in seconds, and how soon each reaches the raw agent's final return."""
    tasks = list(dict.fromkeys(r.spec.data for r in results))
    rows, records, pairs = [], [], []
    for task in tasks:
        goal = _final(_of(results, task, "raw"))
        raw = None
        for variant in VARIANTS:
            mine = _of(results, task, variant)
            final, area = _final(mine), over_seeds(mine, _area)
            reached = None if goal is None else over_seeds(mine, partial(_reached, goal=goal.mean))
            raw = reached if variant == "raw" else raw
            ratio = f"{reached.mean / raw.mean:.2f}" if reached and raw else "-"
            rows.append(
                [_shown(task), variant, text(area), text(final), text(reached, ",.0f"), ratio]
            )
            for name, number in (("area", area), ("final", final), ("updates", reached)):
                records.append(record(number, task=_shown(task), variant=variant, what=name))
            if variant == "state-finetuned":
                pairs.append(Pair(_shown(task), reached, raw, higher_is_better=False))
    columns = (
        "task",
        "TD3 on",
        "area under the curve",
        "final return",
        "updates to raw's final return",
        "ratio",
    )
    claims = [
        claim(
            "fine-tuned state representations reach raw TD3's final return in fewer updates",
            pairs,
            strictly=True,
        ),
    ]
    notes = (
        "A run that never reaches raw's final return counts with all its updates.",
        "The dashed line is raw TD3's final return. The paper shows curves without numbers.",
    )
    drawn = [_picture(results, tasks, unit, out) for unit in ("updates", "seconds")]
    return Drawing([Table("Learning speed", columns, rows)], records, claims, drawn, notes)


def _agent(
    scale: Scale, data: str, seed: int, task: str | None, variant: str, pretrained: RunSpec
) -> RunSpec:
    settings = {
        "td3": {
            "variant": variant,
            "updates": scale.td3_updates,
            "evaluate_every": max(scale.td3_updates // EVALUATIONS, 1),
            "evaluation_episodes": scale.episodes,
        },
        "threads": scale.threads,
    }
    needs = () if variant == "raw" else (pretrained,)
    rewarded = data if task is None else f"exorl:{task}:{data}"
    label = f"{_shown(rewarded)} · TD3, {variant} · seed {seed}"
    return RunSpec("td3", rewarded, seed, settings, label, needs)


def _of(results: Sequence[Result], task: str, variant: str) -> list[Result]:
    """The runs of a variant on a data set, whose name says the task."""
    return [
        r for r in results if r.spec.data == task and r.spec.settings["td3"]["variant"] == variant
    ]


def _shown(task: str) -> str:
    """`walk, FOLDER` for data with relabelled rewards; else the data's own name."""
    prefix, _, rest = task.partition(":")
    if prefix != "exorl":
        return PurePath(task).name
    name, _, folder = rest.partition(":")
    return f"{name}, {PurePath(folder).name}"


def _final(results: Sequence[Result]) -> Number | None:
    return over_seeds(results, lambda value: float(value["curve"][-1]["return_mean"]))


def _area(value: Mapping[str, Any]) -> float:
    """The mean height of the curve over its updates."""
    curve: list[dict[str, float]] = value["curve"]
    area = sum(
        (b["updates"] - a["updates"]) * (a["return_mean"] + b["return_mean"]) / 2
        for a, b in pairwise(curve)
    )
    width = curve[-1]["updates"] - curve[0]["updates"]
    return area / width if width else float(curve[-1]["return_mean"])


def _reached(value: Mapping[str, Any], goal: float) -> float:
    """The first update with at least that return; the last one if there is none."""
    curve: list[dict[str, float]] = value["curve"]
    return float(
        next((p["updates"] for p in curve if p["return_mean"] >= goal), curve[-1]["updates"])
    )


def _picture(results: Sequence[Result], tasks: Sequence[str], unit: str, out: Path) -> str:
    panels: dict[str, dict[str, list[tuple[float, Number]]]] = {}
    levels = {}
    for task in tasks:
        panels[_shown(task)] = {v: _points(_of(results, task, v), unit) for v in VARIANTS}
        if (goal := _final(_of(results, task, "raw"))) is not None:
            levels[_shown(task)] = goal.mean
    file = out / f"representation-{unit}.png"
    return pictures.lines(file, panels, xlabel=unit, ylabel="return_mean", levels=levels)


def _points(results: Sequence[Result], unit: str) -> list[tuple[float, Number]]:
    """The curves of several seeds as one: point i of each together, at the mean of their x."""
    curves = [r.value["curve"] for r in results if r.value is not None]
    points = []
    for same in zip(*curves, strict=False):
        heights = Number(tuple(float(p["return_mean"]) for p in same))
        points.append((sum(p[unit] for p in same) / len(same), heights))
    return points
