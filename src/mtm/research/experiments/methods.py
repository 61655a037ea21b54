"""How a run is done, by the name of its method.

A method trains in the directory that it is given (going on with what it finds there), evaluates,
and returns plain data.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from mtm.core.errors import ConfigError, unknown
from mtm.research.baselines.settings import AGENTS, ON_TORCHRL
from mtm.research.experiments.spec import RunSpec
from mtm.research.imputation.names import SPECIALISTS

Method: TypeAlias = Callable[[RunSpec, Path, Sequence[Path]], dict[str, Any]]
"""(what to run, its directory, the directories of the runs that it needs) -> plain data."""

ON_PYPOTS = tuple(f"{name}{budget}" for budget in ("", "-own") for name in SPECIALISTS)
"""Methods that need the extra `imputation`; those with their own budget end by their own rule."""

FILLERS = ("mtm-acts", "mtm-gaps", "mtm-smoothed", "kalman", "interpolation", *ON_PYPOTS)
"""Methods that fill gaps."""

METHODS: dict[str, str] = {
    "mtm": "mtm.research.experiments.train_masked:run",
    "s-mtm": "mtm.research.experiments.train_masked:run",
    "mlp": "mtm.research.experiments.train_masked:run",
    **dict.fromkeys(AGENTS, "mtm.research.experiments.train_agent:run"),
    "td3": "mtm.research.experiments.train_td3:run",
    "ensemble": "mtm.research.experiments.train_dynamics:run",
    "open-loop": "mtm.research.experiments.measure_open_loop:run",
    **dict.fromkeys(FILLERS, "mtm.research.experiments.fill_gaps:run"),
}
"""Name -> `module:function`, imported when first used."""

EXTRAS = dict.fromkeys((*ON_TORCHRL, "td3"), "torchrl")
"""Method -> the library of the extra `baselines` that it needs."""


def find(name: str) -> Method:
    """The function of a method.

    Raises:
        ConfigError: There is no such method.
    """
    if name not in METHODS:
        raise ConfigError(unknown("method", name, METHODS))
    module, _, function = METHODS[name].partition(":")
    method: Method = getattr(importlib.import_module(module), function)
    return method


class Stopped(Exception):  # noqa: N818 - not an error: the run goes on with the next call
    """A run was asked to stop before its end, and has saved what a later sitting needs."""
