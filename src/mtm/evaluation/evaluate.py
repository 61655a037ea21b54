"""One run, all capabilities, as numbers.

Offline: prediction errors on the test episodes, in normalised and in raw units. In the
environment: returns of behaviour cloning, of return-conditioned acting at several targets, and of
two-stage acting, all in lockstep. What was chosen by looking at the environment (`best` of the
sweep) is kept apart from what was not (`auto`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np
import safetensors.torch
from torch import nn

from mtm.control import policies as acting
from mtm.control.policies import MaskedPolicy, PaperPolicy, PlanningPolicy, Policy
from mtm.control.return_targets import episode_return, fraction_of_range
from mtm.control.rollout import EpisodeResults, Progress, rollout
from mtm.control.scores import score
from mtm.core.errors import ConfigError, DataError, MissingExtraError, unknown
from mtm.core.names import ACTING_TASKS, ON_REQUEST, PREDICTION_TASKS, TASKS, Acting
from mtm.core.validators import SEED
from mtm.data.environment_ids import check_environment, environment_to_act_in, matching_environment
from mtm.data.loading import DataSpec, absolute
from mtm.data.modalities import Modality
from mtm.data.segments import Segments
from mtm.data.trajectories import Metadata, TrajectoryDataset
from mtm.inference.engine import ask
from mtm.inference.run_data import reported_episodes
from mtm.masks.capabilities import NAMED_MASKS
from mtm.runs.run import Run
from mtm.training.validation import capabilities_of

SWEEP = (0.6, 0.7, 0.8, 0.9, 1.0, 1.1)
"""Targets of the sweep, as fractions of the range of the data's episode returns (the paper's)."""

AUTO = 1.0
"""The fraction that the target `auto` is: the best episode of the data."""

NEEDS = {"two_stage": ("rcbc", "id"), "plan": ("rcbc", "fd")}
"""Capabilities that a task is made of, where that is not the one of its name."""

SEGMENTS = 8192
"""Held-out segments that offline errors are measured on."""


@dataclass(frozen=True)
class EvalConfig:
    """What to evaluate, and how.

    Attributes:
        tasks: Of `fd`, `id`, `bc`, `rcbc`, `two_stage` and, only if it is named, `plan`.
        episodes: For each policy and target.
        sweep_episodes: For each target of the sweep but `auto`; None: as many.
        seed: Episode e begins with seed + e.
        env_id: The environment; None: the one that the data belong to.
        data: For the prediction errors; None: the run's test episodes.
        acting: What policies show the model: ours, or with `paper` what the original code shows.
    """

    tasks: Sequence[str] = TASKS
    episodes: int = 20
    seed: int = 0
    env_id: str | None = None
    data: DataSpec | None = None
    sweep_episodes: int | None = None
    acting: Acting = "default"

    def __post_init__(self) -> None:
        for task in self.tasks:
            if task not in (*TASKS, *ON_REQUEST):
                raise ConfigError(unknown("task", task, (*TASKS, *ON_REQUEST)))
        if self.acting not in get_args(Acting):
            raise ConfigError(unknown("acting", str(self.acting), get_args(Acting)))
        if self.acting == "paper" and "plan" in self.tasks:
            raise ConfigError("the original code does not plan: the task plan is not for paper.")
        if self.episodes < 1:
            raise ConfigError(f"episodes must be at least 1, got {self.episodes}.")
        if self.sweep_episodes is not None and self.sweep_episodes < 1:
            raise ConfigError(f"sweep_episodes must be at least 1, got {self.sweep_episodes}.")
        if (fault := SEED.fault("seed", self.seed)) is not None:
            raise ConfigError(f"{fault}.")


def evaluate(
    run: Run,
    config: EvalConfig | None = None,
    *,
    say: Callable[[str], None] = print,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measure a run's capabilities.

    Args:
        run: A trained run.
        config: What to measure; all that the run can do, with 20 episodes each, if None.
        say: Takes notices, such as that there is no environment.
        progress: Told how many episodes are finished.

    Returns:
        Plain data of a stable form (see docs/guides/acting.md); what could not be measured is None.
    """
    config = config or EvalConfig()
    tasks: dict[str, Any] = dict.fromkeys(config.tasks)
    able = _able(run, config.tasks, say)
    offline = [t for t in PREDICTION_TASKS if t in able]
    if offline:
        tasks |= _offline(run, config, offline, say)
    online = [t for t in (*ACTING_TASKS, *ON_REQUEST) if t in able]
    if online:
        tasks |= _online(run, config, online, say, progress)
    return {
        "run": str(run.path),
        "step": run.step,
        "weights": weights_digest(run.model),
        "data": absolute(config.data or run.description.data["spec"]),
        "part": "test" if run.description.train.validation_fraction > 0 else "all",
        "environment": config.env_id or matching_environment(run.description.metadata),
        "episodes": config.episodes,
        "seed": config.seed,
        "acting": config.acting,
        "tasks": tasks,
    }


