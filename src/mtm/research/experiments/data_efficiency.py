"""Score against the share of the data that has actions (the paper's data efficiency figure)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mtm.research.experiments import pictures, recipes
from mtm.research.experiments.heteromodal import (
    at_shares,
    labelled_shares,
    pairs,
    records_at_shares,
    score,
)
from mtm.research.experiments.over_seeds import text
from mtm.research.experiments.result_tables import (
    Drawing,
    Table,
    asked_for,
    data_sets,
)
from mtm.research.experiments.runner import Result
from mtm.research.experiments.scales import Scale
from mtm.research.experiments.spec import RunSpec
from mtm.research.experiments.verdicts import claim

TITLE = "Data efficiency"

DATA = {
    "smoke": ("builtin:hopper",),
    "cpu": ("d4rl:hopper-expert-v2",),
    "paper": ("d4rl:hopper-expert-v2", "d4rl:door-expert-v1"),
}

SERIES = ("MLP", "MLP, return-conditioned", "MTM", "MTM, two stages", "Heteromodal MTM")


def runs(scale: Scale, data: Sequence[str], seeds: int) -> list[RunSpec]:
    """Those of `heteromodal` at every share, without its oracle."""
    return [run for d in data for run in at_shares(scale, d, seeds, scale.shares)]


def draw(results: Sequence[Result], out: Path) -> Drawing:
    """A curve for every method."""
    sets = data_sets(results)
    rows = [
        [d.name, f"{share:.0%}", f"{share * d.steps:,.0f}", asked_for(results, d)]
        + [text(score(results, d, name, share)) for name in SERIES]
        for d in sets
        for share in labelled_shares(results, d)
    ]
    records = records_at_shares(results, SERIES)
    panels = {
        d.name: {
            name: [
                (share, number)
                for share in labelled_shares(results, d)
                if (number := score(results, d, name, share)) is not None
            ]
            for name in SERIES
        }
        for d in sets
    }
    picture = pictures.lines(
        out / "data-efficiency.png", panels, xlabel="share with actions", ylabel="score", log=True
    )
    columns = ("data", "with actions", "about so many steps", "asked for", *SERIES)
    claims = [
        claim("MTM is more data efficient than the MLP", pairs(results, "MTM", "MLP"), "better"),
        *(
            claim(
                f"Heteromodal MTM outperforms {other}",
                pairs(results, "Heteromodal MTM", other),
                "better",
            )
            for other in ("MTM", "MTM, two stages")
        ),
    ]
    notes = (
        "Last checkpoint, MTM acting in one stage and Heteromodal MTM in two, at the target "
        "`auto`; the paper shows a figure without numbers, of a million steps.",
        recipes.WHAT_ACTING_SEES,
    )
    return Drawing([Table("Scores", columns, rows)], records, claims, [picture], notes)
