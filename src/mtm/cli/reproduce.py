"""`mtm reproduce`: the paper's tables and figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro

from mtm.core.errors import ConfigError
from mtm.research.experiments import EXPERIMENTS

if TYPE_CHECKING:
    from rich.console import Console

Name = Literal[
    "table1",
    "capabilities",
    "dynamics",
    "masking",
    "heteromodal",
    "data-efficiency",
    "representation",
    "length",
    "imputation",
    "all",
    "data",
]


BY_ALL = tuple(name for name in EXPERIMENTS if name != "imputation")
"""What `all` stands for: what can share an environment."""


@dataclass(frozen=True)
class Arguments:
    """Run an experiment of the paper, or all, and write its table, picture and claims.

    Finished runs are never repeated: after a crash or Ctrl-C, the same command goes on.
    """

    name: tyro.conf.Positional[Name]
    """The experiment, or all but imputation, whose rivals need an environment of their own; or
    data, which makes data sets of the paper's shape to do it on."""
    scale: Literal["smoke", "cpu", "paper"] = "cpu"
    """seconds, for tests; two cores and an afternoon; GPU machines."""
    data: tuple[str, ...] = ()
    """Files or names of data sets; those of the paper if none are given. made, or made:FOLDER, are
    those of `mtm reproduce data`. For data itself: recordings that you have, to be listed too."""
    seeds: int | None = None
    """How many, from 0; by scale and method if not given: 1, or 5 and for slow methods 3."""
    methods: tuple[str, ...] = ()
    """Compute only these (mtm, s-mtm, mlp, bc10, dt, iql, ...); the page shows what is there."""
    long: bool = False
    """Also IQL, CQL, TD3+BC and ReBRAC with 100,000 updates (table1)."""
    draw_only: bool = False
    """Compute nothing: draw what is there, also results of older code."""
    engine: Literal["local", "ray"] = "local"
    """Processes of this machine, or a Ray cluster."""
    address: str | None = None
    """Of a running Ray cluster; RAY_ADDRESS if not given, else one is started here."""
    out: Path | None = None
    """Where runs and results go, results if not given; for a cluster, a path that all its machines
    see. Of data: MTM_PAPER_SETS, else ~/.cache/mtm/paper-sets, if not given."""


def main(words: Sequence[str]) -> None:
    """Reproduce and print the pages."""
    arguments = tyro.cli(Arguments, args=list(words), prog="mtm reproduce")
    if arguments.address is not None and arguments.engine != "ray":
        raise ConfigError("--address is for --engine ray.")
    from mtm.core.terminal import PlainConsole

    if arguments.name == "data":
        _make_data(arguments, PlainConsole())
        return
    from mtm.research.experiments.reproduce import Order, reproduce

    order = Order(
        BY_ALL if arguments.name == "all" else (arguments.name,),
        arguments.scale,
        arguments.data,
        arguments.seeds,
        arguments.methods,
        arguments.long,
        arguments.draw_only,
        arguments.engine,
        arguments.address,
        arguments.out or Path("results"),
    )
    reproduce(order, PlainConsole())


def _make_data(arguments: Arguments, console: Console) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from mtm.research.collect.paper_sets import default_folder, make_sets

    if arguments.seeds is not None or arguments.engine != "local":
        raise ConfigError("--seeds and --engine are for experiments: leave them out for data.")
    folder = arguments.out or default_folder()
    manifest = make_sets(folder, arguments.scale, console, recordings=arguments.data)
    table = Table(title=str(folder), title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for column in ("set", "steps", "episodes", "origin", "fingerprint"):
        table.add_column(column, no_wrap=column in ("set", "fingerprint"))
    for name, entry in sorted(manifest["sets"].items()):
        numbers = (f"{entry['steps']:,}", f"{entry['episodes']:,}")
        table.add_row(name, *numbers, entry["origin"], entry["fingerprint"])
    console.print(table)