def weights_digest(network: nn.Module) -> str:
    """The SHA-256 of a network's weights, which tells them from others of the same step."""
    weights = {name: tensor.contiguous() for name, tensor in network.state_dict().items()}
    return hashlib.sha256(safetensors.torch.save(weights)).hexdigest()


def prediction_error(run: Run, held_out: TrajectoryDataset, name: str) -> dict[str, float | None]:
    """Mean squared error of a named mask's wanted tokens, normalised and raw.

    Returns:
        `normalized`, `raw`, and for `fd` `copy_last`: the normalised error of repeating the last
        visible state. Classes have no normalised error: None.
    """
    T = run.segment_length
    question = NAMED_MASKS[name].question(run.modalities, T)
    segments = Segments(held_out, T)
    batch = segments.gather(segments.sample(SEGMENTS, seed=0))
    complete = (batch.present | ~(question.visible | question.wanted)).all(axis=(1, 2))
    values = {n: v[complete] for n, v in batch.values.items()}
    if not complete.any():
        raise DataError(f"no held-out segment has everything that {name!r} needs.")
    visible = np.broadcast_to(question.visible, (int(complete.sum()), *question.visible.shape))
    wanted = [m for i, m in enumerate(run.modalities) if question.wanted[:, i].any()]
    answers = ask(run, values, np.ascontiguousarray(visible), [m.name for m in wanted])
    totals: dict[str, list[float]] = {"normalized": [], "raw": [], "copy_last": []}
    for m in wanted:
        steps = np.flatnonzero(question.wanted[:, run.modalities.index(m)])
        truth = values[m.name][:, steps]
        totals["raw"].append(_mean_square(m, answers[m.name][:, steps], truth))
        if m.kind == "continuous":
            std = run.normalizer.statistics[m.name].std
            totals["normalized"].append(
                _mean_square(m, answers[m.name][:, steps] / std, truth / std)
            )
            copied = values[m.name][:, steps - 1]
            totals["copy_last"].append(_mean_square(m, copied / std, truth / std))
    kept = ("normalized", "raw", "copy_last") if name == "fd" else ("normalized", "raw")
    return {key: float(np.mean(totals[key])) if totals[key] else None for key in kept}


def find_environment(
    metadata: Metadata, config: EvalConfig, say: Callable[[str], None]
) -> str | None:
    """The environment to act in, checked against the data; None, with a notice, if there is none.

    Raises:
        EnvironmentMismatchError: The data do not belong to the environment that is asked for.
    """
    try:
        env_id = config.env_id or environment_to_act_in(metadata)
    except ConfigError as error:
        say(f"no environment: {error}")
        return None
    if env_id is None:
        say("no environment: the data name none. Name one with --env to see returns.")
        return None
    check_environment(metadata, env_id)
    return env_id


def roll_out(
    env_id: str,
    policies: Mapping[str, Policy],
    targets: Mapping[str, float | None],
    config: EvalConfig,
    say: Callable[[str], None],
    progress: Progress | None,
) -> dict[str, Any]:
    """Let policies act, all in lockstep; a ROLL for each (see docs/guides/acting.md).

    Args:
        env_id: The environment.
        policies: Name -> policy.
        targets: Name -> the episode return that the policy asks for, if any.
        config: How many episodes, and from which seed.
        say: Takes notices of failures.
        progress: Told how many episodes are finished.

    Returns:
        Nothing if there are no policies, or if what the data's environment needs is not installed.
    """
    if not policies:
        return {}
    try:
        episodes: dict[str, EpisodeResults] = {}
        for count, names in _by_episodes(policies, config).items():
            some = {name: policies[name] for name in names}
            episodes |= rollout(some, env_id, episodes=count, seed=config.seed, progress=progress)
    except MissingExtraError as error:
        if config.env_id is not None:
            raise
        say(f"no returns: {error}")
        return {}
    rolls = {name: _roll(env_id, targets.get(name), episodes[name]) for name in policies}
    for name, roll in rolls.items():
        for failure in roll["failures"]:
            say(f"{name}: the episode with seed {failure['seed']} failed: {failure['error']}")
    return rolls


def assemble(task: str, rolls: Mapping[str, Any]) -> Any:
    """The part of the result that belongs to a task: a ROLL, or one for each target."""
    if f"{task}/auto" not in rolls:
        return rolls.get(task)
    auto = rolls[f"{task}/auto"]
    if task == "two_stage":
        return {"auto": auto, "fixed": auto}
    sweep = {str(f): auto if f == AUTO else rolls[f"{task}/{f}"] for f in SWEEP}
    return {
        "auto": auto,
        "fixed": auto,  # as earlier versions called it, when `auto` was another
        "sweep": sweep,
        "best": max(sweep.values(), key=_mean_return),
    }


