"""What the site needs besides MkDocs: files of the repository as pages, and `*` in the navigation.

It also sees to it that no page loads anything from elsewhere: the site is read without a network.

Pages link to files outside of docs/, such as the measured tables in results/, by the path that also
works on a code host. Those files become part of the site under repository/, and the links are
turned to them.
"""

from __future__ import annotations

import logging
import os
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
OUTSIDE = ("results/**/*", "examples/*.py", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
"""Files of the repository that pages may link to."""

PLACE = "repository"
LINK = re.compile(r"(\]\()([^)#\s]+)")
LOADED = re.compile(r"<(?:script|link|img|iframe)[^>]*?(?:src|href)=[\"']?(?:https?:)?//[^\"'>]*")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Replace `folder/*` in the navigation by the other pages of the folder; newest date first."""
    config.nav = _expanded(config.nav, Path(config.docs_dir))
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what lies outside of docs/."""
    for pattern in OUTSIDE:
        for path in sorted(ROOT.glob(pattern)):
            if path.is_file():
                place = f"{PLACE}/{path.relative_to(ROOT).as_posix()}"
                files.append(File.generated(config, place, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links that leave docs/, or come from outside of it, to where the site has the file."""
    source = Path(page.file.abs_src_path or "")
    docs = Path(config.docs_dir)

    def turn(match: re.Match[str]) -> str:
        target = match.group(2)
        path = Path(os.path.normpath(source.parent / target))
        if "://" in target or not path.is_file():
            return match.group(0)
        inside = path.is_relative_to(docs)
        place = path.relative_to(docs if inside else ROOT).as_posix()
        place = place if inside else f"{PLACE}/{place}"
        start = posixpath.dirname(page.file.src_uri)
        return match.group(1) + posixpath.relpath(place, start or ".")

    return LINK.sub(turn, markdown)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Warn of what a page would load from elsewhere, which fails the build."""
    for found in LOADED.findall(output):
        logging.getLogger("mkdocs.hooks").warning("%s loads %s", page.file.src_uri, found)
    return output


def _expanded(nav: Any, docs: Path) -> Any:
    if isinstance(nav, dict):
        return {title: _expanded(part, docs) for title, part in nav.items()}
    if not isinstance(nav, list):
        return nav
    named = {page for entry in nav for page in _pages(entry)}
    pages: list[Any] = []
    for entry in nav:
        if isinstance(entry, str) and entry.endswith("/*"):
            found = (p.relative_to(docs).as_posix() for p in docs.glob(f"{entry[:-1]}*.md"))
            rest = sorted(set(found) - named)
            pages += rest[::-1] if all(Path(page).name[0].isdigit() for page in rest) else rest
        else:
            pages.append(_expanded(entry, docs))
    return pages


def _pages(entry: Any) -> list[str]:
    """The pages that an entry of the navigation names itself."""
    values = entry.values() if isinstance(entry, dict) else [entry]
    return [value for value in values if isinstance(value, str)]
