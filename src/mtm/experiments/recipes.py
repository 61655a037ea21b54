"""The runs that experiments are made of, with complete settings.

Those of one data set and seed share the split, the normalisation and the seeds of the evaluation,
and equal ones are one run, whichever experiments list them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from mtm.config import TrainConfig
from mtm.experiments.scales import Scale
from mtm.experiments.spec import RunSpec

CAPABILITIES = ("bc", "rcbc", "id", "fd")
"""In the paper's order."""

NAMES = {
    "mtm": "MTM",
    "s-mtm": "S-MTM",
    "mlp": "MLP",
    "dt": "DT",
    "iql": "IQL",
    "cql": "CQL",
    "td3_bc": "TD3+BC",
}
"""Method -> how tables call it."""

EVALUATION_SEED = 1000
"""The first episode's seed, the same for all methods."""


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
    return _trained("mtm", scale, data, seed, tasks, changes or {}, name)


def specialised(
    scale: Scale,
    data: str,
    seed: int,
    task: str,
) -> RunSpec:
    """S-MTM: the same network trained with the one mask of a capability."""
    changes = {"mask": task}
    return _trained("s-mtm", scale, data, seed, (task,), changes, f"S-MTM {task.upper()}")


def mlp(
    scale: Scale,
    data: str,
    seed: int,
    task: str,
    *,
    changes: Mapping[str, Any] | None = None,
    name: str = "MLP",
) -> RunSpec:
    """An MLP for one capability, with the paper's hyperparameters; that of RCBC is RvS."""
    train = scale.train
    paper_warmup = 5000 * train.steps // 140_000
    settings = {
        "mask": task,
        "batch_size": scale.mlp_batch_size,
        "model": {"network": "mlp", "width": 1024, "dropout": 0.0},
        "optimizer": {
            "learning_rate": 2e-4,
            "weight_decay": 0.005,
            "warmup_steps": max(paper_warmup, 1),
        },
        **(changes or {}),
    }
    return _trained("mlp", scale, data, seed, (task,), settings, f"{name} {task.upper()}")


def agent(scale: Scale, data: str, seed: int, method: str) -> RunSpec:
    """DT, IQL, CQL or TD3+BC."""
    steps = scale.train.steps if method == "dt" else scale.agent_steps
    settings = {
        "agent": {"steps": steps, "batch_size": scale.train.batch_size, "seed": seed},
        "evaluate": _evaluation(scale, ()),
        "threads": scale.threads,
    }
    return RunSpec(method, data, seed, settings, _label(data, NAMES[method], seed))


def _trained(
    method: str,
    scale: Scale,
    data: str,
    seed: int,
    tasks: tuple[str, ...],
    changes: Mapping[str, Any],
    name: str,
) -> RunSpec:
    settings: dict[str, Any] = {
        "train": _merged(replace(scale.train, seed=seed), changes),
        "threads": scale.threads,
    }
    if tasks:
        settings["evaluate"] = _evaluation(scale, tasks)
    return RunSpec(method, data, seed, settings, _label(data, name, seed))


def _merged(config: TrainConfig, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Plain settings with some changed; the tables `model` and `optimizer` key by key."""
    plain = config.to_json()
    for key, value in changes.items():
        plain[key] = {**plain.get(key, {}), **value} if isinstance(value, Mapping) else value
    return plain


def _evaluation(scale: Scale, tasks: tuple[str, ...]) -> dict[str, Any]:
    told = {"tasks": tasks} if tasks else {}
    return {**told, "episodes": scale.episodes, "seed": EVALUATION_SEED}


def _label(data: str, name: str, seed: int) -> str:
    return f"{PurePath(data).name} · {name} · seed {seed}"
