"""One MTM beside models specialised in one capability (the paper's Table 2 and its appendix)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mtm.core.names import ACTING_TASKS, CAPABILITIES
from mtm.research.experiments import paper, pictures, recipes
from mtm.research.experiments.data import DataFacts
from mtm.research.experiments.over_seeds import Number, text
from mtm.research.experiments.result_tables import (
    CHECKPOINTS,
    ERRORS,
    Drawing,
    Table,
    Which,
    asked_for,
    data_sets,
    measured,
    over_seeds,
    record,
)
from mtm.research.experiments.runner import Result
from mtm.research.experiments.scales import Scale
from mtm.research.experiments.spec import RunSpec
from mtm.research.experiments.verdicts import Claim, Comparison, claim, compare

TITLE = "One model, many capabilities (Table 2)"

_LOCOMOTION = tuple(
    f"d4rl:{env}-{kind}-v2"
    for env in ("hopper", "walker2d", "halfcheetah")
    for kind in ("expert", "medium-expert", "medium", "medium-replay")
)
DATA = {
    "smoke": ("builtin:hopper",),
    "cpu": ("d4rl:hopper-expert-v2", "d4rl:hopper-medium-replay-v2", "d4rl:door-expert-v1"),
    "paper": (*_LOCOMOTION, "d4rl:pen-expert-v1", "d4rl:door-expert-v1"),
}

ACTING = tuple(task for task in CAPABILITIES if task in ACTING_TASKS)
METHODS = ("mlp", "s-mtm", "mtm")
TITLES = tuple(recipes.NAMES[method] for method in METHODS)
COLUMNS = (
    *("data", "task", "asked for", "MLP", "S-MTM", "MTM", "MTM, to S-MTM"),
    *("paper MLP", "paper S-MTM", "paper MTM", "paper ≳?"),
)
VIEWS: dict[str, tuple[Which, str]] = {
    "Last checkpoint, RCBC at the target `auto`": ("last", "auto"),
    "Best checkpoint, RCBC at the best of the sweep*, as the paper reports": ("best", "best"),
}
"""Title of a table -> checkpoint and target."""


def runs(scale: Scale, data: Sequence[str], seeds: int) -> list[RunSpec]:
    """An MTM, and for every capability an S-MTM and an MLP."""
    listed = []
    for d in data:
        for seed in range(seeds):
            listed.append(recipes.masked(scale, d, seed))
            for task in CAPABILITIES:
                listed.append(recipes.specialised(scale, d, seed, task))
                listed.append(recipes.mlp(scale, d, seed, task))
    return listed


def draw(results: Sequence[Result], out: Path) -> Drawing:
    """A row for every capability, beside the paper's."""
    sets = data_sets(results)
    tables = [
        Table(title, COLUMNS, [_row(results, d, t, *view) for d in sets for t in CAPABILITIES])
        for title, view in VIEWS.items()
    ]
    raw = [_raw_row(results, d, task) for d in sets for task in ERRORS]
    tables.append(Table("Errors in raw units, last checkpoint", ("data", "task", *TITLES), raw))
    notes = (
        "BC and RCBC: score, higher is better.",
        "ID and FD: squared error on test episodes, lower is better. The paper calls its "
        "errors normalised; the original's code computes them in raw units, so both are here.",
        "One MTM serves all four rows of a data set; S-MTM and MLP are one model per row.",
        recipes.WHAT_ACTING_SEES,
    )
    records = [line for d in sets for task in CAPABILITIES for line in _records(results, d, task)]
    return Drawing(tables, records, _claims(results, sets), _pictures(results, sets, out), notes)


def number(
    results: Sequence[Result],
    data: DataFacts,
    method: str,
    task: str,
    which: Which = "last",
    target: str = "auto",
    *,
    raw: bool = False,
) -> Number | None:
    """What a method reached in a capability."""
    mine = [
        r
        for r in results
        if r.data == data
        and r.spec.method == method
        and (method == "mtm" or r.spec.settings["evaluate"]["tasks"] == [task])
    ]
    return over_seeds(mine, measured(task, which, target, raw=raw))


