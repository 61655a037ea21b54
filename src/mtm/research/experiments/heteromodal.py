"""Learning from data in which most episodes lack actions (the paper's heteromodal figure)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from mtm.core.errors import DataError
from mtm.core.names import ACTING_TASKS
from mtm.research.experiments import missing, pictures, recipes
from mtm.research.experiments.data import DataFacts, facts
from mtm.research.experiments.over_seeds import Number, text
from mtm.research.experiments.result_tables import (
    CHECKPOINTS,
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
from mtm.research.experiments.verdicts import Comparison, claim

TITLE = "Learning from state-only episodes beside a few with actions"

DATA = {
    "smoke": ("builtin:hopper",),
    "cpu": ("d4rl:hopper-expert-v2",),
    "paper": (
        *("d4rl:hopper-expert-v2", "d4rl:walker2d-expert-v2", "d4rl:halfcheetah-expert-v2"),
        *("d4rl:pen-expert-v1", "d4rl:door-expert-v1"),
    ),
}

LABELLED_STEPS = 10_000
"""With actions in the paper: 1 % of a million."""

SERIES = {
    "MLP": "bc",
    "MLP, return-conditioned": "rcbc",
    "MTM": "rcbc",
    "MTM, two stages": "two_stage",
    "Heteromodal MTM, one stage": "rcbc",
    "Heteromodal MTM": "two_stage",
}
"""What is compared at a labelled share -> how it acts."""


def runs(scale: Scale, data: Sequence[str], seeds: int) -> list[RunSpec]:
    """MLP and MTM on the labelled share, Heteromodal MTM on all, and the oracle: BC on all."""
    listed = []
    for d in data:
        listed += [recipes.mlp(scale, d, seed, "bc") for seed in range(seeds)]
        listed += at_shares(scale, d, seeds, [_share_of_the_paper(scale, d)])
    return listed


def at_shares(scale: Scale, data: str, seeds: int, shares: Iterable[float]) -> list[RunSpec]:
    """The runs on one data set, for every labelled share."""
    listed, masks = [], missing.masks_for_two_stages(scale.train)
    for seed in range(seeds):
        for share in shares:
            labelled, what = missing.labelled_only(share), f"{share:.0%} with actions"
            listed += [
                recipes.mlp(scale, data, seed, task, changes=labelled, name=f"MLP, {what},")
                for task in ("bc", "rcbc")
            ]
            for name, data_of in (("MTM", labelled), ("Heteromodal", missing.heteromodal(share))):
                changes, label = data_of | masks, f"{name}, {what}"
                listed.append(
                    recipes.masked(
                        scale, data, seed, tasks=ACTING_TASKS, changes=changes, name=label
                    )
                )
    return listed


def draw(results: Sequence[Result], out: Path) -> Drawing:
    """Bars for every share, and the oracle."""
    sets = data_sets(results)
    rows, records = [], records_at_shares(results, SERIES)
    for d in sets:
        for share in labelled_shares(results, d):
            numbers = {name: score(results, d, name, share) for name in SERIES}
            shown = [text(n) for n in numbers.values()]
            labelled = f"{share:.0%}, about {share * d.steps:,.0f} steps"
            asked = asked_for(results, d)
            rows.append([d.name, labelled, asked, *shown, text(_oracle(results, d))])
        records += [
            record(_oracle(results, d, w), data=d.name, share=1.0, method="oracle", checkpoint=w)
            for w in CHECKPOINTS
        ]
    columns = ("data", "with actions", "asked for", *SERIES, "oracle: MLP on all")
    panels = {
        d.name: {
            f"{share:.0%}": {n: score(results, d, n, share) for n in SERIES}
            | {"oracle": _oracle(results, d)}
            for share in labelled_shares(results, d)
        }
        for d in sets
    }
    picture = pictures.bars(
        out / "heteromodal.png", panels, ylabel="score", xlabel="episodes with actions"
    )
    notes = (
        "Last checkpoint; return-conditioned and two-stage acting at the target `auto`. MTM acts "
        "in one stage and Heteromodal MTM in two, as in the paper; the other two columns tell what "
        "the stages do from what the episodes without actions do. Both are trained with the "
        "same masks. The paper shows a figure without numbers, at 1 % of a million steps.",
        "The models of the labelled share alone know the states and returns of the other episodes "
        "only by their mean, standard deviation and best, for the normalisation and the target.",
        recipes.WHAT_ACTING_SEES,
    )
    claims = [
        claim(
            f"Heteromodal MTM improves over {other}",
            pairs(results, "Heteromodal MTM", other),
            "better",
        )
        for other in ("MTM", "MTM, two stages", "MLP", "MLP, return-conditioned")
    ]
    return Drawing([Table("Scores", columns, rows)], records, claims, [picture], notes)


def records_at_shares(results: Sequence[Result], series: Iterable[str]) -> list[dict[str, Any]]:
    """The numbers of some series at every share of every data set."""
    return [
        record(
            score(results, d, name, share, which),
            data=d.name,
            share=share,
            method=name,
            checkpoint=which,
        )
        for d in data_sets(results)
        for share in labelled_shares(results, d)
        for name in series
        for which in CHECKPOINTS
    ]


def pairs(results: Sequence[Result], ours: str, other: str) -> list[Comparison]:
    """Two series at every share of every data set."""
    return [
        Comparison(
            f"{d.name} {share:.0%}", score(results, d, ours, share), score(results, d, other, share)
        )
        for d in data_sets(results)
        for share in labelled_shares(results, d)
    ]


def score(
    results: Sequence[Result],
    data: DataFacts,
    name: str,
    share: float,
    which: Which = "last",
) -> Number | None:
    """What a series reached at a labelled share."""
    task, mixed = SERIES[name], name.startswith("Heteromodal")
    mine = [
        r
        for r in results
        if r.data == data
        and r.spec.method == ("mlp" if name.startswith("MLP") else "mtm")
        and missing.share_of(r.spec.settings["train"]) == share
        and missing.is_heteromodal(r.spec.settings["train"]) == mixed
        and task in r.spec.settings["evaluate"]["tasks"]
    ]
    return over_seeds(mine, measured(task, which))


def labelled_shares(results: Sequence[Result], data: DataFacts) -> list[float]:
    """The labelled shares of the results on a data set."""
    found = {missing.share_of(r.spec.settings["train"]) for r in results if r.data == data}
    return sorted(share for share in found if share is not None)


def _share_of_the_paper(scale: Scale, data: str) -> float:
    """The share that leaves about as many steps with actions as the paper has."""
    try:
        steps = facts(data).steps
    except DataError:
        return scale.shares[-1]  # whoever plans the runs says that the data cannot be had
    return min(scale.shares, key=lambda share: abs(share * steps - LABELLED_STEPS))


def _oracle(results: Sequence[Result], data: DataFacts, which: Which = "last") -> Number | None:
    mine = [
        r
        for r in results
        if r.data == data
        and r.spec.method == "mlp"
        and missing.share_of(r.spec.settings["train"]) is None
    ]
    return over_seeds(mine, measured("bc", which))
