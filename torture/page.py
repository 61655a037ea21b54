"""The counts of docs/reliability.md, from what `make torture` wrote: no number is typed by hand.

`python -m torture.page runs/torture/torture.json` keeps the result in docs/torture.json and writes
the part of the page between the two marks. It takes several results of parts that were run apart;
without any it writes the page again.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from torture.campaign import PARTS

DOCS = Path(__file__).parents[1] / "docs"
RESULT, PAGE = DOCS / "torture.json", DOCS / "reliability.md"
BEGIN, END = "<!-- counts -->", "<!-- end of counts -->"

MANY = {
    "kill": "verbs killed",
    "power cut": "verbs, and what they renamed",
    "disk": "verbs on disks that are full, read-only, cut off",
    "damage": "kinds of files with digests, damaged",
    "fuzz": "kinds of input",
    "guided": "parsers, inputs guided by what they reach",
    "together": "pairs at once",
    "numbers": "kinds of odd numbers",
    "unsafe": "payloads",
}
"""Parts whose rows are told together; of others, each row is."""


def main(words: list[str]) -> None:
    """Write the page."""
    if words:
        found = [json.loads(Path(word).read_text()) for word in words]
        RESULT.write_text(json.dumps(found, indent=1) + "\n")
    PAGE.write_text(with_counts(PAGE.read_text(), json.loads(RESULT.read_text())))


def with_counts(page: str, results: list[dict[str, Any]]) -> str:
    """A page with the counts of some results between its marks."""
    before, _, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"the page has no {BEGIN} ... {END}")
    said = "\n\n".join([*map(counts, results), *_never_tried(results)])
    return f"{before}{BEGIN}\n\n{said}\n\n{END}{after}"


def counts(result: dict[str, Any]) -> str:
    """What a result says, as Markdown."""
    about, rows = result["about"], result["rows"]
    machine = about["machine"]
    commit = (about["commit"] or "unknown")[:10]
    lines = [
        f"Measured on {machine['cores']} cores ({machine['processor']}, {machine['system']}), "
        f"{result['jobs']} at a time, in {result['seconds'] / 60:.0f} minutes, "
        f"at commit `{commit}`:",
        "",
        "```sh",
        f"{result['command']}",
        "```",
        "",
        "| part | what | cases | broke | how they ended |",
        "|---|---|--:|--:|---|",
        *_lines(rows),
    ]
    broken = [(row, fault) for row in rows for fault in row["faults"]]
    if broken:
        lines += ["", "What broke:", ""]
        lines += [f"- {_plain(r['part'])}, {_plain(r['what'])}: {_plain(f)}" for r, f in broken]
    skipped = [row for row in rows if row["skipped"]]
    if skipped:
        lines += ["", "Not tried:", ""]
        lines += [f"- {_plain(r['what'])} ({r['part']}): {_plain(r['skipped'])}" for r in skipped]
    return "\n".join(lines)


def _never_tried(results: list[dict[str, Any]]) -> Iterator[str]:
    """Parts of the campaign that no result speaks of."""
    told = {row["part"] for result in results for row in result["rows"]}
    missing = [part for part in PARTS if part not in told]
    if missing:
        yield f"Parts of the campaign as it is now that were not tried yet: {', '.join(missing)}."


def _lines(rows: list[dict[str, Any]]) -> Iterator[str]:
    tried = sorted((row for row in rows if not row["skipped"]), key=lambda row: row["part"])
    for part, found in groupby(tried, key=lambda row: row["part"]):
        of_part = list(found)
        if part not in MANY:
            yield from (_line(part, r["what"], [r], r["outcomes"]) for r in of_part)
            continue
        ends: Counter[str] = Counter()
        for row in of_part:
            for what, count in row["outcomes"].items():
                ends[what.partition(":")[0]] += count
        yield _line(part, f"{len(of_part)} {MANY[part]}", of_part, ends)


def _line(part: str, what: str, rows: list[dict[str, Any]], ends: dict[str, int]) -> str:
    said = Counter(ends).most_common()
    listed = (f"{_plain(end)}: {count:,}" if len(said) > 1 else _plain(end) for end, count in said)
    cases, broke = (f"{sum(row[key] for row in rows):,}" for key in ("cases", "broke"))
    return f"| {part} | {_plain(what)} | {cases} | {broke} | {'; '.join(listed)} |"


def _plain(text: str) -> str:
    """Text that means nothing to Markdown, on one line."""
    short = " ".join(text.split())[:300]
    return "".join(f"\\{c}" if c in "\\`*_[]<>|#" else c for c in short)


if __name__ == "__main__":
    main(sys.argv[1:])
