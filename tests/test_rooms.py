"""The rooms of the house: imports point one way, files and functions stay small."""

from __future__ import annotations

import ast
import statistics
from pathlib import Path

import pytest

import mtm

ROOMS = (
    *("core", "data", "masks", "models", "runs", "training"),
    *("inference", "control", "evaluation", "deploy", "research", "cli"),
)
"""The way of the data: a room may import those before it, and itself."""

PACKAGE = Path(mtm.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))

MOST_ENTRIES = 15
MOST_LINES = 400
MOST_LINES_OF_A_FUNCTION = 70
MEDIAN_LINES = 180


def room_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def imported(file: Path) -> set[str]:
    """All modules of the package that a file imports, also within functions."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {name for name in found if name.split(".")[0] == "mtm"}


@pytest.mark.parametrize("room", ROOMS)
def test_imports_point_one_way(room: str) -> None:
    allowed = {"", *ROOMS[: ROOMS.index(room) + 1], "__version__"}
    upward = [
        f"{file.relative_to(PACKAGE)} imports {module}"
        for file in (PACKAGE / room).rglob("*.py")
        for module in imported(file)
        if room_of(module) not in allowed
    ]
    assert not upward


def test_the_top_level_is_the_rooms_and_little_else() -> None:
    entries = {p.name for p in PACKAGE.iterdir() if p.name != "__pycache__"}
    assert entries == {*ROOMS, "__init__.py", "__main__.py", "py.typed"}
    assert len(entries) <= MOST_ENTRIES


def test_files_hold_one_idea() -> None:
    lines = {str(f.relative_to(PACKAGE)): len(f.read_text().splitlines()) for f in FILES}
    assert not {name: count for name, count in lines.items() if count > MOST_LINES}
    assert statistics.median(lines.values()) < MEDIAN_LINES


def test_functions_fit_a_screen() -> None:
    long = [
        f"{file.relative_to(PACKAGE)}: {node.name} has {size} lines"
        for file in FILES
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef)
        if (size := node.end_lineno - node.lineno + 1) > MOST_LINES_OF_A_FUNCTION
    ]
    assert not long


def test_a_class_name_means_one_thing() -> None:
    """But for the arguments of each verb, and what is private to a file."""
    homes: dict[str, list[str]] = {}
    for file in FILES:
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(str(file.relative_to(PACKAGE)))
    twice = {name: files for name, files in homes.items() if len(files) > 1}
    assert twice.keys() <= {"Arguments"}


def test_the_public_names_are_there_and_are_all() -> None:
    assert sorted(mtm.__all__) == sorted({*mtm._HOMES, *mtm._MODULES})
    for name in mtm.__all__:
        assert getattr(mtm, name) is not None
    assert set(mtm.__all__) < set(dir(mtm))
    with pytest.raises(AttributeError, match="has no attribute 'rolout'"):
        mtm.rolout  # noqa: B018
