"""What longer segments do to return-conditioned acting (the paper's appendix)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mtm.research.experiments import pictures, recipes
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

TITLE = "Effect of the length of segments"

DATA = {
    "smoke": ("builtin:hopper",),
    "cpu": ("d4rl:walker2d-medium-replay-v2",),
    "paper": ("d4rl:walker2d-medium-replay-v2", "d4rl:door-cloned-v1"),
}


def runs(scale: Scale, data: Sequence[str], seeds: int) -> list[RunSpec]:
    """An MTM for every length, all else equal."""
    return [
        recipes.masked(
            scale, d, seed, changes={"model": {"segment_length": T}}, name=f"MTM, T = {T}"
        )
        for d in data
        for seed in range(seeds)
        for T in scale.lengths
    ]


def draw(results: Sequence[Result], out: Path) -> Drawing:
    """RCBC against T."""
    sets = data_sets(results)
    lengths = sorted({_length(r) for r in results})
    rows, records = [], []
    for d in sets:
        for T in lengths:
            numbers = {title: _score(results, d, T, *view) for title, view in COLUMNS.items()}
            rows.append(
                [d.name, str(T), asked_for(results, d), *(text(n) for n in numbers.values())]
            )
            records += [
                record(numbers[title], data=d.name, length=T, checkpoint=which, target=target)
                for title, (which, target) in COLUMNS.items()
            ]
    table = Table("RCBC score", ("data", "T", "asked for", *COLUMNS), rows)
    panels = {
        d.name: {
            "MTM": [(float(T), n) for T in lengths if (n := _score(results, d, T)) is not None]
        }
        for d in sets
    }
    picture = pictures.lines(
        out / "length.png", panels, xlabel="T, steps of a segment", ylabel="RCBC score", log=True
    )
    pairs = [
        Comparison(d.name, _score(results, d, lengths[-1]), _score(results, d, lengths[0]))
        for d in sets
    ]
    first, last = lengths[0], lengths[-1]
    claims = [claim(f"longer segments act better (T = {last} against {first})", pairs, "better")]
    notes = (
        "The paper shows a figure without numbers, on medium-replay data.",
        "What acting sees does not grow with T here, only what training sees.",
        recipes.WHAT_ACTING_SEES,
    )
    return Drawing([table], records, claims, [picture], notes)


def _length(result: Result) -> int:
    return int(result.spec.settings["train"]["model"]["segment_length"])


def _score(
    results: Sequence[Result],
    data: DataFacts,
    length: int,
    which: Which = "last",
    target: str = "auto",
) -> Number | None:
    mine = [r for r in results if r.data == data and _length(r) == length]
    return over_seeds(mine, measured("rcbc", which, target))
