"""Check what `make dist` built: that nothing is missing, and that it works where nothing else is.

- The wheel holds the package as it is in `src`, data and templates too, and nothing else.
- The source distribution holds every file of the repository; its tests are found, and those of
  the documents pass.
- In an empty environment, away from the checkout, the wheel alone runs every program of the README,
  and with the extras that the README installs it runs the demo.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
CONSTRAINTS = ROOT / "constraints.txt"
EXTRAS = "sim,report"
"""What the README installs."""

ALL_HELP = """
from mtm.cli import VERBS, main
for verb in VERBS:
    try:
        main([*verb.split(), "--help"])
    except SystemExit as end:
        assert end.code == 0, verb
"""


def main() -> None:
    """Check the wheel and the source distribution of a folder."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="holds one wheel and one source distribution")
    folder: Path = parser.parse_args().folder.resolve()
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    with tempfile.TemporaryDirectory(prefix="mtm-dist-") as temporary:
        away = Path(temporary)
        check_contents_of_wheel(wheel)
        check_sdist(sdist, away)
        check_wheel_at_work(wheel, away)
    print(f"{wheel.name} and {sdist.name} are complete.")


def check_contents_of_wheel(wheel: Path) -> None:
    """The package is there, file by file, and beside it only the metadata."""
    source = ROOT / "src"
    expected = {
        file.relative_to(source).as_posix()
        for file in (source / "mtm").rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    _same("the wheel", held, expected)


def check_sdist(sdist: Path, away: Path) -> None:
    """Every file of the repository is there, and what the tests need is among them."""
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
        archive.extractall(away)
    if (ROOT / ".git").exists():  # it can also be checked where a source distribution was unpacked
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
        )
        tracked = {name for name in listed.stdout.split("\0") if name and (ROOT / name).exists()}
        _same("the source distribution", held & tracked, tracked)
    unpacked = away / sdist.name.removesuffix(".tar.gz")
    pytest = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
    for what in (["--collect-only", "--quiet"], ["tests/docs"]):
        _run([*pytest, *what], unpacked, PYTHONPATH=str(unpacked / "src"))


def check_wheel_at_work(wheel: Path, away: Path) -> None:
    """The wheel needs nothing but what it says it needs."""
    environment, work = away / "environment", away / "work"
    work.mkdir()
    _run([sys.executable, "-m", "venv", environment], work)
    python = environment / ("Scripts" if os.name == "nt" else "bin") / "python"
    mtm = python.with_name("mtm")
    install: list[str | Path] = [python, "-m", "pip", "install", "--quiet", "-c", CONSTRAINTS]
    _run([*install, wheel], work)
    _run([mtm, "--help"], work)
    _run([python, "-c", ALL_HELP], work)
    for number, block in enumerate(_programs((ROOT / "README.md").read_text(encoding="utf-8"))):
        program = work / f"readme_{number}.py"
        program.write_text(block, encoding="utf-8")
        _run([python, program], work)
    _run([*install, f"{wheel}[{EXTRAS}]"], work)
    _run([mtm, "demo", "--preset", "tiny", "--episodes", "1"], work)
    assert (work / "runs" / "demo" / "report" / "report.html").is_file()


def _programs(page: str) -> list[str]:
    found: list[str] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert found, "the README has no program"
    return found


def _same(what: str, held: set[str], expected: set[str]) -> None:
    missing, strange = sorted(expected - held), sorted(held - expected)
    if missing or strange:
        sys.exit(f"{what} lacks {missing or 'nothing'} and holds besides {strange or 'nothing'}.")


def _run(command: list[str | Path], folder: Path, **variables: str) -> None:
    """Run a command away from the checkout; what it says is shown only if it fails."""
    words = [str(word) for word in command]
    print("+", shlex.join(words).replace("\n", " "), flush=True)
    began = time.monotonic()
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | variables
    done = subprocess.run(
        words, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    if done.returncode != 0:
        sys.stdout.buffer.write(done.stdout)
        sys.exit(f"{Path(words[0]).name} ended with exit code {done.returncode}.")
    print(f"  {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
