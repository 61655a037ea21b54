"""The runs that experiments are made of, with complete settings.

Those of one data set and seed share the split, the normalisation and the seeds of the evaluation,
and equal ones are one run, whichever experiments list them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from mtm.core.config import TrainConfig
from mtm.core.names import CAPABILITIES
from mtm.research.baselines import agent_config, mlp_config, specialised_config
from mtm.research.experiments.scales import Scale
from mtm.research.experiments.spec import RunSpec

NAMES = {
    "mtm": "MTM",
    "s-mtm": "S-MTM",
    "mlp": "MLP",
    "bc10": "10 %BC",
    "dt": "DT",
    "tt": "Trajectory Transformer",
    "iql": "IQL",
    "cql": "CQL",
    "td3_bc": "TD3+BC",
    "rebrac": "ReBRAC",
    "mopo": "MOPO",
}
"""Method -> how tables call it."""

WHAT_ACTING_SEES = (
    "RCBC of MTM, S-MTM and MLP sees the current state and return alone, BC the current state; so "
    "does two-stage acting. The masks that S-MTM was trained with show it the past, too. DT and "
    "the Trajectory Transformer see a context of their own."
)
"""A note for every page on which they act."""

EVALUATION_SEED = 1000
"""The first episode's seed, the same for all methods."""


def seeds_of(spec: RunSpec, scale: Scale) -> int:
    """How many seeds a run is wanted of: the slow methods have fewer.

    TD3 on raw states has all of them, as all others are measured by where it ends; a pretraining
    has as many as the agents that read it.
    """
    if spec.settings.get("td3", {}).get("variant") == "raw":
        return scale.seeds
    is_pretraining = spec.method == "mtm" and "evaluate" not in spec.settings
    return scale.slow_seeds if is_pretraining else scale.seeds_of(spec.method)


def masked(
    scale: Scale,
    data: str,
    seed: int,
    *,
    tasks: tuple[str, ...] = CAPABILITIES,
    changes: Mapping[str, Any] | None = None,
    name: str = "MTM",
) -> RunSpec:
    """One MTM for all capabilities; `changes` of its settings make variants.

    Args:
        scale: Sizes.
        data: The data set.
        seed: Of the run.
        tasks: What to measure; nothing if empty.
        changes: Plain settings that differ from the scale's.
        name: For people.
    """
    return _trained("mtm", scale, data, seed, tasks, changes or {}, name, scale.train)


def specialised(
    scale: Scale,
    data: str,
    seed: int,
    task: str,
) -> RunSpec:
    """S-MTM: the same network trained with the one mask of a capability."""
    config = _in_budget(specialised_config(task, scale.preset), scale)  # type: ignore[arg-type]
    return _trained("s-mtm", scale, data, seed, (task,), {}, f"S-MTM {task.upper()}", config)


def mlp(
    scale: Scale,
    data: str,
    seed: int,
    task: str,
    *,
    changes: Mapping[str, Any] | None = None,
    name: str = "MLP",
) -> RunSpec:
    """An MLP for one capability; that of RCBC is RvS."""
    config = _in_budget(mlp_config(task, scale.preset), scale)  # type: ignore[arg-type]
    return _trained(
        "mlp", scale, data, seed, (task,), changes or {}, f"{name} {task.upper()}", config
    )


def agent(
    scale: Scale, data: str, seed: int, method: str, *, updates: int | None = None
) -> RunSpec:
    """One of `mtm.research.baselines.AGENTS`; with so many updates, if that is said."""
    config = replace(agent_config(method, scale.preset), seed=seed)
    if updates is not None:
        config = replace(config, steps=updates, checkpoint_every=max(updates // 10, 1))
    settings = {
        "agent": config.to_json(),
        "evaluate": _evaluation(scale, ()),
        "threads": scale.threads,
    }
    name = NAMES[method] if updates is None else f"{NAMES[method]}, {updates:,} updates"
    return RunSpec(method, data, seed, settings, _label(data, name, seed))


def _trained(
    method: str,
    scale: Scale,
    data: str,
    seed: int,
    tasks: tuple[str, ...],
    changes: Mapping[str, Any],
    name: str,
    config: TrainConfig,
) -> RunSpec:
    settings: dict[str, Any] = {
        "train": _merged(replace(config, seed=seed), changes),
        "threads": scale.threads,
    }
    if tasks:
        settings["evaluate"] = _evaluation(scale, tasks)
    return RunSpec(method, data, seed, settings, _label(data, name, seed))


def _in_budget(config: TrainConfig, scale: Scale) -> TrainConfig:
    """The settings with as many steps as MTM takes, measured and saved as often."""
    same = ("steps", "validate_every", "checkpoint_every", "log_every")
    return replace(config, **{name: getattr(scale.train, name) for name in same})


def _merged(config: TrainConfig, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Plain settings with some changed; the tables `model` and `optimizer` key by key."""
    plain = config.to_json()
    for key, value in changes.items():
        plain[key] = {**plain.get(key, {}), **value} if isinstance(value, Mapping) else value
    return plain


def _evaluation(scale: Scale, tasks: tuple[str, ...]) -> dict[str, Any]:
    told = {"tasks": tasks} if tasks else {}
    episodes = {"episodes": scale.episodes, "sweep_episodes": scale.sweep_episodes}
    return {**told, **episodes, "seed": EVALUATION_SEED}


def _label(data: str, name: str, seed: int) -> str:
    return f"{PurePath(data).name} · {name} · seed {seed}"
