"""Offline TD3, on states or on what a pretrained run makes of them.

    OUT/config.json     settings, data, encoder: what the run is
    OUT/curve.csv       a row per evaluation: updates, seconds, returns, losses
    OUT/checkpoints/    see mtm.checkpoint

The batch and the noise of an update are functions of (seed, update), so a resumed run is the same
to the bit. The data must not end in terminal states: every episode is taken as cut by time, as all
of dm_control's are.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from rich.console import Console

from mtm import checkpoint, datasets
from mtm.baselines.td3_config import TD3Config
from mtm.baselines.td3_curve import COLUMNS, CURVE_FILE, Curve, read_curve
from mtm.baselines.td3_data import REWARDS, check_data, rows_with_next
from mtm.checkpoint import State
from mtm.config import differences
from mtm.environments import check_spaces, make
from mtm.errors import ConfigError, RunError, require
from mtm.machine import keep_freed_memory
from mtm.modalities import Modality
from mtm.progress import StepProgress
from mtm.rollout import rollout
from mtm.run import Run, load_run
from mtm.scores import matching_environment
from mtm.trackers import MetricsFile
from mtm.trajectories import TrajectoryDataset

if TYPE_CHECKING:
    from mtm.baselines.td3_agent import TD3Agent

EXTRA = "baselines"

MAY_CHANGE_ON_RESUME = ("updates",)
"""Settings that change how a run goes on, not what it is."""


def train_td3(
    data: str | TrajectoryDataset,
    config: TD3Config,
    out: str | Path,
    *,
    encoder_run: str | Path | Run | None = None,
    resume: bool = False,
    silent: bool = False,
) -> Curve:
    """Train TD3 on logged data and evaluate it in the data's environment on the way.

    Args:
        data: A data set with rewards, or what names one: `exorl:walk:DIRECTORY`.
        config: Settings; `td3_preset("cpu")` is a start.
        out: The directory to write to.
        encoder_run: A pretrained run, or its directory; for all variants but `raw`.
        resume: Go on with the run that `out` holds; start one if it holds none.
        silent: Show nothing.

    Returns:
        The evaluations.

    Raises:
        MTMError: Of the kind that says what is wrong: data, settings or directory.
    """
    for library in ("torchrl", "tensordict"):
        require(library, extra=EXTRA)
    from mtm.baselines.td3_agent import TD3Agent

    out = Path(out)
    run = _pretrained(config, encoder_run)
    source = datasets.load(data) if isinstance(data, str) else data
    states, actions = check_data(source)
    env_id = matching_environment(source.metadata)
    if env_id is None:
        raise ConfigError(
            "the data name no environment to evaluate on. Name a task, as in "
            "exorl:walk:DIRECTORY, or set it with data.with_metadata(env_id=...)."
        )
    low, high = _bounds(env_id, states, actions)
    if run is not None:
        _check_run(run, states, actions)
    keep_freed_memory()
    with torch.random.fork_rng(devices=[]):  # the caller's generator is left alone
        torch.manual_seed(config.seed)
        agent = TD3Agent(config, states.size, low, high, run)
        resuming = _open(out, _describe(config, source, env_id, agent), resume)
        training = _Training(agent, config, source, (states.name, actions.name), env_id, out)
        training.run(resuming=resuming, silent=silent)
    return read_curve(out)


class _Training:
    """Takes updates, evaluates, saves."""

    def __init__(
        self,
        agent: TD3Agent,
        config: TD3Config,
        data: TrajectoryDataset,
        names: tuple[str, str],
        env_id: str,
        out: Path,
    ) -> None:
        self.agent, self.config, self.out, self.env_id = agent, config, out, env_id
        self._data, self._names = data, (*names, REWARDS)
        self._folder = out / "checkpoints"

    def run(self, *, resuming: bool, silent: bool) -> None:
        """All updates that are missing."""
        config = self.config
        state = self._restore() if resuming else State(0, 0.0, {})
        began = time.monotonic()
        # A copy, because the data may be mapped from disk, and are read in random order.
        states, actions, rewards = (
            torch.from_numpy(np.array(self._data.arrays[name])) for name in self._names
        )
        batches = self.agent.transitions(states, actions, rewards, rows_with_next(self._data))
        seconds = state.seconds if state.step else time.monotonic() - began
        curve = MetricsFile(self.out / CURVE_FILE, COLUMNS, resume_after=state.step)
        progress = StepProgress(
            f"TD3 {config.variant}",
            config.updates,
            state.step,
            Console(quiet=silent, highlight=False),
        )
        noise, losses, since = (config.noise, config.noise_limit), torch.zeros(2), state.step
        with progress, contextlib.closing(curve):
            for step in range(state.step + 1, config.updates + 1):
                began = time.monotonic()
                batch = batches.batch(config.batch_size, noise, config.seed, step - 1)
                losses += self.agent.update(batch)
                seconds += time.monotonic() - began
                progress.at(step)
                if step % config.evaluate_every and step != config.updates:
                    continue
                critic, actor = (losses / (step - since)).tolist()
                self._check(step, critic)
                row = self._evaluate(step) | {"critic_loss": critic, "actor_loss": actor}
                curve.log(step, row | {"seconds": seconds})
                self._save(State(step, seconds, {}))
                losses, since = torch.zeros(2), step
                progress.at(step, f"return {row['return_mean']:,.1f}")

    @staticmethod
    def _check(step: int, loss: float) -> None:
        if not math.isfinite(loss):
            raise RunError(
                f"the critics' loss became {loss} by update {step}. The last checkpoint is sound; "
                "train again with a lower learning_rate."
            )

    def _evaluate(self, step: int) -> dict[str, float]:
        """Mean and spread of the returns of some episodes, always the same starts."""
        from mtm.baselines.td3_agent import TD3Policy

        policy, count = TD3Policy(self.agent), self.config.evaluation_episodes
        episodes = rollout({"td3": policy}, self.env_id, episodes=count)["td3"]
        if episodes.failures:
            raise RunError(
                f"the evaluation after {step} updates failed: {episodes.failures[0].error}"
            )
        return {
            "return_mean": float(episodes.returns.mean()),
            "return_std": float(episodes.returns.std()),
        }

    def _save(self, state: State) -> None:
        weights = {name: tensor.clone() for name, tensor in self.agent.state_dict().items()}
        averages = checkpoint.optimizer_tensors(self.agent.adam)
        checkpoint.save(self._folder, state, weights, averages)
        checkpoint.prune(self._folder, 1)

    def _restore(self) -> State:
        """Fill the agent from the last sound checkpoint, if there is one."""
        if not checkpoint.steps(self._folder):
            return State(0, 0.0, {})  # stopped before the first checkpoint: begin again
        saved = checkpoint.load(self._folder)
        self.agent.restore(saved.model)
        checkpoint.restore_optimizer(self.agent.adam, saved.optimizer)
        return saved.state


def _pretrained(config: TD3Config, given: str | Path | Run | None) -> Run | None:
    """The run whose encoder the variant needs."""
    if (config.variant == "raw") != (given is None):
        raise ConfigError(
            f"the variant {config.variant!r} "
            + ("reads states: leave encoder_run out." if given else "needs encoder_run.")
        )
    return load_run(given) if isinstance(given, str | Path) else given


def _check_run(run: Run, states: Modality, actions: Modality) -> None:
    """Raise `ConfigError` unless the run knows states and actions like the data's."""
    for role, here in (("state", states), ("action", actions)):
        known = [m for m in run.modalities if m.role == role]
        if [m.shape for m in known] != [here.shape]:
            listed = ", ".join(f"{m.name}{list(m.shape)}" for m in known) or "none"
            raise ConfigError(
                f"the run {run.path} does not fit the data: it has {listed} of role {role!r}, the "
                f"data have {here.name}{list(here.shape)}. Pretrain on data of the same robot."
            )


