"""From data and settings to a trained agent: one loop for all of them.

The batch and the noise of step k are functions of (seed, k), so that an agent that was stopped and
resumed is the same to the bit as one that was not.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import torch
from rich.console import Console
from torch import nn

from mtm.core.config import ReturnsConfig
from mtm.core.config_io import differences
from mtm.core.progress import StepProgress, silence
from mtm.core.randomness import Purpose, generator
from mtm.core.system import available_cores, keep_freed_memory
from mtm.data import loading
from mtm.data.normalizer import Normalizer
from mtm.data.returns import add_returns
from mtm.data.trajectories import TrajectoryDataset
from mtm.research.baselines.agent import (
    Agent,
    AgentDescription,
    load_agent,
    read_agent_description,
)
from mtm.research.baselines.learner import Learner, make_learner
from mtm.research.baselines.replay import Scaling
from mtm.research.baselines.settings import AgentConfig, check_agent
from mtm.research.baselines.transitions import REWARDS, check_modalities
from mtm.runs import checkpoint
from mtm.runs import run as runs
from mtm.runs.checkpoint import State
from mtm.training.optimization import check_finite, gradient_norm
from mtm.training.threads import restored_threads
from mtm.training.trackers import MetricsFile

MAY_CHANGE_ON_RESUME = ("steps", "log_every", "checkpoint_every")
"""Settings that change how an agent's training goes on, not what it is."""

EPISODE_RETURNS = ReturnsConfig(kind="sum")
"""Targets of agents are plain sums of rewards."""


@restored_threads()
def train_agent(
    name: str,
    data: str | TrajectoryDataset,
    config: AgentConfig,
    out: str | Path,
    *,
    resume: bool = False,
    silent: bool = False,
) -> Agent:
    """Train an agent on the CPU and leave it in the directory `out`.

    Args:
        name: One of `AGENTS`.
        data: A data set with one modality each of states and actions, and rewards; or what names
            one (see `mtm.load_dataset`).
        config: Settings; `agent_config(name)` is a start.
        out: The directory.
        resume: Go on with the agent that `out` holds; start one if it holds none.
        silent: Show nothing.

    Returns:
        The agent, loaded from its last checkpoint.

    Raises:
        MTMError: Of the kind that says what is wrong: data, settings or directory.
    """
    out = Path(out)
    check_agent(name)
    with silence(silent):
        source = loading.load(data, config.reading) if isinstance(data, str) else data
    prepared = _prepare(source)
    training = prepared
    if config.validation_fraction > 0:
        training, _ = prepared.split(config.validation_fraction, config.seed)
    spec = data if isinstance(data, str) else source.metadata.source
    summary = runs.summarize(spec, source, prepared, EPISODE_RETURNS)
    normalizer = Normalizer.fit(training)
    description = AgentDescription(name, config, prepared.modalities, normalizer, summary)
    torch.set_num_threads(min(torch.get_num_threads(), available_cores()))
    keep_freed_memory()
    with torch.random.fork_rng(devices=[]):  # weights and noise leave the caller's generator alone
        torch.manual_seed(config.seed)
        learner = make_learner(name, config, Scaling.of(prepared.modalities, normalizer))
        learner.prepare(training)
        resuming = _open(out, description, resume)
        _learn(learner, config, out, f"training {name}", resuming, silent)
    return load_agent(out)


def _prepare(source: TrajectoryDataset) -> TrajectoryDataset:
    """States, returns-to-go as sums, actions and rewards."""
    states, actions = check_modalities(source)
    return add_returns(source.select([states.name, actions.name, REWARDS]), EPISODE_RETURNS)


def _open(out: Path, description: AgentDescription, resume: bool) -> bool:
    """Make or check the directory; returns whether to go on from a checkpoint."""
    if not (resume and (out / "config.json").exists()):
        runs.create(out, description)
        return False
    old = read_agent_description(out)
    found = [] if old.name == description.name else [f"agent: {old.name} -> {description.name}"]
    found += runs.schema_differences(old.modalities, description.modalities)
    found += runs.data_differences(old.data, description.data)
    before, after = old.config.to_json(), description.config.to_json()
    for setting in MAY_CHANGE_ON_RESUME:
        before.pop(setting), after.pop(setting)
    runs.refuse_differences(out, [*found, *differences(before, after)])
    runs.write_description(out, description)
    return True


def _learn(
    learner: Learner, config: AgentConfig, out: Path, title: str, resuming: bool, silent: bool
) -> None:
    """Take the remaining steps, logging and saving now and then."""
    adam = torch.optim.AdamW(learner.groups(), fused=True)
    folder = out / "checkpoints"
    state = checkpoint.restore(folder, learner, adam) if resuming else State(0, 0.0, {})
    learner.train()
    began = time.monotonic() - state.seconds
    progress = StepProgress(title, config.steps, state.step, Console(quiet=silent, highlight=False))
    metrics = MetricsFile(out / "metrics.csv", ["loss", "seconds"], resume_after=state.step)
    total, counted = torch.zeros(()), 0
    with progress, contextlib.closing(metrics):
        for step in range(state.step + 1, config.steps + 1):
            total += _step(learner, adam, step - 1)
            counted += 1
            is_save_step = step == config.steps or step % config.checkpoint_every == 0
            # Logging looks whether all is finite, so that what is saved is sound.
            if is_save_step or step % config.log_every == 0:
                loss, seconds = float(total) / counted, time.monotonic() - began
                norm = float(gradient_norm(learner.parameters()))
                check_finite(step, loss, norm, "a lower learning rate")
                metrics.log(step, {"loss": loss, "seconds": seconds})
                progress.at(step, f"loss {loss:.3f}  {progress.rate(step):,.0f} steps/s")
                total, counted = torch.zeros(()), 0
            else:
                progress.at(step)
            if is_save_step:
                now = State(step, time.monotonic() - began, {})
                checkpoint.save(
                    folder, now, learner.state_dict(), checkpoint.optimizer_tensors(adam)
                )
                checkpoint.prune(folder, keep=2)


def _step(learner: Learner, adam: torch.optim.AdamW, step: int) -> torch.Tensor:
    """One optimizer step, counted from 0; returns the loss."""
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
    return loss.detach()
