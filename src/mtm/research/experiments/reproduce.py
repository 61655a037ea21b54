"""From the names of experiments to pages of results."""

from __future__ import annotations

import importlib
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Literal

from rich.console import Console

from mtm.core.atomic_write import make_directory, writing_to
from mtm.core.errors import ConfigError, DataError, RunError, require, unknown
from mtm.core.locks import locked
from mtm.core.plain_data import expecting
from mtm.data.loading import DataSpec, absolute
from mtm.research.experiments import EXPERIMENTS, recipes
from mtm.research.experiments.engines import Engine, LocalEngine, RayEngine
from mtm.research.experiments.made_sets import resolve
from mtm.research.experiments.methods import EXTRAS, METHODS, ON_PYPOTS
from mtm.research.experiments.page import write_page
from mtm.research.experiments.runner import OVER, RunState, plan, results, run_all
from mtm.research.experiments.scales import SCALES, Scale
from mtm.research.experiments.spec import RunSpec
from mtm.research.experiments.view import View


@dataclass(frozen=True)
class Order:
    """What to reproduce, and how.

    Attributes:
        names: Of experiments.
        scale: `smoke`, `cpu` or `paper`.
        data: For all of them; empty: what each is meant for.
        seeds: How many; None: the scale's.
        methods: Which to compute; empty: all. The pages show what is there of the others.
        long: Whether `table1` has the RL agents with many updates, too.
        draw_only: Whether to compute nothing.
        engine: `local` or `ray`.
        address: Of a Ray cluster.
        out: Where runs and results go.
    """

    names: Sequence[str]
    scale: str = "cpu"
    data: Sequence[DataSpec] = ()
    seeds: int | None = None
    methods: Sequence[str] = ()
    long: bool = False
    draw_only: bool = False
    engine: Literal["local", "ray"] = "local"
    address: str | None = None
    out: Path = Path("results")


def reproduce(order: Order, console: Console) -> list[Path]:
    """Do the runs that are not done, and write a page for every experiment.

    Returns:
        The pages.

    Raises:
        ConfigError: The order cannot be understood.
        MissingExtraError: Something that the runs need is not installed.
        DataError: None of the data can be had.
        RunError: Runs failed; all others are done and drawn.
    """
    scale = _scale(order)
    modules = {name: _module(name) for name in order.names}
    listed = {name: _runs(name, module, scale, order) for name, module in modules.items()}
    empty = [name for name, specs in listed.items() if not specs]
    if empty and len(listed) == len(empty):
        raise ConfigError(f"{empty[0]} needs --data: {modules[empty[0]].NEEDED}.")
    for name in empty:
        console.print(f"{name} is left out: it needs --data, {modules[name].NEEDED}.")
    out, specs = order.out.resolve(), [spec for specs in listed.values() for spec in specs]
    _check_extras([spec for spec in specs if _is_wanted(order, spec)])
    with writing_to(out):
        states = plan(specs, out, partial(_is_wanted, order))
    _check_data(states)
    _compute(states, order, console)
    pages = []
    with writing_to(out), locked(out / ".lock"):  # two processes may be at their end together
        for name, specs in listed.items():
            if specs:
                pages.append(_draw(name, modules[name], specs, states, order, scale))
    for page in pages:
        console.print(f"{page}", soft_wrap=True, markup=False)
    failed = sum(state.status == "failed" for state in states)
    if failed:
        raise RunError(
            f"{failed} of {len(states)} runs failed; the pages say why, and log.txt in their "
            f"directories under {out / 'runs'}. The same command tries them again."
        )
    return pages


def _scale(order: Order) -> Scale:
    if order.scale not in SCALES:
        raise ConfigError(unknown("scale", order.scale, SCALES))
    if order.seeds is not None and order.seeds < 1:
        raise ConfigError(f"--seeds must be at least 1, got {order.seeds}.")
    for method in order.methods:
        if method not in METHODS:
            raise ConfigError(unknown("method", method, METHODS))
    scale = SCALES[order.scale]
    if order.seeds is not None:
        scale = replace(scale, seeds=order.seeds, slow_seeds=order.seeds)
    return replace(scale, long=scale.long or order.long)


def _is_wanted(order: Order, spec: RunSpec) -> bool:
    return not order.draw_only and (not order.methods or spec.method in order.methods)


def _module(name: str) -> ModuleType:
    if name not in EXPERIMENTS:
        raise ConfigError(unknown("experiment", name, EXPERIMENTS))
    return importlib.import_module(EXPERIMENTS[name])


def _runs(name: str, module: ModuleType, scale: Scale, order: Order) -> list[RunSpec]:
    asked = resolve(order.data, module.DATA["paper"]) or module.DATA[scale.name]
    data = [absolute(spec) for spec in asked]
    listed: list[RunSpec] = module.runs(scale, data, max(scale.seeds, scale.slow_seeds))
    return [spec for spec in listed if spec.seed < recipes.seeds_of(spec, scale)]


def _check_extras(specs: Sequence[RunSpec]) -> None:
    """Ask for all that the runs need now, not after hours."""
    require("matplotlib", extra="report")
    for library in sorted({EXTRAS[s.method] for s in specs if s.method in EXTRAS}):
        require(library, extra="baselines")
    if any(s.method in ON_PYPOTS for s in specs):
        require("pypots", extra="imputation")


def _check_data(states: Sequence[RunState]) -> None:
    """Raise `DataError` if not a single data set can be had."""
    if states and all(state.data is None for state in states):
        raise DataError(*dict.fromkeys(state.reason or "" for state in states))


def _compute(states: Sequence[RunState], order: Order, console: Console) -> None:
    if all(state.status in OVER for state in states):
        return
    engine: Engine
    if order.engine == "ray":
        engine = RayEngine(order.address)
    else:
        engine = LocalEngine(max(state.spec.threads for state in states))
    try:
        with View(console) as view:
            run_all(states, engine, view.look)
    except KeyboardInterrupt:
        console.print("stopping; runs under way save first. Give the same command again to go on.")
        raise
    finally:
        engine.close()


def _draw(
    name: str,
    module: ModuleType,
    specs: Sequence[RunSpec],
    states: Sequence[RunState],
    order: Order,
    scale: Scale,
) -> Path:
    found = results(specs, states)
    folder = order.out.resolve() / name
    make_directory(folder)
    runs = order.out.resolve() / "runs"
    with expecting(f"a result.json in {runs}", RunError, f"Delete {runs} to compute all again."):
        drawing = module.draw(found, folder)
        return write_page(
            name, module.TITLE, drawing, found, folder, scale=scale, command=command(name, order)
        )


def command(name: str, order: Order) -> str:
    """The command that makes the page of one experiment."""
    words = ["mtm", "reproduce", name, "--scale", order.scale]
    words += ["--data", *map(str, order.data)] if order.data else []
    words += ["--seeds", str(order.seeds)] if order.seeds is not None else []
    words += ["--methods", *order.methods] if order.methods else []
    words += ["--long"] if order.long else []
    words += ["--draw-only"] if order.draw_only else []
    return shlex.join(words)
