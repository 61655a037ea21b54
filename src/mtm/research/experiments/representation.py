"""TD3 on MTM's representations, beside TD3 on raw states (the paper's learning curves)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

from mtm.core.config_io import from_plain
from mtm.data.loading import absolute
from mtm.research.baselines.td3_config import VARIANTS, td3_preset
from mtm.research.baselines.td3_curve import (
    FINAL_EVALUATIONS,
    SMOOTHED_OVER,
    Curve,
    Unit,
    area,
    final_return,
    first_to_reach,
    from_points,
    mean_curve,
)
from mtm.research.experiments import pictures, recipes
from mtm.research.experiments.data import name_of
from mtm.research.experiments.over_seeds import Number, text
from mtm.research.experiments.result_tables import (
    Drawing,
    Table,
    over_seeds,
    record,
)
from mtm.research.experiments.runner import Result
from mtm.research.experiments.scales import Scale
from mtm.research.experiments.spec import RunSpec
from mtm.research.experiments.verdicts import Comparison, claim

TITLE = "Representations that speed up TD3"

DATA: dict[str, tuple[str, ...]] = {"smoke": ("builtin:hopper",), "cpu": (), "paper": ()}
NEEDED = (
    "a folder that `mtm collect --explore --env dmc:walker-walk --explore-reward knn` has written"
)

_ALL_TASKS = ("stand", "walk", "run")
TASKS = {"smoke": ("walk",), "cpu": _ALL_TASKS, "paper": _ALL_TASKS}
"""Scale -> tasks of the walker whose rewards are computed from the physics in such a folder."""

RAW = "raw"
"""The variant that the others are compared with."""

UNITS: tuple[Unit, ...] = get_args(Unit)

COLUMNS = (
    *("task", "TD3 on", "area, by updates", "area, by seconds", "final return"),
    *("updates to raw's final return", "/ raw's", "seconds to it", "/ raw's"),
)

CLAIMS = {
    "updates": "reaches raw TD3's final return in fewer updates",
    "seconds": "reaches it in less time",
    "area, by updates": "has the larger area under its curve",
}
"""What is compared with raw -> the claim."""

NOTES = (
    f"Final return: the mean of the last {FINAL_EVALUATIONS} evaluations; raw's is dashed. It is "
    "where raw has come to, which need not be as far as it ever gets.",
    f"A seed reaches it when the mean of {SMOOTHED_OVER} evaluations in a row has it; one that "
    "never does counts all its updates. `never`: nor does the mean over the seeds.",
    "The area under the curve is divided by the updates or seconds that it spans: a mean return. "
    "By seconds it begins where the slowest agent of the task has its first evaluation, and ends "
    "where the quickest has finished.",
    "Seconds are those of updates and of encoding the data, without evaluations, and of the "
    "pretraining where there is one: once for each agent, though one pretraining serves all tasks.",
    "`normalized` reads the states that the encoders read, `untrained` an encoder with weights "
    "drawn anew: what they gain over `raw` is no gain of the pretraining. Raw TD3 reads states as "
    "they are, as ExORL's does, and has more seeds, as all are measured by where it ends.",
    "The paper shows curves without numbers.",
)


def runs(scale: Scale, data: Sequence[str], seeds: int) -> list[RunSpec]:
    """A pretrained MTM of states and actions, and a TD3 agent of each variant for every task."""
    listed = []
    for d, tasks in _tasks(scale, data).items():
        for seed in range(seeds):
            only = {"modalities": ("states", "actions")}
            pretrained = recipes.masked(
                scale, d, seed, tasks=(), changes=only, name="MTM, pretraining"
            )
            listed.append(pretrained)
            for task in tasks:
                listed += [_agent(scale, d, seed, task, v, pretrained) for v in VARIANTS]
    return listed


def _tasks(scale: Scale, data: Sequence[str]) -> dict[str, tuple[str | None, ...]]:
    """Data -> tasks to learn from them; None: by the rewards that they have.

    A folder has been explored: the rewards of all tasks follow from its physics. What is not a
    folder serves the tests' scale only.
    """
    found: dict[str, tuple[str | None, ...]] = {}
    for d in data:
        folder = absolute(d.rpartition(":")[2]) if d.startswith("exorl:") else d
        if Path(folder).is_dir():
            found[folder] = TASKS[scale.name]
        elif scale.name == "smoke":
            found[d] = (None,)
    return found


def draw(results: Sequence[Result], out: Path) -> Drawing:
    """Curves in updates and in seconds, and how soon each reaches the raw agent's final return."""
    results = _with_pretraining(results)
    tasks = list(dict.fromkeys(r.spec.data for r in results))
    rows, records = [], []
    pairs: dict[tuple[str, str], list[Comparison]] = {}
    for task in tasks:
        measured = {variant: _measure(results, task, variant) for variant in VARIANTS}
        raw = measured[RAW]
        for variant, mine in measured.items():
            rows.append([name_of(task), variant, *_cells(mine, raw)])
            what = {"task": name_of(task), "variant": variant, "reached": mine.reached}
            numbers = mine.numbers | {f"{unit} / raw's": _over(mine, raw, unit) for unit in UNITS}
            records += [record(number, **what, what=name) for name, number in numbers.items()]
            for name in CLAIMS:
                pair = Comparison(
                    name_of(task), mine.numbers[name], raw.numbers[name], name not in UNITS
                )
                pairs.setdefault((variant, name), []).append(pair)
    claims = [
        claim(f"{variant} {text_of}", pairs.get((variant, name), []), "better")
        for variant in VARIANTS
        if variant != RAW
        for name, text_of in CLAIMS.items()
    ]
    drawn = [_picture(results, tasks, unit, out) for unit in UNITS]
    return Drawing([Table("Learning speed", COLUMNS, rows)], records, claims, drawn, NOTES)


