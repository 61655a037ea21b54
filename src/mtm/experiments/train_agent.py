"""The method behind DT, IQL, CQL and TD3+BC: train an agent, let it act by the same rollout."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mtm import datasets
from mtm.errors import RunError, require
from mtm.evaluate import FIXED, SWEEP, best_roll, roll
from mtm.experiments.methods import Stopped
from mtm.experiments.spec import RunSpec
from mtm.rollout import rollout
from mtm.scores import check_environment, matching_environment


def run(spec: RunSpec, folder: Path, needs: Sequence[Path]) -> dict[str, Any]:
    """Train the agent `spec.method` with `settings["agent"]`; act as `settings["evaluate"]` says.

    Returns:
        As `mtm.experiments.train_masked.run`: the agent's acting is the task `acting`, or `rcbc`
        if it is told a return. Agents keep their last weights only, so `best` is `last`.
    """
    baselines = require("mtm.baselines", extra="baselines")
    config = baselines.AgentConfig(**spec.settings["agent"])
    agent = baselines.train_agent(spec.method, spec.data, config, folder, resume=True, silent=True)
    if agent.step < config.steps:
        raise Stopped
    last = {"step": agent.step, "tasks": _act(agent, spec), "notices": []}
    return {"seconds": agent.seconds, "last": last, "best": last}


def _act(agent: Any, spec: RunSpec) -> dict[str, Any]:
    metadata = datasets.load(spec.data).metadata
    env_id = matching_environment(metadata)
    if env_id is None:
        raise RunError(f"could not measure returns: {spec.data} names no environment.")
    check_environment(metadata, env_id)
    conditioned = spec.settings["conditioned"]
    targets = {"auto": "auto", **{str(f): f"fraction:{f}" for f in SWEEP}}
    asked: dict[str, str | None] = dict(targets) if conditioned else {"auto": None}
    request = spec.settings["evaluate"]
    policies = {name: agent.policy(target) for name, target in asked.items()}
    episodes = rollout(policies, env_id, episodes=request["episodes"], seed=request["seed"])
    rolls = {name: roll(env_id, None, episodes[name]) for name in policies}
    if not conditioned:
        return {"acting": rolls["auto"]}
    sweep = {str(f): rolls[str(f)] for f in SWEEP}
    fixed = sweep[FIXED.removeprefix("fraction:")]
    return {
        "rcbc": {"auto": rolls["auto"], "fixed": fixed, "sweep": sweep, "best": best_roll(sweep)}
    }
