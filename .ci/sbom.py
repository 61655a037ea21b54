"""Write the bill of materials of `make dist`: CycloneDX, of all that it is tested with.

That is what constraints.txt pins and what this needs in turn, as it is installed.
"""

from __future__ import annotations

import argparse
import json
import re
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
NAME = "masked-trajectory-models"


def main() -> None:
    """Write FOLDER/NAME-VERSION.cdx.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    pins = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        name, _, version = line.partition("#")[0].partition(";")[0].partition("==")
        if version:
            pins[normal(name)] = version.strip()
    waiting = [*pins, NAME]
    while waiting:
        for name in requirements(waiting.pop()):
            if name not in pins and (found := installed(name)) is not None:
                pins[name] = found
                waiting.append(name)
    (source,) = re.findall(
        r'^__version__ = "(.+)"', (ROOT / "src/mtm/__init__.py").read_text(), re.MULTILINE
    )
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {**component(NAME, source), "type": "library"}},
        "components": [component(name, version) for name, version in sorted(pins.items())],
        "dependencies": [
            {"ref": purl(name, version), "dependsOn": needs(name, pins)}
            for name, version in sorted({**pins, NAME: source}.items())
        ],
    }
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{NAME.replace('-', '_')}-{source}.cdx.json"
    file.write_text(json.dumps(bill, indent=2) + "\n")
    print(f"{file}: {len(pins)} components")


def component(name: str, version: str) -> dict[str, Any]:
    """What is known of a package."""
    made = {"type": "library", "name": name, "version": version}
    made |= {"purl": purl(name, version), "bom-ref": purl(name, version)}
    try:
        about = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return made
    licence = about.get("License-Expression")
    return made | ({"licenses": [{"expression": licence}]} if licence else {})


def needs(name: str, pins: dict[str, str]) -> list[str]:
    """The listed packages that a package requires without extras."""
    return sorted(purl(found, pins[found]) for found in requirements(name) if found in pins)


def requirements(name: str) -> set[str]:
    """The packages that a package requires without extras; none where it is not installed."""
    try:
        required = metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        return set()
    return {normal(re.split(r"[\s;<>=!~\[(]", r)[0]) for r in required if "extra ==" not in r}


def installed(name: str) -> str | None:
    """The version of a package; None where it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def purl(name: str, version: str) -> str:
    """The package's address, by the rules of package-url."""
    return f"pkg:pypi/{name}@{version}"


def normal(name: str) -> str:
    """The one spelling of a package's name."""
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


if __name__ == "__main__":
    main()