def _row(
    results: Sequence[Result], data: DataFacts, task: str, which: Which, target: str
) -> list[str]:
    found = {m: number(results, data, m, task, which, target) for m in METHODS}
    form = ".4f" if task in ERRORS else ".1f"
    arrow = "↓" if task in ERRORS else "↑"
    return [
        data.name,
        f"{arrow} {task.upper()}",
        asked_for(results, data) if task == "rcbc" else "-",
        *(text(found[m], form) for m in METHODS),
        compare(found["mtm"], found["s-mtm"], higher_is_better=task not in ERRORS),
        *(_shown(_paper(data, task, m), task) for m in METHODS),
        {True: "yes", False: "no", None: "-"}[_paper_mark(data, task)],
    ]


def _raw_row(results: Sequence[Result], data: DataFacts, task: str) -> list[str]:
    numbers = [number(results, data, method, task, raw=True) for method in METHODS]
    return [data.name, f"↓ {task.upper()}", *(text(n, ".4g") for n in numbers)]


def _records(results: Sequence[Result], data: DataFacts, task: str) -> list[dict[str, Any]]:
    targets = ("auto", "best") if task == "rcbc" else ("auto",)
    units = ("normalized", "raw") if task in ERRORS else ("score",)
    lines = []
    for method in METHODS:
        figure = _paper(data, task, method)
        lines += [
            record(
                number(results, data, method, task, which, target, raw=unit == "raw"),
                data=data.name,
                task=task,
                method=method,
                checkpoint=which,
                target=target,
                unit=unit,
                paper=figure.mean if figure else None,
                paper_std=figure.std if figure else None,
            )
            for which in CHECKPOINTS
            for target in targets
            for unit in units
        ]
    return lines


def _claims(results: Sequence[Result], sets: Sequence[DataFacts]) -> list[Claim]:
    def pairs(other: str, tasks: Sequence[str]) -> list[Comparison]:
        return [
            Comparison(
                f"{d.name} {task.upper()}",
                number(results, d, "mtm", task),
                number(results, d, other, task),
                task not in ERRORS,
            )
            for d in sets
            for task in tasks
        ]

    return [
        claim(f"MTM {what} as well as {title}, or better", pairs(other, tasks))
        for other, title in (("s-mtm", "S-MTM"), ("mlp", "specialised MLPs"))
        for what, tasks in (("acts", ACTING), ("acts on returns", ("rcbc",)), ("predicts", ERRORS))
    ]


def _pictures(results: Sequence[Result], sets: Sequence[DataFacts], out: Path) -> list[str]:
    drawn = []
    for name, ylabel, tasks, log in (
        ("acting", "score, higher is better", ACTING, False),
        ("prediction", "error, lower is better", ERRORS, True),
    ):
        panels = {
            d.name: {
                task.upper(): {recipes.NAMES[m]: number(results, d, m, task) for m in METHODS}
                for task in tasks
            }
            for d in sets
        }
        file = out / f"capabilities-{name}.png"
        drawn.append(pictures.bars(file, panels, ylabel=ylabel, log=log))
    return drawn


def _paper(data: DataFacts, task: str, method: str) -> paper.Figure | None:
    env, kind = data.row or ("", "")
    return paper.CAPABILITIES.get((env, kind, task), {}).get(method)


def _paper_mark(data: DataFacts, task: str) -> bool | None:
    env, kind = data.row or ("", "")
    return paper.COMPARABLE.get((env, kind, task))


def _shown(figure: paper.Figure | None, task: str) -> str:
    if figure is None:
        return "-"
    form = ".3f" if task in ERRORS else ".2f"
    return f"{figure.mean:{form}} ± {figure.std:{form}}"