def _by_episodes(names: Iterable[str], config: EvalConfig) -> dict[int, list[str]]:
    """How many episodes -> the policies that act for so many."""
    groups: dict[int, list[str]] = {}
    for name in names:
        in_sweep = name.partition("/")[2] not in ("", "auto")
        few = config.sweep_episodes if in_sweep else None
        groups.setdefault(few or config.episodes, []).append(name)
    return groups


def _mean_return(roll: Mapping[str, Any]) -> float:
    """Below all others where no episode finished."""
    mean: float | None = roll["return"]["mean"]
    return -np.inf if mean is None else mean


def _able(run: Run, tasks: Sequence[str], say: Callable[[str], None]) -> list[str]:
    """The tasks that the run's network was trained for; says why the others do not apply."""
    config = run.description.train
    known = capabilities_of(config)
    able = [task for task in tasks if set(NEEDS.get(task, (task,))) <= set(known)]
    for task in tasks:
        if task not in able:
            say(
                f"{task} does not apply: the run is an MLP trained with the mask {config.mask!r}, "
                "which can do nothing else."
            )
    return able


def _mean_square(m: Modality, prediction: Any, truth: Any) -> float:
    """Mean squared error, or the share of wrong classes."""
    if m.kind == "discrete":
        return float((prediction != truth).mean())
    return float(((prediction.astype(np.float64) - truth) ** 2).mean())


def _offline(
    run: Run, config: EvalConfig, tasks: Sequence[str], say: Callable[[str], None]
) -> dict[str, Any]:
    try:
        spec = None if config.data is None else str(config.data)
        test = reported_episodes(run, spec, say)
    except DataError as error:
        if config.data is not None:
            raise
        say(f"no prediction errors: {error}")
        return dict.fromkeys(tasks)
    found: dict[str, Any] = {}
    for task in tasks:
        try:
            found[task] = prediction_error(run, test, task)
        except (ConfigError, DataError) as error:
            say(f"{task} does not apply: {error}")
            found[task] = None
    return found


def _online(
    run: Run,
    config: EvalConfig,
    tasks: Sequence[str],
    say: Callable[[str], None],
    progress: Progress | None,
) -> dict[str, Any]:
    env_id = find_environment(run.description.metadata, config, say)
    if env_id is None:
        return {}
    policies: dict[str, MaskedPolicy | PlanningPolicy | PaperPolicy] = {}
    for task in tasks:
        try:
            policies |= _policies(run, task, config.acting)
        except ConfigError as error:
            say(f"{task} does not apply: {error}")
    asked = {name: _asked(policy) for name, policy in policies.items()}
    targets = {n: None if t is None else episode_return(run, t) for n, t in asked.items()}
    rolls = roll_out(env_id, policies, targets, config, say, progress)
    return {task: assemble(task, rolls) for task in tasks}


def _asked(policy: MaskedPolicy | PlanningPolicy | PaperPolicy) -> float | None:
    """The return that a policy asks for, in the units of `returns`."""
    if isinstance(policy, PaperPolicy):
        return policy.target
    return (policy.plain if isinstance(policy, PlanningPolicy) else policy).ways[0].target


def _policies(
    run: Run, task: str, how: Acting
) -> Mapping[str, MaskedPolicy | PlanningPolicy | PaperPolicy]:
    """The policies of a task, by names such as `rcbc/auto`."""
    if how == "paper":
        return _published(run, task)
    if task == "plan":
        return {"plan": acting.planning(run)}
    if task == "bc":
        return {"bc": acting.behavior_cloning(run)}
    if task == "two_stage":
        return {"two_stage/auto": acting.two_stage(run)}
    auto = acting.return_conditioned(run)
    (way,) = auto.ways
    others = {f: replace(way, target=fraction_of_range(run, f)) for f in SWEEP if f != AUTO}
    return {"rcbc/auto": auto} | {f"rcbc/{f}": MaskedPolicy(run, [w]) for f, w in others.items()}


def _published(run: Run, task: str) -> dict[str, PaperPolicy]:
    """The same, as the original code acts."""
    if task == "bc":
        return {"bc": acting.as_published(run, "bc")}
    if task == "two_stage":
        return {"two_stage/auto": acting.as_published(run, "two_stage")}
    names = {f: f"rcbc/{'auto' if f == AUTO else f}" for f in SWEEP}
    return {name: acting.as_published(run, "rcbc", f"fraction:{f}") for f, name in names.items()}


def _roll(env_id: str, target: float | None, episodes: EpisodeResults) -> dict[str, Any]:
    return {
        "target": target,
        "episodes": len(episodes.returns),
        "return": _mean_and_std(episodes.returns),
        "score": _mean_and_std(score(env_id, episodes.returns)),
        "length": {"mean": _mean_and_std(episodes.lengths)["mean"]},
        "success": {"mean": _mean_and_std(episodes.successes)["mean"]},
        "failures": [vars(failure) for failure in episodes.failures],
    }


def _mean_and_std(values: Any) -> dict[str, float | None]:
    if values is None or not len(values):
        return {"mean": None, "std": None}
    return {"mean": float(np.mean(values)), "std": float(np.std(values))}
