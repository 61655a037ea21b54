"""What is installed: as pinned, consistent, listed, and without vulnerabilities that are known."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

from torture.outcomes import Row, tried

ROOT = Path(__file__).parents[1]
CONSTRAINTS = ROOT / "constraints.txt"
SECONDS = 600.0

NEEDED = ("yaml", "packaging")
"""What reads a copy of an advisory database; others bring it, we do not ask for it."""


def supply(
    advisories: Path | None = None, say: Callable[[Row], None] = lambda row: None
) -> list[Row]:
    """The pins, the bill of materials, the known vulnerabilities."""
    rows = []
    cases: list[tuple[str, Callable[[Row], None]]] = [
        ("pins are what is installed", _pins),
        ("pins can be installed together", _installable),
        ("the bill of materials lists them", _bill),
        ("known vulnerabilities, by pip-audit", _vulnerabilities),
        ("known vulnerabilities, by a copy", lambda row: _known(advisories, row)),
    ]
    for what, case in cases:
        row = Row("supply", what)
        with tried(row):
            case(row)
        say(row)
        rows.append(row)
    return rows


def pins() -> dict[str, str]:
    """Name -> version, of constraints.txt."""
    lines = (line.partition("#")[0].strip() for line in CONSTRAINTS.read_text().splitlines())
    found = {}
    for line in lines:
        name, exact, version = line.partition(";")[0].partition("==")
        if not exact:
            continue  # a range
        found[re.sub(r"[-_.]+", "-", name.strip()).lower()] = version.strip()
    return found


def _pins(row: Row) -> None:
    for name, version in pins().items():
        try:
            found = metadata.version(name)
        except metadata.PackageNotFoundError:
            row.held("not installed here")
            continue
        if found.partition("+")[0] == version:  # +cpu is how it was built
            row.held("as pinned")
        else:
            row.broke(f"{name} is pinned to {version}, {found} is installed")


def _installable(row: Row) -> None:
    """Pip finds every pin, and none excludes another."""
    words = ["install", "--dry-run", "--quiet", "--disable-pip-version-check"]
    done = _pip(*words, "-c", str(CONSTRAINTS), "-e", f"{ROOT}[dev]")
    if done.returncode and "connection" in done.stderr.lower():
        row.skipped = "there is no package index to ask"
    elif done.returncode:
        row.broke(done.stderr[-500:])
    else:
        row.held("pip resolves them")


def _bill(row: Row) -> None:
    with tempfile.TemporaryDirectory(prefix="mtm-supply-") as folder:
        words = [sys.executable, str(ROOT / ".ci" / "sbom.py"), folder]
        subprocess.run(words, check=True, timeout=SECONDS)
        (file,) = Path(folder).glob("*.cdx.json")
        bill = json.loads(file.read_text())
    listed = {part["name"]: part["version"] for part in bill["components"]}
    for name, version in pins().items():
        if listed.get(name) == version:
            row.held("listed")
        else:
            row.broke(f"{name} {version} is listed as {listed.get(name)}")


def _vulnerabilities(row: Row) -> None:
    """pip-audit asks PyPI; where that cannot be reached, nothing is known, and that is said."""
    try:
        metadata.version("pip-audit")
    except metadata.PackageNotFoundError:
        row.skipped = "pip-audit is not installed"
        return
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as listed:
        listed.write("".join(f"{name}=={version}\n" for name, version in pins().items()))
        listed.flush()
        words = ["-m", "pip_audit", "-r", listed.name, "--no-deps", "--disable-pip", "-f", "json"]
        done = subprocess.run(
            [sys.executable, *words], capture_output=True, text=True, timeout=SECONDS, check=False
        )
    if not done.stdout.strip():
        row.skipped = "the database of vulnerabilities cannot be reached from here"
        return
    parts = json.loads(done.stdout)["dependencies"]
    if all("skip_reason" in part for part in parts):  # which pip-audit takes for sound
        row.skipped = f"nothing could be looked up: {parts[0]['skip_reason'] if parts else ''}"
        return
    for part in parts:
        if "skip_reason" in part:
            row.held("not looked up")
        elif part.get("vulns"):
            row.broke(f"{part['name']} {part['version']}: {[v['id'] for v in part['vulns']]}")
        else:
            row.held("none known")


def _known(advisories: Path | None, row: Row) -> None:
    """Without the network: a folder of OSV documents, such as a clone of PyPA's."""
    if advisories is None:
        row.skipped = "no copy of an advisory database was named (--advisories)"
    elif missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        row.skipped = f"{' and '.join(missing)} are not installed, which read such a copy"
    else:
        from torture.advisories import look_up

        look_up(pins(), advisories, row)


def _pip(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pip", *words],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
