"""Offline RL: MTM's return-conditioned acting beside other algorithms (the paper's Table 1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from mtm.research.baselines.settings import AGENTS
from mtm.research.experiments import paper, pictures, recipes
from mtm.research.experiments.data import DataFacts
from mtm.research.experiments.over_seeds import Number, text
from mtm.research.experiments.result_tables import (
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
from mtm.research.experiments.scales import LONG, Scale
from mtm.research.experiments.spec import RunSpec
from mtm.research.experiments.verdicts import Claim, Comparison, claim
from mtm.research.statistics import Scores, interquartile_mean_of, performance_profile

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
    **{f"{m}_longer": (f"{recipes.NAMES[m]}, longer", m, m) for m in LONG},
    "mopo": ("MOPO", "mopo", "mopo"),
    "mtm": ("MTM", "mtm", "rcbc"),
}
"""The paper's name -> name for people, method, task."""

LONGER = 10
"""Times the steps of the others for a second RvS: a step of an MLP is cheap, so that this one comes
nearer to MTM in time."""

ON_TARGETS = ("rcbc", "dt")
"""Tasks that act on a target; the others have one number, shown under `auto`."""

AVERAGES = ("mean of the sets", "interquartile mean [interval]", "paper", "published")
"""Columns of the table of averages."""

LEVELS = tuple(range(0, 121, 2))
"""Scores at which performance profiles are drawn."""

COLUMNS: dict[str, tuple[Which, str]] = {
    "last, auto": ("last", "auto"),
    "last, best of sweep*": ("last", "best"),
    "best checkpoint, auto": ("best", "auto"),
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
            if scale.long:
                updates = scale.long_updates
                listed += [recipes.agent(scale, d, seed, m, updates=updates) for m in LONG]
    return listed


def draw(results: Sequence[Result], out: Path) -> Drawing:
    """A row for every method, beside the paper's score."""
    sets = data_sets(results)
    listed = {name: METHODS[name][0] for name in _measured_methods(results)}
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
        for name in listed
        for which, target in COLUMNS.values()
    ]
    rows = [_row(results, d, name) for d in sets for name in listed]
    columns = ("data", "method", "seeds", "asked for", *COLUMNS, "seconds of training", "paper")
    tables = [
        Table("Scores", columns, rows),
        Table("Averages", ("method", "sets", *AVERAGES), _averages(results, sets, listed)),
    ]
    pictures_of = _pictures(results, sets, listed, out)
    return Drawing(tables, records, _claims(results, sets), pictures_of, _notes(results))


def score(
    results: Sequence[Result],
    data: DataFacts,
    name: str,
    which: Which = "last",
    target: str = "auto",
) -> Number | None:
    """The score of a method, by the paper's name for it."""
    _, _, task = METHODS[name]
    if task not in ON_TARGETS and target != "auto":
        return None
    mine = [r for r in _of(results, name) if r.data == data]
    return over_seeds(mine, measured(task, which, target))


def _of(results: Sequence[Result], name: str) -> list[Result]:
    """The runs of a method; of those with two budgets, the shorter or the longer ones."""
    _, method, task = METHODS[name]
    mine = [
        r
        for r in results
        if r.spec.method == method
        and (method != "mlp" or r.spec.settings["evaluate"]["tasks"] == [task])
    ]
    budgets = sorted({r.spec.steps or 0 for r in mine})
    if name.endswith("_longer"):
        return [r for r in mine if len(budgets) > 1 and r.spec.steps == budgets[-1]]
    return [r for r in mine if r.spec.steps == budgets[0]]


def _measured_methods(results: Sequence[Result]) -> list[str]:
    """Those with a result, whatever else was listed; all that were, if none has one yet."""
    listed = [name for name in METHODS if _of(results, name)]
    found = [n for n in listed if any(r.value is not None for r in _of(results, n))]
    return found or listed


def _row(results: Sequence[Result], data: DataFacts, name: str) -> list[str]:
    title, _, task = METHODS[name]
    mine = [r for r in _of(results, name) if r.data == data]
    found = score(results, data, name)
    seconds = Number.of(r.value.get("seconds") for r in mine if r.value is not None)
    return [
        data.name,
        title,
        "0" if found is None else str(len(found.values)),
        asked_for(mine, data, task) if task in ON_TARGETS else "-",
        *(text(score(results, data, name, *column)) for column in COLUMNS.values()),
        "-" if seconds is None else f"{seconds.mean:,.0f}",
        _shown(_paper(data, name)),
    ]


