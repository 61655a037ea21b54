"""What the mask of training does to return-conditioned acting (the paper's figure of masks)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

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
from mtm.research.experiments.scales import Scale
from mtm.research.experiments.spec import RunSpec
from mtm.research.experiments.table1 import COLUMNS
from mtm.research.experiments.verdicts import Comparison, claim

TITLE = "Impact of the masking pattern"

_CPU = ("d4rl:hopper-medium-replay-v2",)
DATA = {
    "smoke": ("builtin:hopper",),
    "cpu": _CPU,
    "paper": (*_CPU, "d4rl:walker2d-medium-replay-v2", "d4rl:halfcheetah-medium-replay-v2"),
}

MASKS = {"random": None, "random-autoregressive": "mtm", "balanced": None, "rcbc": "s-mtm"}
"""Mask of training -> the method of the paper's capability table that it is, if any."""


def runs(scale: Scale, data: Sequence[str], seeds: int) -> list[RunSpec]:
    """The masks by name, and what the scale trains with; those of other tables are done once."""
    listed = []
    for d in data:
        for seed in range(seeds):
            for mask in ("random", "random-autoregressive"):
                changes, name = {"mask": mask}, f"MTM, {mask} mask"
                listed.append(recipes.masked(scale, d, seed, changes=changes, name=name))
            if scale.train.mask not in ("random", "random-autoregressive"):
                listed.append(recipes.masked(scale, d, seed))
            listed.append(recipes.specialised(scale, d, seed, "rcbc"))
    return listed


def draw(results: Sequence[Result], out: Path) -> Drawing:
    """RCBC by mask."""
    sets = data_sets(results)
    rows, records = [], []
    for d in sets:
        asked = asked_for(results, d)
        for mask in MASKS:
            figure = _paper(d, mask)
            numbers = {title: _score(results, d, mask, *view) for title, view in COLUMNS.items()}
            shown = f"{figure.mean:.2f} ± {figure.std:.2f}" if figure else "-"
            rows.append([d.name, mask, asked, *(text(n) for n in numbers.values()), shown])
            records += [
                record(
                    numbers[title],
                    data=d.name,
                    mask=mask,
                    checkpoint=which,
                    target=target,
                    paper=figure.mean if figure else None,
                )
                for title, (which, target) in COLUMNS.items()
            ]
    table = Table("RCBC score", ("data", "mask of training", "asked for", *COLUMNS, "paper"), rows)
    bars = {d.name: {mask: _score(results, d, mask) for mask in MASKS} for d in sets}
    picture = pictures.bars(
        out / "masking.png", {"RCBC, last checkpoint, target auto": bars}, ylabel="score"
    )

    def pairs(other: str) -> list[Comparison]:
        return [
            Comparison(
                d.name, _score(results, d, "random-autoregressive"), _score(results, d, other)
            )
            for d in sets
        ]

    claims = [
        claim("random-autoregressive matches or outperforms random masking", pairs("random")),
        claim("random-autoregressive is competitive with the RCBC mask", pairs("rcbc")),
    ]
    notes = (
        "The paper gives no numbers for the random mask; the others are from its Table 2.",
        "Unless the scale is `paper`, half of the samples of both random masks show or hide whole "
        "modalities.",
        recipes.WHAT_ACTING_SEES,
    )
    return Drawing([table], records, claims, [picture], notes)


def _score(
    results: Sequence[Result],
    data: DataFacts,
    mask: str,
    which: Which = "last",
    target: str = "auto",
) -> Number | None:
    mine = [r for r in results if r.data == data and r.spec.settings["train"]["mask"] == mask]
    return over_seeds(mine, measured("rcbc", which, target))


def _paper(data: DataFacts, mask: str) -> paper.Figure | None:
    env, kind = data.row or ("", "")
    return paper.CAPABILITIES.get((env, kind, "rcbc"), {}).get(MASKS[mask] or "")
