"""`mtm eval`: all capabilities of a run as numbers."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from mtm.cli.asked_run import AskedRun
from mtm.core.errors import ConfigError
from mtm.core.names import TASKS, Acting

SAME = ("weights", "data", "part", "environment", "episodes", "seed")
"""What two evaluations must have in common, so that their numbers can stand side by side."""

KEPT: dict[Acting, str] = {"default": "evaluation.json", "paper": "evaluation-paper.json"}
"""Where the results are kept in the run."""


@dataclass(frozen=True, kw_only=True)
class Arguments(AskedRun):
    """Measure what a run can do: prediction errors, and returns in its environment.

    The results are also kept in RUN/evaluation.json, where `mtm report` finds them; tasks that are
    not asked for keep what was measured before with the same weights, data, environment, episodes
    and seed.
    """

    run: tyro.conf.Positional[Path]
    """The run directory, or that of an agent of `mtm baseline`; a file of mtm pack, or
    hub:OWNER/NAME[@REVISION], where nothing is kept."""
    tasks: tuple[str, ...] = TASKS
    """Which capabilities of a run, also plan; an agent only acts."""
    episodes: int = 20
    """Episodes for each policy and target."""
    seed: int = 0
    """Episode e begins with seed + e."""
    env: str | None = None
    """The environment; the one that the data belong to if not given."""
    data: str | None = None
    """Data for the prediction errors; the run's test episodes if not given."""
    acting: Acting = "default"
    """What policies show the model: as measured best here, or as the original code does (kept in
    RUN/evaluation-paper.json)."""
    json: Path | None = None
    """Also write the results here."""


def main(words: Sequence[str]) -> None:
    """Evaluate, print, write."""
    arguments = tyro.cli(Arguments, args=list(words), prog="mtm eval")
    if arguments.json is not None and not arguments.json.parent.is_dir():
        raise ConfigError(f"--json {arguments.json}: there is no folder {arguments.json.parent}.")
    from mtm.core.atomic_write import write_atomically
    from mtm.core.progress import episode_progress
    from mtm.evaluation.evaluate import EvalConfig, evaluate
    from mtm.evaluation.report.tables import print_evaluation
    from mtm.research.baselines.agent import agent_name, load_agent
    from mtm.research.baselines.evaluation import evaluate_agent

    arguments.limit_threads()
    config = EvalConfig(
        arguments.tasks,
        arguments.episodes,
        arguments.seed,
        arguments.env,
        arguments.data,
        acting=arguments.acting,
    )
    with episode_progress() as (progress, console):
        say = functools.partial(console.print, soft_wrap=True, markup=False)
        if agent_name(arguments.run) is not None:
            if arguments.acting != "default":
                raise ConfigError(f"--acting is for runs; {arguments.run} is an agent.")
            agent = load_agent(arguments.run, arguments.checkpoint, device=arguments.device)
            result = evaluate_agent(agent, config, say=say, progress=progress)
        else:
            run = arguments.load()
            result = evaluate(run, config, say=say, progress=progress)
    print_evaluation(result)
    if arguments.json is not None:
        write_atomically(arguments.json, json.dumps(result, indent=2).encode())
    if not arguments.run.is_dir():
        return  # what was shared stays as it is
    kept = arguments.run / KEPT[arguments.acting]
    now = {task: found for task, found in result["tasks"].items() if found is not None}
    result["tasks"] = result["tasks"] | _measured_before(kept, result) | now
    write_atomically(kept, json.dumps(result, indent=2).encode())


def _measured_before(file: Path, result: dict[str, Any]) -> dict[str, Any]:
    """The tasks that an earlier evaluation of the same weights has measured in the same way."""
    if not file.exists():
        return {}
    try:
        before = json.loads(file.read_text())
        same = all(before[key] == result[key] for key in SAME)
        return dict(before["tasks"]) if same else {}
    except (ValueError, KeyError, TypeError):
        return {}  # not an evaluation of ours: the new one takes its place
