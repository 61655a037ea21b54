"""Offline RL: MTM's return-conditioned acting beside other algorithms (the paper's Table 1)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from mtm.research.baselines.settings import AGENTS
from mtm.research.experiments import paper, pictures, recipes
from mtm.research.experiments.data import DataFacts
from mtm.research.experiments.over_seeds import Number, text
from mtm.research.experiments.result_tables import (
    Claim,
    Comparison,
    Drawing,
    Table,
    Which,
    claim,
    data_sets,
    measured,
    over_seeds,
    record,
)
from mtm.research.experiments.runner import Result
from mtm.research.experiments.scales import Scale
from mtm.research.experiments.spec import RunSpec

TITLE = "Offline RL (Table 1)"

_SETS = tuple(
    f"d4rl:{env}-{kind}-v2"
    for kind in ("medium-replay", "medium", "medium-expert")
    for env in ("halfcheetah", "hopper", "walker2d")
)
DATA = {"smoke": ("builtin:hopper",), "cpu": _SETS[:3], "paper": _SETS}

METHODS = {
    "bc": ("BC (MLP)", "mlp", "bc"),
    "bc10": ("10 %BC (MLP)", "bc10", "bc10"),
    "rvs": ("RvS (MLP)", "mlp", "rcbc"),
    "rvs_longer": ("RvS (MLP), longer", "mlp", "rcbc"),
    "dt": ("DT", "dt", "dt"),
    "tt": ("Trajectory Transformer", "tt", "tt"),
    "td3_bc": ("TD3+BC", "td3_bc", "td3_bc"),
    "cql": ("CQL", "cql", "cql"),
    "iql": ("IQL", "iql", "iql"),
    "rebrac": ("ReBRAC", "rebrac", "rebrac"),
    "mopo": ("MOPO", "mopo", "mopo"),
    "mtm": ("MTM", "mtm", "rcbc"),
}
"""The paper's name -> name for people, method, task."""

LONGER = 10
"""Times the steps of the others for a second RvS: a step of an MLP is cheap, so that this one comes
nearer to MTM in time."""

ON_TARGETS = ("rcbc", "dt")
"""Tasks that act on a target; the others have one number, shown under `auto`."""

AVERAGES = ("ours", "paper", "published")
"""Columns of the table of averages."""

COLUMNS: dict[str, tuple[Which, str]] = {
    "last, auto": ("last", "auto"),
    "last, fixed": ("last", "fixed"),
    "last, best of sweep*": ("last", "best"),
    "best checkpoint, auto": ("best", "auto"),
    "best checkpoint, fixed": ("best", "fixed"),
    "best checkpoint, best of sweep*": ("best", "best"),
}
"""Title -> checkpoint and target."""


def runs(scale: Scale, data: Sequence[str], seeds: int) -> list[RunSpec]:
    """All methods on all data sets with all seeds."""
    listed = []
    for d in data:
        for seed in range(seeds):
            listed.append(recipes.masked(scale, d, seed))
            listed += [recipes.mlp(scale, d, seed, task) for task in ("bc", "rcbc")]
            longer = {"steps": LONGER * scale.train.steps}
            listed.append(recipes.mlp(scale, d, seed, "rcbc", changes=longer, name="MLP, longer,"))
            listed += [recipes.agent(scale, d, seed, m) for m in AGENTS]
    return listed


