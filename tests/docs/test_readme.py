"""Every Python program of the README and the docs runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
BLOCKS = [
    (page.name, number, block)
    for page in PAGES
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL))
]


@pytest.mark.parametrize(
    ("page", "number", "block"), BLOCKS, ids=[f"{p}-{n}" for p, n, _ in BLOCKS]
)
def test_programs_run(page: str, number: int, block: str, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(block, f"{page}:{number}", "exec"), {})
    assert list(tmp_path.rglob("model.safetensors"))  # each of them trains something


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for link in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
            if "://" not in link:
                assert (page.parent / link).exists(), f"{page.name} links to {link}"


def test_commands_of_the_readme_exist() -> None:
    from mtm.cli import VERBS

    text = (ROOT / "README.md").read_text()
    for command in re.findall(r"mtm ((?:data |masks )?[a-z]+)(?= |`|\n)", text):
        if command.split()[0] not in ("masked",):
            assert any(command.startswith(verb) for verb in VERBS), command