def _bounds(env_id: str, states: Modality, actions: Modality) -> tuple[Any, Any]:
    """The range of the environment's actions; raises `ConfigError` if it does not fit the data."""
    env = make(env_id)
    try:
        check_spaces(env, states, actions)
        space: Any = env.action_space
        return space.low.astype(np.float32), space.high.astype(np.float32)
    finally:
        env.close()


def _describe(
    config: TD3Config, data: TrajectoryDataset, env_id: str, agent: TD3Agent
) -> dict[str, Any]:
    """What `config.json` says."""
    digest = hashlib.sha256()
    for encoder in (agent.observer, *agent.encoders):
        for tensor in encoder.state_dict().values() if encoder is not None else ():
            digest.update(tensor.numpy().tobytes())
    return {
        "td3": asdict(config),
        "environment": env_id,
        "data": {"source": data.metadata.source, "fingerprint": data.fingerprint},
        "encoder": None if config.variant == "raw" else digest.hexdigest()[:16],
    }


def _open(out: Path, description: dict[str, Any], resume: bool) -> bool:
    """Make or check the directory; returns whether to go on from a checkpoint."""
    file = out / "config.json"
    resuming = resume and file.exists()
    if resuming:
        try:
            old = json.loads(file.read_text())
            known = {k: v for k, v in old["td3"].items() if k not in MAY_CHANGE_ON_RESUME}
        except (KeyError, ValueError, AttributeError, OSError) as error:
            raise RunError(f"{file} is damaged ({error!r}). Choose another directory.") from error
        wanted = {k: v for k, v in description["td3"].items() if k not in MAY_CHANGE_ON_RESUME}
        found = differences(old | {"td3": known}, description | {"td3": wanted})
        if found:
            listed = "\n".join(f"  - {line}" for line in found)
            raise RunError(
                f"{out} cannot be resumed, it was trained with something else:\n{listed}\n"
                "Give the same settings, data and encoder, or choose another directory."
            )
    elif out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise RunError(f"{out} is not empty. Go on with resume=True, or choose another directory.")
    out.mkdir(parents=True, exist_ok=True)
    checkpoint.write_atomically(file, json.dumps(description, indent=2).encode())
    return resuming
