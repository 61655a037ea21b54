"""A trained agent: a directory like a run's, and the policies that it makes.

OUT/config.json     which agent, settings, modalities, normalizer, data summary, versions
OUT/checkpoints/    see mtm.runs.checkpoint
OUT/metrics.csv     a row per logged step
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from mtm.control.policies import ModelPolicy
from mtm.control.return_targets import (
    TargetSpec,
    episode_return,
    fraction_of_range,
    resolve_target,
)
from mtm.core.errors import RunError
from mtm.core.versions import versions
from mtm.data.modalities import Modalities, Modality
from mtm.data.normalizer import Normalizer
from mtm.data.trajectories import Metadata
from mtm.models.network import move
from mtm.research.baselines.learner import Learner, make_learner
from mtm.research.baselines.replay import Scaling
from mtm.research.baselines.settings import AgentConfig
from mtm.runs import checkpoint
from mtm.runs.checkpoint import Which
from mtm.runs.description import AGENT, read_summary, reading_description
from mtm.runs.migrations import FORMAT, agent_settings


@dataclass(frozen=True)
class AgentDescription:
    """What `config.json` says: all of an agent but the weights."""

    name: str
    config: AgentConfig
    modalities: Modalities
    normalizer: Normalizer
    data: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "format": FORMAT,
            AGENT: self.name,
            "config": self.config.to_json(),
            "modalities": [m.to_json() for m in self.modalities],
            "normalizer": self.normalizer.to_json(),
            "data": self.data,
            "versions": versions(("torchrl", "tensordict")),
        }

    @property
    def metadata(self) -> Metadata:
        """Source, environment and horizon of the data that the agent was trained on."""
        return Metadata(**self.data["metadata"])


@dataclass(frozen=True)
class Agent:
    """A trained agent, ready to act.

    Attributes:
        path: The directory.
        description: Which agent, settings, modalities, normalizer, data summary.
        learner: The networks.
        step: Optimizer steps behind the weights.
    """

    path: Path
    description: AgentDescription
    learner: Learner
    step: int

    @property
    def name(self) -> str:
        """One of `mtm.research.baselines.AGENTS`."""
        return self.description.name

    @property
    def takes_target(self) -> bool:
        """Whether the agent acts on a return to ask for."""
        return self.name == "dt"

    def policy(self, target: TargetSpec | None = None) -> ModelPolicy:
        """A policy that acts as the agent does.

        Args:
            target: What a Decision Transformer asks for, as for
                `mtm.control.return_targets.resolve_target`; `auto` if None. The others take
                none and leave it alone.
        """
        if not self.takes_target:
            return self.learner.policy(None)
        return self.learner.policy(self.asked("auto" if target is None else target))

    def asked(self, target: TargetSpec) -> float:
        """The episode return that a target stands for."""
        return episode_return(self, resolve_target(self, target))

    def asked_fraction(self, fraction: float) -> float:
        """The episode return between the worst (0) and the best (1) of the data, or beyond."""
        return episode_return(self, fraction_of_range(self, fraction))


def agent_name(path: Path) -> str | None:
    """Which agent a directory holds; None if it holds none."""
    try:
        plain = json.loads((path / "config.json").read_text())
    except (OSError, ValueError):
        return None
    return plain.get(AGENT) if isinstance(plain, dict) else None


def load_agent(out: str | Path, which: Which | int = "last", *, device: str = "cpu") -> Agent:
    """Load a trained agent; the data are not needed.

    Args:
        out: The directory.
        which: `last` or a step.
        device: Where the agent is to act: `cpu`, `cuda`, ...

    Raises:
        RunError: The directory holds no readable agent, or `which` is `best`.
    """
    out = Path(out)
    description = read_agent_description(out)
    if which == "best":
        raise RunError(
            f"{out} has no best checkpoint: agents do not look at held-out episodes. Take the last."
        )
    saved = checkpoint.load(out / "checkpoints", which, optimizer=False)
    with torch.random.fork_rng(devices=[]):  # the first weights are drawn, and replaced below
        scaling = Scaling.of(description.modalities, description.normalizer)
        learner = make_learner(description.name, description.config, scaling)
    try:
        learner.load_state_dict(saved.model)
    except RuntimeError as error:
        raise RunError(f"the weights in {out} do not fit its config.json: {error}") from error
    return Agent(out, description, move(learner.eval(), device), saved.state.step)


def read_agent_description(path: Path) -> AgentDescription:
    """Read an agent's `config.json`.

    Raises:
        RunError: It is missing, damaged, of a newer format, or that of a run.
    """
    with reading_description(path, "an agent") as plain:
        if AGENT not in plain:
            raise RunError(f"{path} holds a run, not an agent; load it with mtm.load_run.")
        modalities = Modalities(Modality.from_json(m) for m in plain["modalities"])
        return AgentDescription(
            plain[AGENT],
            AgentConfig.from_json(agent_settings(plain)),
            modalities,
            Normalizer.from_json(plain["normalizer"], modalities),
            read_summary(plain["data"]),
        )