def draw(results: Sequence[Result], out: Path) -> Drawing:
    """A row for every method, beside the paper's score."""
    sets = data_sets(results)
    records = [
        record(
            score(results, d, name, which, target),
            data=d.name,
            method=name,
            checkpoint=which,
            target=target,
            paper=_paper(d, name),
        )
        for d in sets
        for name in METHODS
        for which, target in COLUMNS.values()
    ]
    bars = {
        d.name: {title: score(results, d, name) for name, (title, _, _) in METHODS.items()}
        for d in sets
    }
    picture = pictures.bars(
        out / "table1.png", {"score, last checkpoint, target auto": bars}, ylabel="score"
    )
    rows = [row for d in sets for row in _rows(results, d)]
    table = Table("Scores", ("data", "method", *COLUMNS, "paper"), rows)
    averages = Table("Averages", ("method", "sets", *AVERAGES), _averages(results, sets))
    notes = (
        "Score: D4RL's normalised one; for Adroit, steps with the goal achieved.",
        f"All MLPs take as many steps as MTM, in a fraction of its time; the longer RvS {LONGER} "
        "times as many. The agents get about as much time as MTM, far less than in their "
        "publications (1,000,000 steps of CQL, IQL, TD3+BC and ReBRAC, 3,000,000 of MOPO) unless "
        "the scale is `paper`. All steps and times are below.",
        "One setting of each method for all sets, where those of ReBRAC, MOPO and the "
        "Trajectory Transformer's plans were published set by set.",
        recipes.WHAT_ACTING_SEES,
        "Averages: ours over the sets above (last checkpoint, target auto); the paper's and the "
        "published ones over its nine sets (D4RL, v2): the last checkpoint of CORL's runs, MOPO "
        "by OfflineRL-Kit, Trajectory Transformer and MTM by their authors (MTM's appendix comes "
        "to 80.3). They compare only where the sets are the same.",
    )
    return Drawing([table, averages], records, _claims(results, sets), [picture], notes)


def score(
    results: Sequence[Result],
    data: DataFacts,
    name: str,
    which: Which = "last",
    target: str = "auto",
) -> Number | None:
    """The score of a method, by the paper's name for it."""
    _, method, task = METHODS[name]
    if task not in ON_TARGETS and target != "auto":
        return None
    mine = [
        r
        for r in results
        if r.data == data
        and r.spec.method == method
        and (method != "mlp" or r.spec.settings["evaluate"]["tasks"] == [task])
    ]
    if name in ("rvs", "rvs_longer"):
        budgets = sorted({r.spec.steps or 0 for r in mine})  # the usual one, and the longer
        mine = [r for r in mine if r.spec.steps == budgets[-1 if name == "rvs_longer" else 0]]
    return over_seeds(mine, measured(task, which, target))


def _rows(results: Sequence[Result], data: DataFacts) -> list[list[str]]:
    return [
        [data.name, title]
        + [text(score(results, data, name, *column)) for column in COLUMNS.values()]
        + [_shown(_paper(data, name))]
        for name, (title, _, _) in METHODS.items()
    ]


def _claims(results: Sequence[Result], sets: Sequence[DataFacts]) -> list[Claim]:
    def pairs(other: str) -> list[Comparison]:
        return [
            Comparison(d.name, score(results, d, "mtm"), score(results, d, other)) for d in sets
        ]

    return [
        claim("MTM's RCBC outperforms DT", pairs("dt"), "better"),
        claim("MTM's RCBC outperforms RvS", pairs("rvs"), "better"),
        claim(f"... and RvS of {LONGER} times the steps", pairs("rvs_longer"), "better"),
        claim("MTM is competitive with CQL", pairs("cql")),
        claim("MTM is competitive with IQL", pairs("iql")),
    ]


def _paper(data: DataFacts, name: str) -> float | None:
    return paper.TABLE_1.get(data.row or ("", ""), {}).get(name)


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _averages(results: Sequence[Result], sets: Sequence[DataFacts]) -> list[list[str]]:
    """Of each method: over how many sets, ours, the paper's, the published one."""
    rows = []
    for name, (title, _, _) in METHODS.items():
        found = [score(results, d, name) for d in sets]
        means = [number.mean for number in found if number is not None]
        ours = f"{fmean(means):.1f}" if means else "-"
        others = (paper.TABLE_1_AVERAGE.get(name), paper.PUBLISHED_AVERAGE.get(name))
        rows.append([title, str(len(means)), ours, *map(_shown, others)])
    return rows
