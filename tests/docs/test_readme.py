"""The README and the docs are true: programs run, links lead somewhere, commands exist."""

from __future__ import annotations

import contextlib
import functools
import io
import re
import shlex
from pathlib import Path

import pytest

import mtm
from mtm.cli import VERBS, main

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.rglob("*.md")])
NAMES = [page.relative_to(ROOT).as_posix() for page in PAGES]
MOST_LINES_OF_THE_README = 120
ELSEWHERE = {"docs/guides/deploying.md"}
"""Pages whose programs `tests/deploy/test_guide.py` runs, each where it belongs."""


def blocks(page: Path, language: str) -> list[str]:
    """The code blocks of a page, also those that a list indents."""
    found = re.findall(
        rf"^( *)```{language}\n(.*?)^ *```", page.read_text(), re.DOTALL | re.MULTILINE
    )
    return [re.sub(rf"^{indent}", "", block, flags=re.MULTILINE) for indent, block in found]


@pytest.mark.parametrize(
    "name",
    [n for n, p in zip(NAMES, PAGES, strict=True) if blocks(p, "python") and n not in ELSEWHERE],
)
def test_programs_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of a page, one after the other: a later one may go on from an earlier one."""
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    for number, block in enumerate(blocks(ROOT / name, "python"), start=1):
        exec(compile(block, f"{name}, block {number}", "exec"), names)


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_somewhere(name: str) -> None:
    page = ROOT / name
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL)
    found = re.findall(r"\]\(([^)#\s]+)[^)]*\)", text) + re.findall(r'src="([^"]+)"', text)
    for link in found:
        if "://" not in link:
            assert (page.parent / link).exists(), f"{name} links to {link}"


@pytest.mark.parametrize("name", NAMES)
def test_commands_exist(name: str) -> None:
    """Every `mtm VERB --flag` of a page, in a block or in a line, is one that the help knows."""
    page = ROOT / name
    lines = [
        line for block in blocks(page, "sh") for line in block.replace("\\\n", " ").split("\n")
    ]
    lines += re.findall(r"`(mtm [^`]+)`", page.read_text())
    for line in lines:
        words = shlex.split(line, comments=True)
        if "mtm" not in words or words[0] not in ("mtm", ".venv/bin/mtm"):
            continue
        words = words[1:]
        if words[0] in ("VERB", "--help", "--version"):
            continue
        verb = next((v for v in (" ".join(words[:2]), words[0]) if v in VERBS), None)
        group = [v for v in VERBS if v.startswith(f"{words[0]} ")]
        assert verb or group, f"{name}: mtm {words[0]} is no verb"
        for flag in (w.partition("=")[0] for w in words if w.startswith("--")):
            assert verb, f"{name}: {line}"
            assert re.search(rf"{flag}(?![\w-])", help_of(verb)), f"{name}: {verb} has no {flag}"


@functools.cache
def help_of(verb: str) -> str:
    """What `mtm VERB --help` prints."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text), pytest.raises(SystemExit):
        main([*verb.split(), "--help"])
    return text.getvalue()


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= MOST_LINES_OF_THE_README


def test_the_api_pages_have_every_public_name() -> None:
    text = "\n".join(page.read_text() for page in (DOCS / "api").glob("*.md"))
    documented = {path.rsplit(".", 1)[-1] for path in re.findall(r"^::: (\S+)", text, re.MULTILINE)}
    assert not set(mtm.__all__) - documented


def test_the_pictures_are_as_drawn_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(DOCS)
    import draw_pictures

    for name, text in draw_pictures.pictures().items():
        assert (DOCS / "images" / name).read_text() == text, "run: python docs/draw_pictures.py"