def _notes(results: Sequence[Result]) -> list[str]:
    updates = {r.spec.steps for name in LONG for r in _of(results, f"{name}_longer")}
    longer = f" ({', '.join(f'{n:,}' for n in sorted(filter(None, updates)))} updates)"
    return [
        "Score: D4RL's normalised one; for Adroit, steps with the goal achieved.",
        "Asked for: the return that `auto` asks for, the best episode of the data, and its score. "
        "A method that obeys earns that much, and no more.",
        f"All MLPs take as many steps as MTM, in a fraction of its time; the longer RvS {LONGER} "
        "times as many. The agents get about as much time as MTM, far less than in their "
        "publications (1,000,000 steps of CQL, IQL, TD3+BC and ReBRAC, 3,000,000 of MOPO) unless "
        "the scale is `paper`"
        + (f"; those called longer get more{longer}" if updates else "; `--long` adds longer ones")
        + ". All steps and times are below.",
        "One setting of each method for all sets, where those of ReBRAC, MOPO and the "
        "Trajectory Transformer's plans were published set by set.",
        recipes.WHAT_ACTING_SEES,
        "Averages are of the last checkpoint at the target `auto`, over all sets and seeds; the "
        "interval of the interquartile mean is a bootstrap of the seeds of each set. The paper's "
        "and the "
        "published ones are over its nine sets (D4RL, v2): the last checkpoint of CORL's runs, "
        "MOPO by OfflineRL-Kit, Trajectory Transformer and MTM by their authors (MTM's appendix "
        "comes to 80.3). They compare only where the sets are the same.",
        "Performance profile: the share of runs that score more; every set counts alike.",
    ]


def _pictures(
    results: Sequence[Result], sets: Sequence[DataFacts], listed: Mapping[str, str], out: Path
) -> list[str]:
    bars = {
        d.name: {title: score(results, d, name) for name, title in listed.items()} for d in sets
    }
    known = {
        title: found for name, title in listed.items() if (found := _by_set(results, sets, name))
    }
    means = {title: interquartile_mean_of(found) for title, found in known.items()}
    shares = {title: performance_profile(found, LEVELS) for title, found in known.items()}
    xlabel = "interquartile mean of the scores, 95 % interval where there are 3 seeds"
    return [
        pictures.bars(
            out / "table1.png", {"score, last checkpoint, target auto": bars}, ylabel="score"
        ),
        pictures.intervals(out / "table1-intervals.png", means, xlabel=xlabel),
        pictures.profiles(out / "table1-profiles.png", LEVELS, shares, xlabel="score"),
    ]


def _by_set(
    results: Sequence[Result], sets: Sequence[DataFacts], name: str
) -> dict[str, tuple[float, ...]]:
    """Set -> the scores of the seeds, where there are any."""
    found = {d.name: score(results, d, name) for d in sets}
    return {name: number.values for name, number in found.items() if number is not None}


def _claims(results: Sequence[Result], sets: Sequence[DataFacts]) -> list[Claim]:
    def pairs(other: str) -> list[Comparison]:
        return [
            Comparison(d.name, score(results, d, "mtm"), score(results, d, other)) for d in sets
        ]

    return [
        claim("MTM's RCBC outperforms DT", pairs("dt"), "better"),
        claim("MTM's RCBC outperforms RvS", pairs("rvs"), "better"),
        claim(f"... and RvS of {LONGER} times the steps", pairs("rvs_longer"), "better"),
        claim("MTM's RCBC outperforms 10 %BC", pairs("bc10"), "better"),
        claim("MTM acts as well as CQL", pairs("cql")),
        claim("MTM acts as well as IQL", pairs("iql")),
        *(
            claim(f"... and as {METHODS[name][0]}", pairs(name))
            for name in (f"{m}_longer" for m in LONG)
            if _of(results, name)
        ),
    ]


def _paper(data: DataFacts, name: str) -> float | None:
    return paper.TABLE_1.get(data.row or ("", ""), {}).get(name)


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _averages(
    results: Sequence[Result], sets: Sequence[DataFacts], listed: Mapping[str, str]
) -> list[list[str]]:
    """Of each method: over how many sets, ours, the paper's, the published one."""
    rows = []
    for name, title in listed.items():
        found = _by_set(results, sets, name)
        ours = ["-", "-"]
        if found:
            ours = [f"{fmean(map(fmean, found.values())):.1f}", _estimate(found)]
        others = (paper.TABLE_1_AVERAGE.get(name), paper.PUBLISHED_AVERAGE.get(name))
        rows.append([title, str(len(found)), *ours, *map(_shown, others)])
    return rows


def _estimate(scores: Scores) -> str:
    found = interquartile_mean_of(scores)
    ends = "" if found.interval is None else " [{:.1f}, {:.1f}]".format(*found.interval)
    return f"{found.value:.1f}{ends}"