def _agent(
    scale: Scale, data: str, seed: int, task: str | None, variant: str, pretrained: RunSpec
) -> RunSpec:
    config = from_plain({"variant": variant, "seed": seed}, td3_preset(scale.preset))
    settings = {"td3": asdict(config), "threads": scale.threads}
    needs = () if variant == RAW else (pretrained,)
    rewarded = data if task is None else f"exorl:{task}:{data}"
    label = f"{name_of(rewarded)} · TD3, {variant} · seed {seed}"
    return RunSpec("td3", rewarded, seed, settings, label, needs)


def _with_pretraining(results: Sequence[Result]) -> list[Result]:
    """The curves of the agents; those on pretrained encoders begin when the pretraining is done."""
    spent = {
        r.spec.key(""): float(r.value["seconds"])
        for r in results
        if r.spec.method == "mtm" and r.value is not None
    }
    agents = []
    for result in results:
        if result.spec.method != "td3":
            continue
        before = sum(spent.get(need.key(""), 0.0) for need in result.spec.needs)
        variant = result.spec.settings["td3"]["variant"]
        if before and result.value is not None and variant.startswith("state-"):
            points = [p | {"seconds": p["seconds"] + before} for p in result.value["curve"]]
            result = replace(result, value={**result.value, "curve": points})
        agents.append(result)
    return agents


def _of(results: Sequence[Result], task: str, variant: str) -> list[Result]:
    """The runs of a variant on a data set, whose name says the task."""
    return [
        r for r in results if r.spec.data == task and r.spec.settings["td3"]["variant"] == variant
    ]


def _curve(value: Mapping[str, Any]) -> Curve:
    return from_points(value["curve"])


def _number(results: Sequence[Result], of: Callable[[Curve], float]) -> Number | None:
    return over_seeds(results, lambda value: of(_curve(value)))


@dataclass(frozen=True)
class _Measured:
    """What is read off the curves of a variant.

    Attributes:
        numbers: Of every seed; updates and seconds to raw's final return are all that were taken
            where it is never reached.
        reached: Whether the mean curve gets there.
    """

    numbers: dict[str, Number | None]
    reached: bool


def _measure(results: Sequence[Result], task: str, variant: str) -> _Measured:
    mine, everyone = _of(results, task, variant), [r for r in results if r.spec.data == task]
    every = [_curve(r.value) for r in everyone if r.value is not None]
    since = max((curve[0].seconds for curve in every), default=0.0)
    until = min((curve[-1].seconds for curve in every), default=0.0)
    numbers: dict[str, Number | None] = {
        "area, by updates": _number(mine, area),
        "area, by seconds": _number(mine, lambda curve: area(curve, "seconds", since, until)),
        "final return": _number(mine, final_return),
    }
    goal = _number(_of(results, task, RAW), final_return)
    curve = mean_curve([_curve(r.value) for r in mine if r.value is not None])
    if goal is None or not curve:
        return _Measured({**numbers, **dict.fromkeys(UNITS)}, reached=False)
    for unit in UNITS:
        numbers[unit] = _number(mine, partial(_until, goal.mean, unit))
    return _Measured(numbers, reached=first_to_reach(curve, goal.mean) is not None)


def _until(goal: float, unit: Unit, curve: Curve) -> float:
    """Updates or seconds to a return; all that were taken if it is never reached."""
    return float(getattr(first_to_reach(curve, goal) or curve[-1], unit))


def _over(mine: _Measured, raw: _Measured, unit: Unit) -> Number | None:
    """Updates or seconds to raw's final return in units of its own; None if never."""
    number, other = mine.numbers[unit], raw.numbers[unit]
    if number is None or other is None or not mine.reached:
        return None
    return Number((number.mean / other.mean,))


def _cells(mine: _Measured, raw: _Measured) -> list[str]:
    """A row of the table after the task and the variant."""
    cells = [text(number) for name, number in mine.numbers.items() if name not in UNITS]
    for unit in UNITS:
        number = mine.numbers[unit]
        cells.append(text(number, ",.0f") if mine.reached or number is None else "never")
        cells.append(text(_over(mine, raw, unit), ".2f"))
    return cells


def _picture(results: Sequence[Result], tasks: Sequence[str], unit: Unit, out: Path) -> str:
    panels: dict[str, dict[str, list[tuple[float, Number]]]] = {}
    levels = {}
    for task in tasks:
        panels[name_of(task)] = {v: _points(_of(results, task, v), unit) for v in VARIANTS}
        if (goal := _number(_of(results, task, RAW), final_return)) is not None:
            levels[name_of(task)] = goal.mean
    file = out / f"representation-{unit}.png"
    return pictures.lines(file, panels, xlabel=unit, ylabel="return", levels=levels)


def _points(results: Sequence[Result], unit: Unit) -> list[tuple[float, Number]]:
    """The curves of several seeds as one: point i of each together, at the mean of their x."""
    curves = [_curve(r.value) for r in results if r.value is not None]
    points = []
    for same in zip(*curves, strict=False):
        heights = Number(tuple(point.return_mean for point in same))
        points.append((sum(getattr(point, unit) for point in same) / len(same), heights))
    return points
