"""The page that is shipped is what its source gives."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "studio"
SHIPPED = ROOT / "src/mtm/evaluation/studio/page"
CURE = "run `make studio` and commit what it writes"


def digest_of_source() -> str:
    """SHA-256 over each file's path and digest, as `studio/vite.config.js` writes it."""
    files = {
        file.relative_to(SOURCE).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in SOURCE.rglob("*")
        if file.is_file() and "node_modules" not in file.relative_to(SOURCE).parts
    }
    lines = "".join(f"{name} {digest}\n" for name, digest in sorted(files.items()))
    return hashlib.sha256(lines.encode()).hexdigest()


def contents(folder: Path) -> dict[str, bytes]:
    return {
        file.relative_to(folder).as_posix(): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def test_the_page_was_built_from_this_source() -> None:
    told = json.loads((SHIPPED / "manifest.json").read_text())["source_sha256"]
    assert told == digest_of_source(), CURE


def test_building_again_gives_the_same_bytes(tmp_path: Path) -> None:
    if shutil.which("npm") is None:
        pytest.skip("building the page needs Node.js, which is not here")
    if not (SOURCE / "node_modules" / ".package-lock.json").is_file():  # npm writes it last
        pytest.skip("building the page needs its libraries: `npm --prefix studio ci`")
    version = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True)
    if int(version.stdout.strip().lstrip("v").split(".")[0]) < 20:
        pytest.skip(f"building the page needs Node.js 20 or newer, here is {version.stdout}")
    built = subprocess.run(
        ["npm", "--prefix", str(SOURCE), "run", "build"],
        env=os.environ | {"STUDIO_OUT": str(tmp_path / "page")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    fresh, shipped = contents(tmp_path / "page"), contents(SHIPPED)
    assert fresh.keys() == shipped.keys(), CURE
    assert [name for name in shipped if fresh[name] != shipped[name]] == [], CURE


def test_the_page_is_small_and_takes_nothing_from_elsewhere() -> None:
    files = contents(SHIPPED)
    assert sum(map(len, files.values())) < 400_000
    assert not [name for name in files if name.endswith(".map")]
    page = files["index.html"].decode()
    assert "http://" not in page
    assert "https://" not in page
    assert "<style" not in page
    assert "<script>" not in page
