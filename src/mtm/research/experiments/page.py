"""The results of an experiment as files: README.md, results.csv, results.json, pictures."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mtm.core.atomic_write import write_atomically
from mtm.research.experiments.over_seeds import Number
from mtm.research.experiments.result_tables import Drawing, Table, data_notes, data_sets
from mtm.research.experiments.runner import Result
from mtm.research.experiments.scales import Scale
from mtm.research.experiments.verdicts import (
    PERCENT,
    POINTS,
    VERDICTS,
    Claim,
    difference_text,
)

HOW_TO_READ = (
    "`mean ± std [low, high]`: mean and standard deviation over seeds (n - 1), and the 95 % "
    "confidence interval of the mean (Student's t) where there are at least 3 seeds; one seed has "
    "neither. In pictures, dots are seeds, and bands the standard deviation. `last` is the "
    "newest checkpoint, "
    "`best` the one with the lowest loss on the validation episodes. Errors are of test episodes. "
    "`auto` asks for the best of the data's episode returns; \\* was chosen by looking at the "
    "environment, and does not compare with methods that do not look."
)

VERDICTS_EXPLAINED = (
    "Methods are compared seed by seed, and a claim is judged by the 95 % interval of the mean "
    "difference over its cases, which count alike (Student's t; at least 3 seeds of both for every "
    f"case). *Comparable*: the interval lies within {POINTS:g} points, of errors and times within "
    f"{PERCENT:g} % of the other's. *Supported*: all of the interval agrees with the claim, where "
    "`as well as` allows being worse by what is comparable. *Contradicted*: none of it does. "
    "*Undecided*: it does not say, or there are too few seeds. Differences are ours less the "
    "other's; of errors and times `x` is ours over the other's. `chance`: that a run of ours "
    "is better than one of the other."
)


def write_page(
    name: str,
    title: str,
    drawing: Drawing,
    results: Sequence[Result],
    out: Path,
    *,
    scale: Scale,
    command: str,
) -> Path:
    """Write everything but the pictures, which are drawn already; returns the page."""
    about = _about(results, scale, command)
    content = {
        "experiment": name,
        "title": title,
        "numbers": list(drawing.records),
        "claims": [asdict(claim) for claim in drawing.claims],
        "failed": [{"run": r.spec.label, "reason": r.reason} for r in results if r.reason],
        "about": about,
    }
    write_atomically(out / "results.json", json.dumps(content, indent=2).encode())
    write_atomically(out / "results.csv", _csv(drawing.records).encode())
    write_atomically(out / "README.md", _page(title, drawing, results, about).encode())
    return out / "README.md"


def _page(title: str, drawing: Drawing, results: Sequence[Result], about: Mapping[str, Any]) -> str:
    older = [_of_older_code(results)] if any(r.is_older for r in results) else []
    parts = [*older, f"# {title}"]
    for table in drawing.tables:
        parts += [f"## {table.title}", _markdown(table)]
    parts += [f"![{picture}]({picture})" for picture in drawing.pictures]
    parts += [HOW_TO_READ, _list(drawing.notes)]
    parts += ["## Claims of the paper", VERDICTS_EXPLAINED, _claims(drawing.claims)]
    failed = [f"{r.spec.label}: {r.reason}" for r in results if r.reason]
    if failed:
        parts += ["## Not measured", _list(failed)]
    parts += ["## Data", _list(data_notes(data_sets(results)))]
    parts += ["## Where the numbers come from", _provenance(about)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _of_older_code(results: Sequence[Result]) -> str:
    """The first line of a page that shows results of older code."""
    shown = [r for r in results if r.value is not None]
    older = [r for r in shown if r.is_older]
    commits = {str((r.provenance or {}).get("commit") or "unknown")[:12] for r in older}
    return (
        f"**Of older code**: {len(older)} of the {len(shown)} results below were made by code that "
        f"has changed since (commit {', '.join(sorted(commits))})."
    )


def _claims(claims: Sequence[Claim]) -> str:
    """All claims with their verdicts, then the cases of each."""
    verdicts, cases = [], []
    for number, claim in enumerate(claims, start=1):
        told = [case.verdict for case in claim.cases]
        counts = [f"{told.count(word)} {word}" for word in VERDICTS if word in told]
        chance = "-" if claim.probability is None else f"{claim.probability:.0%}"
        if claim.probability_interval is not None:
            chance += " [{:.0%}, {:.0%}]".format(*claim.probability_interval)
        shown = difference_text(claim.difference, claim.interval, is_ratio=claim.is_ratio)
        summary = [shown, chance, ", ".join(counts) or "-"]
        verdicts.append([str(number), claim.text, f"**{claim.verdict}**", *summary])
        for c in claim.cases:
            shown = difference_text(c.difference, c.interval, is_ratio=claim.is_ratio)
            means = [f"{c.ours:.4g}", f"{c.other:.4g}", str(c.pairs)]
            cases.append([str(number), c.where, *means, shown, c.verdict])
    summary_of = ("no.", "claim", "verdict", "difference", "chance", "cases")
    parts = [_markdown(Table("Claims", summary_of, verdicts))]
    if cases:
        columns = ("no.", "case", "ours", "against", "pairs", "difference", "verdict")
        parts.append(_markdown(Table("Cases", columns, cases)))
    return "\n\n".join(parts)


def _about(results: Sequence[Result], scale: Scale, command: str) -> dict[str, Any]:
    """Command, budgets, seeds, and every distinct origin of the results."""
    origins: list[Mapping[str, Any]] = []
    for result in results:
        if result.provenance is not None and result.provenance not in origins:
            origins.append(result.provenance)
    return {
        "command": command,
        "scale": scale.name,
        "seeds": sorted({r.spec.seed for r in results}),
        "episodes": sorted({n for r in results if (n := r.spec.episodes) is not None}),
        "sweep_episodes": scale.sweep_episodes,
        "threads": scale.threads,
        "budgets": _budgets(results),
        "of_older_code": sum(r.is_older for r in results),
        "left_out": sum(r.value is None and r.reason is None for r in results),
        "origins": origins,
    }


def _budgets(results: Sequence[Result]) -> list[dict[str, Any]]:
    """Steps, batch and time of the finished runs, by method."""
    groups: dict[tuple[str, int | None, int | None], list[Result]] = {}
    for result in results:
        key = (result.spec.method, result.spec.steps, result.spec.batch_size)
        groups.setdefault(key, []).append(result)
    budgets = []
    for (method, steps, batch), mine in groups.items():
        seconds = Number.of(r.value.get("seconds") for r in mine if r.value is not None)
        budgets.append(
            {
                "method": method,
                "steps": steps,
                "batch_size": batch,
                "runs": len(mine),
                "finished": sum(r.value is not None for r in mine),
                "seconds": None if seconds is None else seconds.mean,
            }
        )
    return budgets


def _provenance(about: Mapping[str, Any]) -> str:
    rows = [
        [
            str(b["method"]),
            "-" if b["steps"] is None else f"{b['steps']:,}",
            "-" if b["batch_size"] is None else f"{b['batch_size']:,}",
            f"{b['finished']} of {b['runs']}",
            "-" if b["seconds"] is None else f"{b['seconds']:,.0f}",
        ]
        for b in about["budgets"]
    ]
    columns = ("method", "steps", "batch", "runs finished", "seconds of training, mean")
    lines = [
        f"Command: `{about['command']}`",
        f"Scale {about['scale']}; seeds {', '.join(map(str, about['seeds']))}; "
        f"{', '.join(map(str, about['episodes'])) or 'no'} episode(s) for every policy at `auto`, "
        f"{about['sweep_episodes']} at the other targets of the sweep; "
        f"{about['threads']} CPU thread(s) for every run.",
        "Runs with the same data and seed share the split, the normalisation and the seeds of the "
        "episodes.",
    ]
    if about["left_out"]:
        lines.append(f"{about['left_out']} runs were not asked for, and have no result yet.")
    for origin in about["origins"]:
        machine, versions = origin["machine"], origin["versions"]
        told = ", ".join(f"{name} {version}" for name, version in versions.items())
        lines.append(
            f"Commit {origin['commit'] or 'unknown (not a checkout)'}; {told}; "
            f"{machine['system']}, {machine['processor']}, {machine['cores']} cores."
        )
    return _markdown(Table("Budgets", columns, rows)) + "\n\n" + _list(lines)


def _markdown(table: Table) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(_line(cell).replace("|", "\\|") for cell in cells) + " |"

    rule = "|" + "---|" * len(table.columns)
    return "\n".join([line(table.columns), rule, *(line(row) for row in table.rows)])


def _list(lines: Sequence[str]) -> str:
    return "\n".join("- " + _line(line) for line in lines)


def _line(text: str) -> str:
    """Text that stays on its line; names of data and messages of errors bring no HTML."""
    return text.replace("\n", " ").replace("<", "&lt;")


def _csv(records: Sequence[Mapping[str, Any]]) -> str:
    columns = list(dict.fromkeys(key for record in records for key in record))
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns)
    writer.writeheader()
    for record in records:
        values = " ".join(repr(value) for value in record["values"])
        writer.writerow({**record, "values": values})
    return text.getvalue()
