"""The method behind all agents: train an agent, let it act by the same rollout."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mtm.core.errors import RunError
from mtm.evaluation.evaluate import EvalConfig
from mtm.research.baselines.agent_training import train_agent
from mtm.research.baselines.evaluation import evaluate_agent
from mtm.research.baselines.settings import AgentConfig
from mtm.research.experiments.methods import Stopped
from mtm.research.experiments.spec import RunSpec
from mtm.runs import checkpoint


def run(spec: RunSpec, folder: Path, needs: Sequence[Path]) -> dict[str, Any]:
    """Train the agent `spec.method` with `settings["agent"]`; act as `settings["evaluate"]` says.

    Returns:
        As `train_masked.run`, with one task of the agent's name. Agents do not look
        at held-out episodes, so that `best` is `last`.

    Raises:
        Stopped: A signal ended the training early.
        RunError: The returns could not be measured.
    """
    config = AgentConfig.from_json(spec.settings["agent"])
    agent = train_agent(spec.method, spec.data, config, folder, resume=True, silent=True)
    if agent.step < config.steps:
        raise Stopped
    notices: list[str] = []
    wanted = EvalConfig(**spec.settings["evaluate"])
    tasks = evaluate_agent(agent, wanted, say=notices.append)["tasks"]
    if tasks[spec.method] is None:
        raise RunError(f"could not measure returns: {' '.join(notices)}")
    last = {"step": agent.step, "tasks": tasks, "notices": notices}
    seconds = checkpoint.load(folder / "checkpoints", optimizer=False).state.seconds
    return {"seconds": seconds, "last": last, "best": last}
