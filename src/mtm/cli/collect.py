"""`mtm collect`: make data of your own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import tyro
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from mtm.core.errors import ConfigError
from mtm.core.terminal import PlainConsole

RECORDED_STEPS = 100_000
MOST_THREADS = 2
"""The agents' networks are too small to share between many cores."""


@dataclass(frozen=True)
class Arguments:
    """Train an agent and record its data, or explore without reward.

    With reward: trains SAC and writes expert.hdf5, medium.hdf5, medium-replay.hdf5 and
    medium-expert.hdf5 in D4RL's layout. With --explore: writes one .npz per episode in ExORL's
    layout. When interrupted, the same command goes on.
    """

    env: str
    """Such as Hopper-v5, or dmc:walker-walk."""
    out: Path
    """The folder to write to."""
    steps: int | None = None
    """Of the training or the exploration; 300,000 or, with --explore, 100,000 if not given."""
    seed: int = 0
    """Of everything random."""
    record: int | None = None
    """Steps of the expert and of the medium policy; as --steps, at most 100,000, if not given."""
    policy: Path | None = None
    """A .zip of Stable-Baselines3's SAC: record it as the expert in place of training. Only its
    weights are read; nothing in it is executed."""
    explore: bool = False
    """Explore without reward."""
    explore_reward: Literal["protorl", "knn", "random"] | None = None
    """What drives the exploration: novelty among learned prototypes (protorl, if not given),
    distance to known states, or nothing (random actions)."""
    overwrite: bool = False
    """Replace an earlier collection in --out."""


def main(words: Sequence[str]) -> None:
    """Collect and print what was collected."""
    arguments = tyro.cli(Arguments, args=list(words), prog="mtm collect")
    if arguments.explore and (arguments.policy is not None or arguments.record is not None):
        raise ConfigError("--explore trains its own agent: leave out --policy and --record.")
    if arguments.explore_reward is not None and not arguments.explore:
        raise ConfigError("--explore-reward is for --explore: add it, or leave the reward out.")
    import torch

    from mtm.core.system import available_cores

    torch.set_num_threads(min(available_cores(), MOST_THREADS))
    console = PlainConsole()
    try:
        (_explore if arguments.explore else _behaviour)(arguments, console)
    except KeyboardInterrupt:
        console.print("Give the same command again to go on.")
        raise


def _behaviour(arguments: Arguments, console: Console) -> None:
    from mtm.research.collect.behaviour import CollectSettings, collect

    steps = 300_000 if arguments.steps is None else arguments.steps
    settings = CollectSettings(
        arguments.env,
        steps,
        arguments.seed,
        min(RECORDED_STEPS, steps) if arguments.record is None else arguments.record,
        None if arguments.policy is None else str(arguments.policy),
    )
    folder = collect(settings, arguments.out, console, overwrite=arguments.overwrite)
    assert folder.results is not None
    console.print(_table(arguments.out, folder.results["kinds"]))


def _table(out: Path, kinds: Mapping[str, Mapping[str, Any]]) -> Table:
    from mtm.evaluation.report.tables import number

    table = Table(title=str(out), box=SIMPLE_HEAD, title_justify="left", pad_edge=False)
    table.add_column("file", no_wrap=True)
    for title in ("episodes", "steps", "mean return", "best", "mean score"):
        table.add_column(title, justify="right")
    for kind, row in kinds.items():
        table.add_row(
            f"{kind}.hdf5",
            number(row["episodes"]),
            number(row["steps"]),
            number(row["mean_return"], ",.1f"),
            number(row["best_return"], ",.1f"),
            number(row["mean_score"], ".1f"),
        )
    return table


def _explore(arguments: Arguments, console: Console) -> None:
    from mtm.research.collect.explore import ExploreSettings, explore

    steps = 100_000 if arguments.steps is None else arguments.steps
    reward = arguments.explore_reward or "protorl"
    settings = ExploreSettings(arguments.env, steps, arguments.seed, reward)
    folder = explore(settings, arguments.out, console, overwrite=arguments.overwrite)
    assert folder.results is not None
    results, coverage = folder.results, folder.results["coverage"]
    console.print(
        f"{arguments.out}: {results['episodes']:,} episodes, {results['steps']:,} steps. "
        f"Of {' x '.join(coverage['over'])}, {coverage['explored']['cells']:,} cells were visited "
        f"(entropy {coverage['explored']['entropy']:.2f}); random actions visit "
        f"{coverage['random']['cells']:,} (entropy {coverage['random']['entropy']:.2f}).",
        soft_wrap=True,
    )
