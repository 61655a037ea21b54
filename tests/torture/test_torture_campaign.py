"""The campaign as a whole: nothing is left out, what cannot be tried is told, the page is right."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from torture.__main__ import command, parser
from torture.campaign import CASES, PARTS, SHARES, Task, do, tasks
from torture.fuzz_kinds import KINDS
from torture.mutations import mutated
from torture.outcomes import Row
from torture.page import BEGIN, END, PAGE, RESULT, counts, with_counts

from torture import campaign, supply

NO_READER = "yaml and packaging, which read advisories, are not installed"

RESULT_OF_A_CAMPAIGN = {
    "about": {
        "commit": None,
        "machine": {"cores": 2, "processor": "P", "system": "Linux"},
    },
    "command": "make torture",
    "jobs": 2,
    "seconds": 120.0,
}

JINJA = """
id: PYSEC-1
modified: '2021-03-22T16:34:00Z'
affected:
- package: {name: Jinja2, ecosystem: PyPI}
  ranges:
  - {type: ECOSYSTEM, events: [{introduced: '0'}, {fixed: 2.11.3}]}
"""


def test_everything_is_tried_once() -> None:
    todo = tasks(PARTS, {"kill": 7, "fuzz": 10 * len(KINDS) - 1}, 30.0, None)
    for part, (names, _) in SHARES.items():
        tried = Counter(name for task in todo if task.part == part for name in task.about)
        assert tried == Counter(names)
    assert {task.part for task in todo} == set(PARTS)
    assert {task.cases for task in todo if task.part == "kill"} == {7}
    assert {task.cases for task in todo if task.part == "fuzz"} == {10}


def test_the_campaign_is_as_large_as_it_is_said_to_be() -> None:
    assert CASES["kill"] >= 50
    assert CASES["fuzz"] >= 20_000


def test_a_seed_makes_its_case_again() -> None:
    """Whatever other cases came before it."""
    plain = {"a": [1, {"b": []}], "c": None}
    first = [repr(mutated(plain, random.Random(seed))) for seed in range(2000)]
    assert first == [repr(mutated(plain, random.Random(seed))) for seed in range(2000)]
    assert plain == {"a": [1, {"b": []}], "c": None}


def test_what_cannot_even_be_prepared_is_a_fault() -> None:
    (row,) = do(Task("hosts", ("no such case",)))
    assert "could not be tried" in row.faults[0]


def test_a_case_that_cannot_be_tried_leaves_the_rows_of_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(supply, "ROOT", tmp_path)  # no bill can be made there
    monkeypatch.setattr(supply, "_pip", lambda *_: subprocess.CompletedProcess([], 0, "", ""))
    rows = {row.what: row for row in supply.supply()}
    assert "could not be tried" in rows["the bill of materials lists them"].faults[0]
    assert rows["pins can be installed together"].outcomes == {"pip resolves them": 1}


def test_a_worker_that_dies_is_a_fault_of_its_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "do", die)
    *_, rows = campaign.run([Task("soak"), Task("kill")], 1, lambda task, rows: None)
    assert [row.part for row in rows] == ["soak", "kill"]
    assert all("could not be tried" in row.faults[0] for row in rows)


def test_nothing_more_is_begun_after_an_interruption(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "do", interrupt)
    said: list[str] = []
    todo = [Task("soak"), *(Task("numbers") for _ in range(5))]
    with pytest.raises(KeyboardInterrupt):
        list(campaign.run(todo, 1, lambda task, rows: said.append(task.part)))
    assert said == []


def die(task: Task) -> list[Row]:
    """In a worker."""
    os._exit(1)


def interrupt(task: Task) -> list[Row]:
    """In a worker."""
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("words", "typed"),
    [
        ("--jobs 2", "--jobs 2"),
        ("--part kill --out=/home/x --jo 3", "--parts kill --jobs 3"),
        ("--adv=/home/y --case kill=5 --jobs 2", "--cases kill=5 --advisories DIR --jobs 2"),
        ("--minutes 5 --jobs 2", "--minutes 5 --jobs 2"),
    ],
)
def test_the_command_names_no_place_of_this_machine(words: str, typed: str) -> None:
    assert command(parser().parse_args(words.split())) == f'make torture ARGS="{typed}"'


@pytest.mark.parametrize(
    ("events", "versions"),
    [
        ([{"introduced": "0"}, {"fixed": "2.0"}], {"1.9": True, "2.0": False}),
        ([{"introduced": "0"}, {"last_affected": "2.0"}], {"2.0": True, "2.0.1": False}),
        ([{"introduced": "1.5"}], {"1.4": False, "1.5": True, "9": True}),
        (
            [{"introduced": "3.0"}, {"fixed": "3.2"}, {"introduced": "1.0"}, {"fixed": "1.10"}],
            {"1.9": True, "1.10": False, "2.0": False, "3.1": True, "3.2": False},
        ),
    ],
)
def test_versions_within_the_ranges_of_an_advisory(
    events: list[dict[str, str]], versions: dict[str, bool]
) -> None:
    advisories = pytest.importorskip("torture.advisories", reason=NO_READER, exc_type=ImportError)
    package = {"ranges": [{"type": "ECOSYSTEM", "events": events}]}
    assert {version: advisories.affects(package, version) for version in versions} == versions


def test_vulnerabilities_by_a_copy_of_a_database(tmp_path: Path) -> None:
    look_up = pytest.importorskip(
        "torture.advisories", reason=NO_READER, exc_type=ImportError
    ).look_up
    (tmp_path / "jinja2").mkdir()
    (tmp_path / "jinja2" / "PYSEC-1.yaml").write_text(JINJA)
    row = Row("supply", "known vulnerabilities")
    look_up({"jinja2": "2.11.2", "numpy": "2.0"}, tmp_path, row)
    assert row.faults == ["jinja2 2.11.2: PYSEC-1"]
    assert row.outcomes == {"none of 1 known on 2021-03-22": 1}
    (tmp_path / "jinja2" / "PYSEC-1.yaml").unlink()
    look_up({"jinja2": "2.11.2"}, tmp_path, empty := Row("supply", "known vulnerabilities"))
    assert empty.faults  # nothing is not sound


def test_the_page_has_the_counts_of_the_result() -> None:
    page, results = PAGE.read_text(), json.loads(RESULT.read_text())
    assert page == with_counts(page, results), "write it again: python -m torture.page"
    assert page.count(BEGIN) == page.count(END) == 1


def test_the_result_is_of_the_campaign_as_it_is() -> None:
    rows = [row for result in json.loads(RESULT.read_text()) for row in result["rows"]]
    told = {row["what"] for row in rows if row["part"] == "hosts"}
    assert told <= set(SHARES["hosts"][0]), "hosts were tried by an older campaign: try them again"


def test_the_page_tells_of_parts_that_no_result_speaks_of() -> None:
    row = Row("fuzz", "npz", cases=1)
    page = with_counts(f"{BEGIN}{END}", [RESULT_OF_A_CAMPAIGN | {"rows": [row.to_json()]}])
    (told,) = [line for line in page.splitlines() if "not tried yet" in line]
    assert set(told.partition(": ")[2].rstrip(".").split(", ")) == set(PARTS) - {"fuzz"}


def test_every_promise_names_tests_that_are_there() -> None:
    table = PAGE.read_text().partition("| promise | test |")[2].partition("\n\n")[0]
    rows = table.strip().splitlines()[1:]
    for row in rows:
        named = re.findall(r"`((?:tests|torture)/\S+?\.py)`", row.rpartition(" | ")[2])
        assert named, row
        for file in named:
            assert (PAGE.parents[1] / file).is_file(), file
    assert len(rows) > 15


def test_the_page_tells_what_broke_and_what_was_not_tried() -> None:
    held, broke, idle = Row("kill", "train"), Row("kill", "eval"), Row("hosts", "two")
    held.held("went on")
    held.held("went on")
    broke.broke("a | b <c>")
    idle.skipped = "only root may"
    said = counts(RESULT_OF_A_CAMPAIGN | {"rows": [row.to_json() for row in (held, broke, idle)]})
    assert "| kill | 2 verbs killed | 3 | 1 | went on |" in said
    assert "- kill, eval: a \\| b \\<c\\>" in said
    assert "- two (hosts): only root may" in said
