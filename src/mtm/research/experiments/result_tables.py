"""What an experiment makes of its results: numbers and tables for people."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Literal, TypeAlias, get_args

from mtm.control.scores import score
from mtm.core.names import CAPABILITIES, PREDICTION_TASKS
from mtm.data.environment_ids import is_adroit
from mtm.research.experiments.data import DataFacts
from mtm.research.experiments.over_seeds import Number
from mtm.research.experiments.runner import Result
from mtm.research.experiments.verdicts import Claim

Which: TypeAlias = Literal["last", "best"]
CHECKPOINTS: tuple[Which, ...] = get_args(Which)
ERRORS = tuple(task for task in CAPABILITIES if task in PREDICTION_TASKS)
"""Tasks that are measured as errors: lower is better."""


@dataclass(frozen=True)
class Table:
    """For people; the same numbers are in the records."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Drawing:
    """The outcome of an experiment.

    Attributes:
        tables: For people.
        records: Every number with what it is, for CSV and JSON.
        claims: Of the paper.
        pictures: Names of the PNG files that were drawn.
        notes: What a reader must know besides.
    """

    tables: Sequence[Table]
    records: Sequence[Mapping[str, Any]]
    claims: Sequence[Claim]
    pictures: Sequence[str]
    notes: Sequence[str] = field(default=())


def over_seeds(
    results: Iterable[Result], pick: Callable[[Mapping[str, Any]], float | None]
) -> Number | None:
    """One number of every finished run of some that differ by their seed."""
    found = [(r.spec.seed, pick(r.value)) for r in results if r.value is not None]
    return Number.of([value for _, value in found], [seed for seed, _ in found])


def measured(
    task: str, which: Which = "last", target: str = "auto", *, raw: bool = False
) -> Callable[[Mapping[str, Any]], float | None]:
    """What to pick of a run: the error of `fd` and `id`, the score of the tasks that act.

    Args:
        task: As in docs/guides/acting.md, or the name of an agent.
        which: The last checkpoint, or the one with the lowest held-out loss.
        target: `auto`, `fixed`, or `best` of the sweep.
        raw: Errors in the data's own units, instead of normalised.
    """

    def pick(value: Mapping[str, Any]) -> float | None:
        found = value[which]["tasks"].get(task)
        if found is None:
            return None
        if task in ERRORS:
            error = found["raw" if raw else "normalized"]  # classes have no normalised one
            return None if error is None else float(error)
        if "auto" in found:  # it acts on a target
            found = found.get(target)
        if found is None:
            return None
        earned = found["score"]["mean"]  # None where there are no reference returns
        earned = found["return"]["mean"] if earned is None else earned
        return None if earned is None else float(earned)

    return pick


def asked_for(results: Iterable[Result], data: DataFacts, task: str = "rcbc") -> str:
    """The return that `auto` asks for on a data set, and what it would score, if that is known."""
    asked = []
    for result in results:
        found = (result.value or {}).get("last", {}).get("tasks", {}).get(task)
        if result.data == data and found and (found.get("auto") or {}).get("target") is not None:
            asked.append(float(found["auto"]["target"]))
    if not asked:
        return "-"
    mean = fmean(asked)
    earns = None if is_adroit(data.env_id) else score(data.env_id, mean)
    return f"{mean:,.0f}" + ("" if earns is None else f", score {float(earns):.1f}")


def data_sets(results: Iterable[Result]) -> list[DataFacts]:
    """The data sets of some results that could be had, each once, in order."""
    return list({r.data.spec: r.data for r in results if r.data is not None}.values())


def record(number: Number | None, **what: Any) -> dict[str, Any]:
    """A line of the CSV: what the number is, and the number."""
    empty: dict[str, Any] = {
        "mean": None,
        "std": None,
        "interval": None,
        "seeds": 0,
        "values": [],
    }
    return {**what, **(number.to_json() if number else empty)}


def data_notes(data: Iterable[DataFacts]) -> list[str]:
    """How the data relate to the paper's, a sentence each."""
    notes = []
    for d in data:
        size = f"{d.steps:,} steps, {d.episodes:,} episodes, fingerprint {d.fingerprint}"
        if d.is_papers:
            notes.append(f"{d.name} ({size}): the paper's data.")
        elif d.row is None:
            notes.append(f"{d.name} ({size}): **not the paper's data**, nor like any of them.")
        else:
            kind = " ".join(d.row)
            notes.append(
                f"{d.name} ({size}): **not the paper's data**; of these, {kind} comes nearest, and "
                "figures of the paper are those for it."
            )
    return notes
