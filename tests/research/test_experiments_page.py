"""The page of an experiment: what comes from data and errors is text, on one line."""

from __future__ import annotations

from pathlib import Path

from mtm.research.experiments.page import write_page
from mtm.research.experiments.result_tables import Drawing, Table
from mtm.research.experiments.runner import Result
from mtm.research.experiments.scales import SCALES
from mtm.research.experiments.spec import RunSpec

EVIL = "<img src=x onerror=alert(1)>"


def test_names_and_reasons_are_text_not_markup(tmp_path: Path) -> None:
    table = Table("Scores", ("data", "score"), [(f"{EVIL} | a\npipe", "1.0")])
    failed = Result(RunSpec("mtm", EVIL, 0, {}, label=EVIL), None, None, None, f"no\nfile {EVIL}")
    page = write_page(
        *("table1", "Table 1", Drawing([table], [], [], []), [failed], tmp_path),
        scale=SCALES["smoke"],
        command="mtm reproduce table1",
    ).read_text()
    shown = EVIL.replace("<", "&lt;")
    assert EVIL not in page
    assert f"\n| {shown} \\| a pipe | 1.0 |\n" in page
    assert f"\n- {shown}: no file {shown}\n" in page
