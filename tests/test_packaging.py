"""What the package needs is what it says it needs, and a message names an extra that exists."""

from __future__ import annotations

import ast
import importlib
import re
import sys
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

import mtm
from mtm.core.config import TrainConfig

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest brings it

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
FOR_DEVELOPERS = {"dev", "docs"}
PACKAGE = Path(mtm.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
HOLDERS = packages_distributions()
"""The distributions that hold a library, of all that are installed."""


def plain(name: str) -> str:
    """One spelling of the name of a distribution, without versions and extras."""
    return re.match(r"[\w.-]+", name).group().lower().replace("_", "-")  # type: ignore[union-attr]


def brought_by(requirements: list[str]) -> set[str]:
    """Distributions that requirements name, those of the extras of our own included."""
    found = set()
    for requirement in requirements:
        if plain(requirement) == PROJECT["name"]:
            for extra in re.search(r"\[(.*)\]", requirement).group(1).split(","):  # type: ignore[union-attr]
                found |= brought_by(EXTRAS[extra])
        else:
            found.add(plain(requirement))
    return found


def distributions_of(library: str) -> set[str]:
    """Distributions that hold a library; its own name where it is not installed."""
    top = library.partition(".")[0]
    return {plain(name) for name in HOLDERS.get(top, [top])}


def module_of(file: Path) -> str:
    parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


def demands() -> Iterator[tuple[str, str | None, str | None]]:
    """(module, library, extra) of every call of `require`; None where it is a variable."""
    for file in FILES:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "require":
                (extra,) = (k.value for k in node.keywords if k.arg == "extra")
                module = module_of(file)
                yield module, value_of(module, node.args[0]), value_of(module, extra)


def value_of(module: str, node: ast.expr) -> str | None:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.Attribute):  # of another module
        assert isinstance(node.value, ast.Name)
        other = getattr(importlib.import_module(module), node.value.id)
        return str(getattr(other, node.attr))
    assert isinstance(node, ast.Name)
    return getattr(importlib.import_module(module), node.id, None)


def test_a_message_names_an_extra_that_exists_and_brings_the_library() -> None:
    pytest.importorskip("stable_baselines3", reason="a module that is asked needs its extra")
    found = list(demands())
    assert len(found) > 20
    for module, library, extra in found:
        if extra is None:
            assert module == "mtm.training.trackers"  # whose extras are named like the trackers
            continue
        assert extra in EXTRAS, module
        if library is not None:
            assert distributions_of(library) & brought_by(EXTRAS[extra]), (module, library)


def test_every_tracker_has_an_extra() -> None:
    (names, _) = get_args(get_type_hints(TrainConfig)["trackers"])
    for name in get_args(names):
        assert name in brought_by(EXTRAS[name])


def imported(node: ast.AST) -> Iterator[str]:
    """Libraries that run-time code imports; what only the type checker reads is left out."""
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return
    if isinstance(node, ast.Import):
        yield from (alias.name.partition(".")[0] for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module:
        yield node.module.partition(".")[0]
    for child in ast.iter_child_nodes(node):
        yield from imported(child)


def test_every_library_that_is_imported_is_declared() -> None:
    declared = brought_by([*PROJECT["dependencies"], f"{PROJECT['name']}[{','.join(EXTRAS)}]"])
    used = {(name, file) for file in FILES for name in imported(ast.parse(file.read_text()))}
    undeclared = {
        name: str(file.relative_to(PACKAGE))
        for name, file in used
        if name not in sys.stdlib_module_names | {"mtm"}
        if not distributions_of(name) & declared
    }
    assert not undeclared


def test_every_extra_is_documented() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    assert not [e for e in EXTRAS if e not in FOR_DEVELOPERS and f"`{e}`" not in text]


def test_tools_are_pinned() -> None:
    """`make setup` gives everybody the same versions of what judges the code."""
    pinned: dict[str, Any] = dict(
        line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line
    )  # fmt: skip
    own = [r for r in EXTRAS["dev"] if plain(r) != PROJECT["name"]]
    assert not [r for r in own if plain(r) not in {plain(name) for name in pinned}]
