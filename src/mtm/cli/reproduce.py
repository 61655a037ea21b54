"""`mtm reproduce`: the paper's tables and figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from mtm.core.errors import ConfigError
from mtm.research.experiments import EXPERIMENTS

Name = Literal[
    "table1",
    "capabilities",
    "dynamics",
    "masking",
    "heteromodal",
    "data-efficiency",
    "representation",
    "length",
    "all",
]


@dataclass(frozen=True)
class Arguments:
    """Run an experiment of the paper, or all, and write its table, picture and claims.

    Finished runs are never repeated: after a crash or Ctrl-C, the same command goes on.
    """

    name: tyro.conf.Positional[Name]
    """The experiment."""
    scale: Literal["smoke", "cpu", "paper"] = "cpu"
    """seconds, for tests; two cores and an afternoon; GPU machines."""
    data: tuple[str, ...] = ()
    """Files or names of data sets; those of the paper if none are given."""
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
    out: Path = Path("results")
    """Where runs and results go; for a cluster, a path that all its machines see."""


def main(words: Sequence[str]) -> None:
    """Reproduce and print the pages."""
    arguments = tyro.cli(Arguments, args=list(words), prog="mtm reproduce")
    if arguments.address is not None and arguments.engine != "ray":
        raise ConfigError("--address is for --engine ray.")
    from mtm.core.terminal import PlainConsole
    from mtm.research.experiments.reproduce import Order, reproduce

    order = Order(
        tuple(EXPERIMENTS) if arguments.name == "all" else (arguments.name,),
        arguments.scale,
        arguments.data,
        arguments.seeds,
        arguments.methods,
        arguments.long,
        arguments.draw_only,
        arguments.engine,
        arguments.address,
        arguments.out,
    )
    reproduce(order, PlainConsole())
