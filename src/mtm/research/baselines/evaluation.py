"""An agent's returns in its environment, in the form that `mtm.evaluate` gives for a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mtm.control.policies import Policy
from mtm.control.rollout import Progress
from mtm.data.environment_ids import matching_environment
from mtm.evaluation.evaluate import (
    AUTO,
    SWEEP,
    EvalConfig,
    assemble,
    find_environment,
    roll_out,
    weights_digest,
)
from mtm.research.baselines.agent import Agent


def evaluate_agent(
    agent: Agent,
    config: EvalConfig,
    *,
    say: Callable[[str], None] = print,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measure an agent.

    Args:
        agent: A trained agent.
        config: How many episodes, from which seed, in which environment.
        say: Takes notices, such as that there is no environment.
        progress: Told how many episodes are finished.

    Returns:
        As `mtm.evaluate`, with one task of the agent's name: a ROLL, or for dt what
        return-conditioned acting has (`auto`, `fixed`, `sweep`, `best`). None without environment.
    """
    env_id = find_environment(agent.description.metadata, config, say)
    found = None
    if env_id is not None:
        policies, targets = _policies(agent)
        rolls = roll_out(env_id, policies, targets, config, say, progress)
        found = assemble(agent.name, rolls)
    return {
        "run": str(agent.path),
        "step": agent.step,
        "weights": weights_digest(agent.learner),
        "data": agent.description.data["spec"],
        "part": "test" if agent.description.config.validation_fraction > 0 else "all",
        "environment": config.env_id or matching_environment(agent.description.metadata),
        "episodes": config.episodes,
        "seed": config.seed,
        "tasks": {agent.name: found},
    }


def _policies(agent: Agent) -> tuple[dict[str, Policy], dict[str, float | None]]:
    """Policies and their targets, by names such as `dt/auto`."""
    if not agent.takes_target:
        return {agent.name: agent.policy()}, {}
    asked = {f"dt/{f}": agent.asked_fraction(f) for f in SWEEP if f != AUTO}
    asked["dt/auto"] = agent.asked("auto")
    return {name: agent.learner.policy(target) for name, target in asked.items()}, dict(asked)
