"""TD3 on MTM's representations, beside TD3 on raw states (the paper's learning curves)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePath
from typing import Any, get_args

from mtm.baselines.td3_config import VARIANTS, td3_preset
from mtm.baselines.td3_curve import (
    FINAL_EVALUATIONS,
    Curve,
    Unit,
    area,
    final_return,
    first_to_reach,
    from_points,
)
from mtm.experiments import pictures, recipes
from mtm.experiments.data import absolute
from mtm.experiments.drawing import Drawing, Pair, Table, claim, over_seeds, record
from mtm.experiments.over_seeds import Number, text
from mtm.experiments.runner import Result
from mtm.experiments.scales import Scale
from mtm.experiments.spec import RunSpec
from mtm.plain_settings import from_plain

TITLE = "Representations that speed up TD3"

DATA: dict[str, tuple[str, ...]] = {"smoke": ("builtin:hopper",), "cpu": (), "paper": ()}
NEEDED = "a folder that `mtm collect --env dmc:walker-walk --explore` has written"

TASKS: dict[str, tuple[str | None, ...]] = {
    "smoke": (None,),
    "cpu": ("stand", "walk"),
    "paper": ("stand", "walk", "run"),
}
"""Scale -> tasks of the walker whose rewards are relabelled; None: the data's own rewards."""

RAW = "raw"
"""The variant that the others are compared with."""

UNITS: tuple[Unit, ...] = get_args(Unit)

COLUMNS = (
    *("task", "TD3 on", "area, by updates", "area, by seconds", "final return"),
    *("updates to raw's final return", "seconds to it", "updates / raw's"),
)

NOTES = (
    f"Final return: the mean of the last {FINAL_EVALUATIONS} evaluations; raw's is dashed.",
    "The area under the curve is divided by the updates or seconds that it spans: a mean return. "
    "By seconds it begins where the slowest agent of the task has its first evaluation, and ends "
    "where the quickest has finished.",
    "A seed that never reaches raw's final return counts with all its updates and seconds; ≥ marks "
    "numbers with such a seed.",
    "Seconds are those of updates and of encoding the data, without evaluations and without "
    "pretraining, which is done once for all tasks; its own time is below.",
    "The paper shows curves without numbers.",
)


def runs(scale: Scale, data: Sequence[str], seeds: int) -> list[RunSpec]:
    """A pretrained MTM of states and actions, and five TD3 agents on it for every task."""
    listed = []
    if None not in TASKS[scale.name]:  # rewards are computed from a folder with physics
        data = [absolute(d.removeprefix("exorl:")) for d in data if not Path(d).is_file()]
    for d in data:
        for seed in range(seeds):
            only = {"modalities": ("states", "actions")}
            pretrained = recipes.masked(
                scale, d, seed, tasks=(), changes=only, name="MTM, pretraining"
            )
            listed.append(pretrained)
            for task in TASKS[scale.name]:
                listed += [_agent(scale, d, seed, task, v, pretrained) for v in VARIANTS]
    return listed


def draw(results: Sequence[Result], out: Path) -> Drawing:
    """Curves in updates and in seconds, and how soon each reaches the raw agent's final return."""
    results = [r for r in results if r.spec.method == "td3"]
    tasks = list(dict.fromkeys(r.spec.data for r in results))
    rows, records = [], []
    pairs: dict[str, list[Pair]] = {variant: [] for variant in VARIANTS if variant != RAW}
    for task in tasks:
        measured = {variant: _measure(results, task, variant) for variant in VARIANTS}
        raw = measured[RAW].numbers["updates"]
        for variant, mine in measured.items():
            numbers = mine.numbers | {"updates / raw's": _over(mine.numbers["updates"], raw)}
            rows.append([_shown(task), variant, *_cells(numbers, mine.all_reach)])
            what = {"task": _shown(task), "variant": variant, "all_reach": mine.all_reach}
            records += [record(number, **what, what=name) for name, number in numbers.items()]
            if variant != RAW:
                pair = Pair(_shown(task), mine.numbers["updates"], raw, higher_is_better=False)
                pairs[variant].append(pair)
    claims = [
        claim(f"{variant} reaches raw TD3's final return in fewer updates", cases, "better")
        for variant, cases in pairs.items()
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


def _curve(value: Mapping[str, Any]) -> Curve:
    return from_points(value["curve"])


def _number(results: Sequence[Result], of: Callable[[Curve], float]) -> Number | None:
    return over_seeds(results, lambda value: of(_curve(value)))


@dataclass(frozen=True)
class _Measured:
    """What is read off the curves of a variant.

    Attributes:
        numbers: Of the columns of the table, but the last.
        all_reach: Whether every seed reaches raw's final return.
    """

    numbers: dict[str, Number | None]
    all_reach: bool


def _measure(results: Sequence[Result], task: str, variant: str) -> _Measured:
    mine, everyone = _of(results, task, variant), [r for r in results if r.spec.data == task]
    goal = _number(_of(results, task, RAW), final_return)
    every = [_curve(r.value) for r in everyone if r.value is not None]
    since = max((curve[0].seconds for curve in every), default=0.0)
    until = min((curve[-1].seconds for curve in every), default=0.0)
    numbers = {
        "area, by updates": _number(mine, area),
        "area, by seconds": _number(mine, lambda curve: area(curve, "seconds", since, until)),
        "final return": _number(mine, final_return),
    }
    curves = [_curve(r.value) for r in mine if r.value is not None]
    reached = goal is not None and all(first_to_reach(c, goal.mean) for c in curves)
    return _Measured(numbers | {unit: _effort(mine, goal, unit) for unit in UNITS}, reached)


def _effort(results: Sequence[Result], goal: Number | None, unit: Unit) -> Number | None:
    """Updates or seconds until a return; a seed that never has it counts with all of its own."""
    if goal is None:
        return None
    return _number(
        results, lambda curve: float(getattr(first_to_reach(curve, goal.mean) or curve[-1], unit))
    )


def _over(number: Number | None, other: Number | None) -> Number | None:
    """Every seed's value in units of the other's mean."""
    if number is None or other is None:
        return None
    return Number(tuple(value / other.mean for value in number.values))


def _cells(numbers: Mapping[str, Number | None], all_reach: bool) -> list[str]:
    """A row of the table after the task and the variant."""
    forms = {"updates": ",.0f", "seconds": ",.0f", "updates / raw's": ".2f"}
    cells = []
    for name, number in numbers.items():
        mark = "≥ " if name in forms and number is not None and not all_reach else ""
        cells.append(mark + text(number, forms.get(name, ".1f")))
    return cells


def _picture(results: Sequence[Result], tasks: Sequence[str], unit: Unit, out: Path) -> str:
    panels: dict[str, dict[str, list[tuple[float, Number]]]] = {}
    levels = {}
    for task in tasks:
        panels[_shown(task)] = {v: _points(_of(results, task, v), unit) for v in VARIANTS}
        if (goal := _number(_of(results, task, RAW), final_return)) is not None:
            levels[_shown(task)] = goal.mean
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
