"""A digest of the code that decides the result of a run, which is part of the run's key.

It is made of the module of the method and of every module of this package that it imports,
directly or not, wherever the import stands. Left out are the rooms and modules of
`DECIDES_NOTHING`: what only shows; settings, which are in the key by value; and the reading of
data, whose fingerprint is in the key. Docstrings, blank lines and lines of comment do not count.
Nothing is imported for it: the files are read.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import mtm
from mtm.research.baselines.settings import AGENTS
from mtm.research.experiments.methods import METHODS
from mtm.research.experiments.spec import RunSpec

DECIDES_NOTHING = (
    *("mtm.cli", "mtm.core", "mtm.evaluation.report", "mtm.evaluation.demo"),
    *("mtm.control.rendering", "mtm.training.trackers", "mtm.research.experiments"),
    *("mtm.data.formats", "mtm.data.loading", "mtm.data.download", "mtm.data.columns"),
    *("mtm.data.concatenate", "mtm.data.episode_bounds", "mtm.data.memory_limits"),
    "mtm.data.streaming",
    "mtm.research.imputation.names",
    *("mtm.research.baselines.mlp", "mtm.research.baselines.specialised"),
    *("mtm.research.baselines.settings", "mtm.research.baselines.critic_settings"),
    *("mtm.research.baselines.imitation_settings", "mtm.research.baselines.td3_config"),
)
"""Rooms and modules that are no part of it."""

DECIDES = ("mtm.core.randomness",)
"""But these are."""

DIGEST_LENGTH = 8

_PACKAGE = Path(mtm.__file__).parent


def code_digest(spec: RunSpec) -> str:
    """The digest of what decides a run, and of what decides the runs that it needs."""
    modules = frozenset().union(*(_modules_of(s.method) for s in with_needs(spec)))
    return _digest(modules)


def modules_of(method: str) -> list[str]:
    """The modules that decide the result of a method, in order; none for one that is unknown."""
    return sorted(_modules_of(method))


def with_needs(spec: RunSpec) -> Iterator[RunSpec]:
    """A run and those that it needs, directly or not."""
    yield spec
    for need in spec.needs:
        yield from with_needs(need)


@cache
def _modules_of(method: str) -> frozenset[str]:
    home = METHODS.get(method, "").partition(":")[0]
    # An agent's own module is found by its name (mtm.research.baselines.learner).
    roots = [home] + ([f"mtm.research.baselines.{method}"] if method in AGENTS else [])
    found: set[str] = set()
    waiting = [root for root in roots if _file(root) is not None]
    while waiting:
        module = waiting.pop()
        if module not in found:
            found.add(module)
            waiting += [name for name in _imported(module) if _counts(name)]
    return frozenset(found)


@cache
def _digest(modules: frozenset[str]) -> str:
    digest = hashlib.sha256()
    for module in sorted(modules):
        digest.update(f"{module}\n{_bare(module)}\n".encode())
    return digest.hexdigest()[:DIGEST_LENGTH]


def _counts(module: str) -> bool:
    left_out = any(module == name or module.startswith(f"{name}.") for name in DECIDES_NOTHING)
    return module in DECIDES or not left_out


def _file(module: str) -> Path | None:
    """The file of a module of this package; None for any other."""
    first, *parts = module.split(".")
    if first != "mtm":
        return None
    place = _PACKAGE.joinpath(*parts)
    candidates = (place.with_suffix(".py"), place / "__init__.py")
    return next((file for file in candidates if file.is_file()), None)


@cache
def _tree(module: str) -> ast.Module:
    file = _file(module)
    assert file is not None
    return ast.parse(file.read_bytes())


@cache
def _imported(module: str) -> tuple[str, ...]:
    """The modules of this package that a module names in its imports, but for types alone."""
    named: list[str] = []
    for node in _running(_tree(module)):
        if isinstance(node, ast.Import):
            named += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            named += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return tuple(dict.fromkeys(name for name in named if _file(name) is not None))


def _running(node: ast.AST) -> Iterator[ast.stmt]:
    """All statements but those under `if TYPE_CHECKING`."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            continue
        test = child.test if isinstance(child, ast.If) else None
        if isinstance(test, ast.Name) and test.id == "TYPE_CHECKING":
            continue
        if isinstance(child, ast.stmt):
            yield child
        yield from _running(child)


@cache
def _bare(module: str) -> str:
    """The text of a module without docstrings, and lines that are blank or a comment."""
    file = _file(module)
    assert file is not None
    lines = file.read_text().splitlines()
    for node in _running(_tree(module)):
        value = node.value if isinstance(node, ast.Expr) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            last = node.end_lineno or node.lineno
            lines[node.lineno - 1 : last] = [""] * (last - node.lineno + 1)
    kept = (line.rstrip() for line in lines)
    return "\n".join(line for line in kept if line and not line.lstrip().startswith("#"))
