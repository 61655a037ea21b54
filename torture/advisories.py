"""Known vulnerabilities of the pins by a copy of an advisory database, where none can be asked.

The copy is a folder of OSV documents, a file for each vulnerability, as
https://github.com/pypa/advisory-database holds them below `vulns/`. It knows what was known on the
day of its newest document.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from packaging.version import InvalidVersion, Version

from torture.outcomes import Row


def look_up(pins: Mapping[str, str], folder: Path, row: Row) -> None:
    """Compare pins with all documents; a case for each pin."""
    found: dict[str, list[str]] = {name: [] for name in pins}
    newest, count = "", 0
    for document in _documents(folder):
        count += 1
        newest = max(newest, str(document.get("modified", ""))[:10])
        if document.get("withdrawn"):
            continue
        for package in document.get("affected", []):
            name = _name(package["package"])
            if name in pins and affects(package, pins[name]):
                found[name].append(document["id"])
    if not count:
        row.broke(f"{folder} holds no documents of an advisory database (.yaml or .json)")
        return
    for name, version in pins.items():
        if found[name]:
            row.broke(f"{name} {version}: {', '.join(sorted(set(found[name])))}")
        else:
            row.held(f"none of {count:,} known on {newest}")


def affects(package: Mapping[str, Any], pinned: str) -> bool:
    """Whether an entry of `affected` names a version, or has it within one of its ranges."""
    version = Version(pinned)
    if pinned in package.get("versions", ()):
        return True
    ranges = [r for r in package.get("ranges", ()) if r["type"] == "ECOSYSTEM"]
    return any(_within(version, events["events"]) for events in ranges)


def _within(version: Version, events: list[dict[str, str]]) -> bool:
    """Whether a version lies behind an introduction and before what ended it.

    An event that names no version of Python's is no reason to take a pin for sound: it raises.
    """
    inside = False
    for event in sorted(events, key=_place):
        ((kind, _),) = event.items()
        at = _place(event)
        if kind == "introduced":
            inside = inside or version >= at
        elif version > at or (kind == "fixed" and version == at):  # the last affected one is
            inside = False
    return inside


def _place(event: Mapping[str, str]) -> Version:
    ((_, text),) = event.items()
    try:
        return Version(text)
    except InvalidVersion as error:
        raise ValueError(f"an advisory speaks of version {text!r}") from error


def _name(package: Mapping[str, str]) -> str:
    name = package["name"] if package["ecosystem"] == "PyPI" else ""
    return re.sub(r"[-_.]+", "-", name).lower()


def _documents(folder: Path) -> Iterator[dict[str, Any]]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    for file in sorted(folder.rglob("*")):
        if file.suffix in (".yaml", ".yml"):
            plain = yaml.load(file.read_text(), loader)
        elif file.suffix == ".json":
            plain = json.loads(file.read_text())
        else:
            continue
        if isinstance(plain, dict) and "affected" in plain:
            yield plain
