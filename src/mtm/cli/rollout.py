"""`mtm rollout`: let one policy of a run act, and see every episode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from mtm.cli.asked_run import AskedRun
from mtm.cli.parsing import parse
from mtm.core.errors import ConfigError
from mtm.core.escaping import say
from mtm.core.names import Acting, ActingPolicy
from mtm.core.plan_config import PlanConfig

if TYPE_CHECKING:
    from mtm.control.policies import MaskedPolicy, PaperPolicy, PlanningPolicy
    from mtm.runs.run import Run

SPEED_BATCHES = (1, 64)
"""Environments at once, for which the speed of planning is told."""


@dataclass(frozen=True, kw_only=True)
class Arguments(AskedRun):
    """Let a run act in its environment and print every episode."""

    policy: ActingPolicy = "rcbc"
    """How to act."""
    acting: Acting = "default"
    """What the policy shows the model: as measured best here, or as the original code does."""
    target: str = "auto"
    """auto, fraction:0.9, score:100, or a return such as 3000."""
    future: int | None = None
    """two_stage: how many states to predict before acting; if not given, two, or all that fit for a
    run that was trained with the mask id."""
    history: int = 0
    """Past steps to show the model."""
    guidance: float = 1.0
    """rcbc: how far to go from the action without the return (0) to that with it (1), or beyond."""
    plain: Literal["rcbc", "bc"] = "rcbc"
    """plan: the policy whose actions are varied."""
    plan: PlanConfig = field(default_factory=PlanConfig)
    """How to plan."""
    episodes: int = 10
    """How many."""
    seed: int = 0
    """Episode e begins with seed + e."""
    env: str | None = None
    """The environment; the one that the data belong to if not given."""
    video: Path | None = None
    """Also record the first episode as a GIF, where an OpenGL back end is installed."""


def main(words: Sequence[str]) -> None:
    """Roll out, print, record."""
    arguments = parse(Arguments, words, "mtm rollout")
    if arguments.video is not None and arguments.video.suffix != ".gif":
        raise ConfigError(f"--video must end in .gif, got {arguments.video}.")
    if arguments.video is not None and not arguments.video.parent.is_dir():
        raise ConfigError(
            f"--video {arguments.video}: there is no folder {arguments.video.parent}."
        )
    from mtm.control.planning import PlanningPolicy, actions_per_second
    from mtm.control.rollout import rollout
    from mtm.core.progress import episode_progress
    from mtm.data.environment_ids import check_environment, environment_to_act_in
    from mtm.evaluation.report.tables import print_episodes
    from mtm.evaluation.report.video import film_of

    run = arguments.load()
    env_id = arguments.env or environment_to_act_in(run.description.metadata)
    if env_id is None:
        raise ConfigError("the run's data name no environment; name one with --env.")
    check_environment(run.description.metadata, env_id)
    policy = _policy(run, arguments)
    if isinstance(policy, PlanningPolicy):
        for batch in SPEED_BATCHES:
            print(f"{actions_per_second(policy, batch):,.0f} actions/s at batch {batch}")
    film = None if arguments.video is None else film_of(env_id, arguments.video)
    with episode_progress() as (progress, _):
        episodes = rollout(
            {arguments.policy: policy},
            env_id,
            episodes=arguments.episodes,
            seed=arguments.seed,
            progress=progress,
            watch=film,
        )[arguments.policy]
    print_episodes(env_id, episodes)
    if film is not None:
        say(film.save())


def _policy(run: Run, arguments: Arguments) -> MaskedPolicy | PlanningPolicy | PaperPolicy:
    from mtm.control import policies

    if arguments.future is not None and arguments.policy != "two_stage":
        raise ConfigError(f"--future is for --policy two_stage, got {arguments.policy}.")
    if arguments.guidance != 1 and arguments.policy != "rcbc":
        raise ConfigError(f"--guidance is for --policy rcbc, got {arguments.policy}.")
    plans, history = arguments.policy == "plan", arguments.history
    if not plans and (arguments.plan != PlanConfig() or arguments.plain != "rcbc"):
        raise ConfigError(f"--plan and --plain are for --policy plan, got {arguments.policy}.")
    asked = arguments.plain if plans else arguments.policy
    if asked == "bc" and arguments.target != "auto":
        raise ConfigError("--target is for rcbc and two_stage: cloning asks for no return.")
    if arguments.acting == "paper":
        return _published(run, arguments)
    if asked == "two_stage":
        return policies.two_stage(run, arguments.target, future=arguments.future, history=history)
    if asked == "bc":
        plain = policies.behavior_cloning(run, history=history)
    else:
        plain = policies.return_conditioned(
            run, arguments.target, history=history, guidance=arguments.guidance
        )
    return policies.planning(run, plain, arguments.plan) if plans else plain


def _published(run: Run, arguments: Arguments) -> PaperPolicy:
    from mtm.control import policies

    if arguments.policy == "plan":
        raise ConfigError("the original code does not plan: leave --acting paper out.")
    given = {
        "--history": arguments.history != 0,
        "--future": arguments.future is not None,
        "--guidance": arguments.guidance != 1,
    }
    if any(given.values()):
        names = " and ".join(name for name, is_given in given.items() if is_given)
        raise ConfigError(f"--acting paper decides what is shown: leave out {names}.")
    return policies.as_published(run, arguments.policy, arguments.target)
