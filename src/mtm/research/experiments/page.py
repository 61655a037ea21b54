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
from mtm.research.experiments.result_tables import Claim, Drawing, Table, data_notes, data_sets
from mtm.research.experiments.runner import Result
from mtm.research.experiments.scales import Scale

HOW_TO_READ = (
    "`mean ± std [low, high]`: mean and standard deviation over seeds (n - 1), and the 95 % "
    "confidence interval of the mean (Student's t) where there are at least 3 seeds; one seed has "
    "neither. In pictures, dots are seeds, and bands the standard deviation. `last` is the "
    "newest checkpoint, "
    "`best` the one with the lowest held-out loss. "
    "`auto` asks for the best of the data's episode returns; \\* was chosen by looking at the "
    "environment, and does not compare with methods that do not look. A claim holds if "
    "it does in most of the cases that were measured; *comparable* allows the larger standard "
    "deviation of the two."
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
    parts = [f"# {title}"]
    for table in drawing.tables:
        parts += [f"## {table.title}", _markdown(table)]
    parts += [f"![{picture}]({picture})" for picture in drawing.pictures]
    parts += [HOW_TO_READ, _list(drawing.notes)]
    parts += ["## Claims of the paper", _claims(drawing.claims)]
    failed = [f"{r.spec.label}: {r.reason}" for r in results if r.reason]
    if failed:
        parts += ["## Not measured", _list(failed)]
    parts += ["## Data", _list(data_notes(data_sets(results)))]
    parts += ["## Where the numbers come from", _provenance(about)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _claims(claims: Sequence[Claim]) -> str:
    """All claims with their verdicts, then the cases of each."""
    verdicts, cases = [], []
    for number, claim in enumerate(claims, start=1):
        good = sum(case.good for case in claim.cases)
        share = f"{good} of {len(claim.cases)}" if claim.cases else "-"
        verdicts.append([str(number), claim.text, claim.verdict, share])
        cases += [
            [str(number), c.where, f"{c.ours:.4g}", f"{c.other:.4g}", "yes" if c.good else "no"]
            for c in claim.cases
        ]
    summary = Table("Claims", ("no.", "claim", "verdict", "cases"), verdicts)
    listed = Table("Cases", ("no.", "case", "ours", "against", "true of it"), cases)
    return _markdown(summary) + ("\n\n" + _markdown(listed) if cases else "")


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
        "threads": scale.threads,
        "budgets": _budgets(results),
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
        f"{', '.join(map(str, about['episodes']))} episode(s) for every policy and target; "
        f"{about['threads']} CPU thread(s) for every run.",
        "Runs with the same data and seed share the split, the normalisation and the seeds of the "
        "episodes.",
    ]
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
