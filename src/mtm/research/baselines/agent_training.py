"""From data and settings to a trained agent, whichever it is.

The batch and the noise of step k are functions of (seed, k), so that an agent that was stopped and
resumed is the same to the bit as one that was not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import nn

from mtm.core.config import ReturnsConfig
from mtm.core.progress import silence
from mtm.core.randomness import Purpose, generator
from mtm.core.system import available_cores, keep_freed_memory
from mtm.data import loading
from mtm.data.loading import DataSpec
from mtm.data.normalizer import Normalizer
from mtm.data.returns import add_returns, reward_of
from mtm.data.trajectories import TrajectoryDataset
from mtm.data.verification import verify
from mtm.models.network import move
from mtm.research.baselines.agent import (
    Agent,
    AgentDescription,
    load_agent,
    read_agent_description,
)
from mtm.research.baselines.learner import Learner, make_learner
from mtm.research.baselines.replay import Scaling
from mtm.research.baselines.settings import AgentConfig, check_agent
from mtm.research.baselines.transitions import check_modalities
from mtm.runs.description import (
    data_differences,
    schema_differences,
    settings_differences,
    summarize,
)
from mtm.runs.directory import opened
from mtm.training.optimization import gradient_norm
from mtm.training.scaffold import Look, Loop, Schedule, Trainer, check_stop_at
from mtm.training.threads import restored_threads
from mtm.training.trackers import MetricsFile, Tracker

MAY_CHANGE_ON_RESUME = ("steps", "log_every", "checkpoint_every")
"""Settings that change how an agent's training goes on, not what it is."""

KEPT_CHECKPOINTS = 2

EPISODE_RETURNS = ReturnsConfig(kind="sum")
"""Targets of agents are plain sums of rewards."""


@restored_threads()
def train_agent(
    name: str,
    data: DataSpec | TrajectoryDataset,
    config: AgentConfig,
    out: str | Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    stop_at: int | None = None,
    device: str = "cpu",
    silent: bool = False,
) -> Agent:
    """Train an agent and leave it in the directory `out`.

    Args:
        name: One of `AGENTS`.
        data: A data set with one modality each of states and actions, and rewards; or what names
            one (see `mtm.load_dataset`).
        config: Settings; `agent_config(name)` is a start.
        out: The directory.
        resume: Go on with the agent that `out` holds; start one if it holds none.
        overwrite: Replace what `out` holds.
        stop_at: End this sitting at that step; learning rates still run over all steps.
        device: Where to compute: `cpu`, `cuda`, ...
        silent: Show nothing.

    Returns:
        The agent, loaded from its last checkpoint.

    Raises:
        MTMError: Of the kind that says what is wrong: data, settings or directory.
    """
    out = Path(out)
    check_agent(name)
    check_stop_at(stop_at)
    with silence(silent):
        source = loading.as_dataset(data, config.reading)
        if resume:
            verify(source)
    loading.check_reading(source, config.reading)
    if source.metadata.origin is not None:
        config = replace(config, reading=source.metadata.origin.reading)
    prepared = _prepare(source)
    training = prepared
    if config.validation_fraction > 0:
        training, _ = prepared.split(config.validation_fraction, config.seed)
    summary = summarize(source, prepared, EPISODE_RETURNS)
    normalizer = Normalizer.fit(training)
    description = AgentDescription(name, config, prepared.modalities, normalizer, summary)
    torch.set_num_threads(min(torch.get_num_threads(), available_cores()))
    keep_freed_memory()
    with torch.random.fork_rng(devices=[]):  # weights and noise leave the caller's generator alone
        torch.manual_seed(config.seed)
        learner = make_learner(name, config, Scaling.of(prepared.modalities, normalizer))
        learner = move(learner, device)
        learner.prepare(training)
        found = partial(_differences, out, description)
        with opened(out, description, found, resume=resume, overwrite=overwrite) as resuming:
            trainer = AgentTrainer(name, learner)
            Loop(trainer, out, resume=resuming, silent=silent).run(stop_at)
    return load_agent(out, device=device)


def _prepare(source: TrajectoryDataset) -> TrajectoryDataset:
    """States, returns-to-go as sums, actions and rewards."""
    states, actions = check_modalities(source)
    names = [states.name, actions.name, reward_of(source).name]
    return add_returns(source.select(names), EPISODE_RETURNS)


def _differences(out: Path, description: AgentDescription) -> list[str]:
    """What differs from the agent that a directory holds, so that it cannot go on with that."""
    old = read_agent_description(out)
    found = [] if old.name == description.name else [f"agent: {old.name} -> {description.name}"]
    found += schema_differences(old.modalities, description.modalities)
    found += data_differences(old.data, description.data)
    before, after = old.config.to_json(), description.config.to_json()
    return found + settings_differences(before, after, MAY_CHANGE_ON_RESUME)


class AgentTrainer(Trainer):
    """Takes the steps of any learner.

    Args:
        name: Which agent it is.
        learner: Ready to draw batches.
    """

    def __init__(self, name: str, learner: Learner) -> None:
        self.title, self.network = f"training {name}", learner.train()
        self._learner, config = learner, learner.config
        self.schedule = Schedule(
            steps=config.steps,
            log_every=config.log_every,
            measure_every=config.steps,  # there is nothing to measure
            save_every=config.checkpoint_every,
            keep=KEPT_CHECKPOINTS,
        )
        self._adam = torch.optim.AdamW(learner.groups(), fused=True)
        self.optimizers = (self._adam,)
        self._total, self._counted = torch.zeros((), device=self._learner.device), 0

    def step(self, step: int) -> None:
        """Take an optimizer step, counted from 0."""
        learner, adam = self._learner, self._adam
        rng = generator(learner.config.seed, Purpose.DROPOUT, step)
        torch.manual_seed(int(rng.integers(2**62)))
        learner.before_step(adam, step)
        loss = torch.stack(list(learner.losses(step).values())).sum()
        adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        if learner.clip_norm > 0:
            nn.utils.clip_grad_norm_(learner.parameters(), learner.clip_norm)
        adam.step()
        learner.after_step(step)
        self._total += loss.detach()
        self._counted += 1

    def look(self, seconds: float) -> Look:
        """The mean loss since the last look."""
        loss = float(self._total) / self._counted
        self._total, self._counted = torch.zeros((), device=self._learner.device), 0
        return Look({"loss": loss}, loss, float(gradient_norm(self._learner.parameters())))

    def trackers(self, out: Path, resume_after: int) -> list[Tracker]:
        """A metrics file."""
        return [MetricsFile(out / "metrics.csv", ["loss", "seconds"], resume_after)]

    def status(self, row: Mapping[str, float], rate: float) -> str:
        """The loss and the speed."""
        return f"loss {row['loss']:.3f}  {rate:,.0f} steps/s"
