"""`mtm demo`: train on the bundled data, measure every use, write the report."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import tyro
from rich.box import SIMPLE_HEAD
from rich.table import Table

STEPS = 2000
"""Of training at most: enough for a small recording, and nobody waits for long."""


@dataclass(frozen=True)
class Arguments:
    """Train one model on the bundled recording of a hopping robot, and use it in seven ways."""

    out: Path = Path("runs/demo")
    """The run directory; an earlier demo there is replaced."""
    preset: str = "cpu"
    """cpu takes minutes on two cores; tiny takes seconds and learns little."""
    episodes: int | None = None
    """Episodes for each way of acting; 10, or 1 for tiny, if not given."""


def main(words: Sequence[str]) -> None:
    """Train, evaluate, print, report."""
    arguments = tyro.cli(Arguments, args=list(words), prog="mtm demo")
    from mtm.core.atomic_write import write_atomically
    from mtm.core.config import preset
    from mtm.core.errors import require
    from mtm.core.progress import episode_progress
    from mtm.core.terminal import PlainConsole
    from mtm.evaluation.demo import seven_uses
    from mtm.evaluation.evaluate import EvalConfig, evaluate
    from mtm.evaluation.report.page import write_report
    from mtm.evaluation.report.tables import print_evaluation
    from mtm.inference.run_data import reported_episodes
    from mtm.training.train import train

    require("matplotlib", extra="report")  # rather now than after the training
    require("gymnasium", extra="sim")
    began = time.monotonic()
    console = PlainConsole()
    usual = 1 if arguments.preset == "tiny" else 10
    measured = EvalConfig(episodes=usual if arguments.episodes is None else arguments.episodes)
    console.print("Training one network on builtin:hopper, 140,000 steps of a learning robot.\n")
    settings = preset(arguments.preset)
    settings = replace(settings, steps=min(settings.steps, STEPS))
    run = train("builtin:hopper", settings, arguments.out, overwrite=True)
    console.print("\nActing in Hopper-v5, in ten ways at once.")
    with episode_progress() as (progress, notices):
        result = evaluate(
            run,
            measured,
            say=partial(notices.print, markup=False),
            progress=progress,
        )
    write_atomically(arguments.out / "evaluation.json", json.dumps(result, indent=2).encode())
    print_evaluation(result, console)
    table = Table(
        title="one model, seven uses: the same weights, another mask",
        box=SIMPLE_HEAD,
        pad_edge=False,
    )
    table.title_justify = "left"
    for title, side in (("use", "left"), ("measured", "left"), ("model", "right")):
        table.add_column(title, justify=side)  # type: ignore[arg-type]
    table.add_column("baseline", justify="right")
    table.add_column("which is", justify="left")
    for use in seven_uses(run, reported_episodes(run), result["tasks"]):
        form = ",.0f" if use.higher_is_better else ".4f"
        table.add_row(
            use.name, use.measure, f"{use.model:{form}}", f"{use.without:{form}}", use.baseline
        )
    console.print(table)
    console.print("Errors are normalised: 0 is perfect, 1 as good as the mean. Higher returns win.")
    page = write_report(run, arguments.out / "report", say=partial(console.print, markup=False))
    console.print(f"\nThe report, with pictures: {page}  ({time.monotonic() - began:.0f} s in all)")
    console.print(
        "Now click what the model may see, and watch it fill in the rest: "
        f"{program()} studio {shlex.quote(str(arguments.out))}",
        soft_wrap=True,
    )


def program() -> str:
    """What to type for `mtm`, which is not on the path of who ran `make demo`."""
    if shutil.which("mtm") is not None:
        return "mtm"
    place = Path(sys.executable).parent
    here = Path.cwd()
    return shlex.quote(str(place.relative_to(here) if place.is_relative_to(here) else place)) + (
        "/mtm" if (place / "mtm").exists() else "/python -m mtm"
    )
