"""The page of a run: one document, and nothing that comes from data is taken for markup."""

from __future__ import annotations

import json
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from mtm.core.config import preset
from mtm.evaluation.report.page import write_report
from mtm.training.train import train

EVIL = "<img src=x onerror=alert(1)> & '\"co"
"""A name that a file or a folder can have."""


class Elements(HTMLParser):
    """The elements of a document with their attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Elements:
    """The report of a run whose folder, data and results have evil names."""
    folder = tmp_path_factory.mktemp("evil")
    file = folder / f"{EVIL}.npz"
    steps = np.arange(800)
    np.savez(file, states=np.sin(steps), actions=np.cos(steps), offsets=np.arange(0, 801, 40))
    run = train(str(file), replace(preset("tiny"), steps=2), folder / EVIL, silent=True)
    roll = {"target": 1.0, "episodes": 2, "length": {"mean": 3.0}}
    roll |= {"return": {"mean": 1.0, "std": 0.5}, "score": {"mean": None, "std": None}}
    rcbc = {"auto": roll, "fixed": roll, "sweep": {EVIL: roll}, "best": roll}
    errors = {"normalized": 0.25, "raw": 0.5, "copy_last": 0.75}
    result = {"step": 2, "seed": 0, "tasks": {"rcbc": rcbc, "fd": errors}}
    (run.path / "evaluation.json").write_text(json.dumps(result))
    return Elements(write_report(run, folder / "report", say=lambda _: None).read_text())


def test_names_are_text_not_markup(page: Elements) -> None:
    for place in (f"{EVIL}.npz. Everything below", f"fraction {EVIL}"):
        assert place in " ".join(page.text.split())
    assert page.text.count(EVIL) >= 4  # title, heading, data, table
    images = [attributes for tag, attributes in page.elements if tag == "img"]
    assert images
    assert all(str(image["src"]).startswith("data:image/png;base64,") for image in images)
    assert not [name for _, held in page.elements for name in held if name.startswith("on")]
    assert not [tag for tag, _ in page.elements if tag == "script"]


def test_links_lead_to_the_sections(page: Elements) -> None:
    links = [str(held["href"]) for tag, held in page.elements if tag == "a"]
    places = [f"#{held['id']}" for tag, held in page.elements if tag == "h2"]
    assert links == places
    assert {"#training", "#fd", "#returns", "#numbers"} <= set(places)


def test_errors_and_returns_have_tables_of_their_own(page: Elements) -> None:
    assert sum(tag == "table" for tag, _ in page.elements) == 2
    for cell in ("0.2500", "0.7500", "1 ± 0"):
        assert cell in page.text
    assert "acting: mean and standard deviation over 2 episodes" in page.text
