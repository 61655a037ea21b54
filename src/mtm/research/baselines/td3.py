"""Offline TD3, on states or on what a pretrained run makes of them.

    OUT/config.json     settings, data, encoder: what the run is
    OUT/curve.csv       a row per evaluation: updates, seconds, returns, losses
    OUT/checkpoints/    see mtm.runs.checkpoint

The batch and the noise of an update are functions of (seed, update), so a resumed run is the same
to the bit.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from mtm.control.environments import check_spaces, make
from mtm.control.memoryless_policy import MemorylessPolicy
from mtm.control.rollout import rollout
from mtm.core.config_io import differences
from mtm.core.errors import ConfigError, DataError, RunError, require
from mtm.core.progress import silence
from mtm.core.system import keep_freed_memory
from mtm.core.versions import versions
from mtm.data import loading
from mtm.data.environment_ids import environment_to_act_in
from mtm.data.loading import DataSpec
from mtm.data.modalities import Modality
from mtm.data.trajectories import TrajectoryDataset
from mtm.data.verification import verify
from mtm.research.baselines.agent_training import EPISODE_RETURNS
from mtm.research.baselines.td3_config import TD3Config
from mtm.research.baselines.td3_curve import Curve, CurveFile, read_curve
from mtm.research.baselines.transitions import check_modalities
from mtm.runs.description import TD3, data_differences, summarize
from mtm.runs.directory import opened
from mtm.runs.run import Run, load_run
from mtm.training.optimization import gradient_norm
from mtm.training.scaffold import Look, Loop, Schedule, Trainer, check_stop_at
from mtm.training.trackers import Tracker

if TYPE_CHECKING:
    from mtm.research.baselines.td3_agent import TD3Agent
    from mtm.research.baselines.td3_data import EncodedTransitions

EXTRA = "baselines"

MAY_CHANGE_ON_RESUME = ("updates",)
"""Settings that change how a run goes on, not what it is."""


def train_td3(
    data: DataSpec | TrajectoryDataset,
    config: TD3Config,
    out: str | Path,
    *,
    encoder_run: str | Path | Run | None = None,
    resume: bool = False,
    overwrite: bool = False,
    stop_at: int | None = None,
    silent: bool = False,
) -> Curve:
    """Train TD3 on logged data and evaluate it in the data's environment on the way.

    Args:
        data: A data set with rewards, or what names one: `exorl:walk:DIRECTORY`.
        config: Settings; `td3_preset("cpu")` is a start.
        out: The directory to write to.
        encoder_run: A pretrained run, or its directory; for all variants but `raw`.
        resume: Go on with the run that `out` holds; start one if it holds none.
        overwrite: Replace what `out` holds.
        stop_at: End this sitting at that update.
        silent: Show nothing.

    Returns:
        The evaluations so far; there may be none if a signal ended the training.

    Raises:
        MTMError: Of the kind that says what is wrong: data, settings or directory.
    """
    for library in ("torchrl", "tensordict"):
        require(library, extra=EXTRA)
    from mtm.research.baselines.td3_agent import TD3Agent

    out = Path(out)
    check_stop_at(stop_at)
    run = _pretrained(config, encoder_run)
    with silence(silent):
        source = loading.as_dataset(data)
        if resume:
            verify(source)
    states, actions = _check_data(source)
    env_id = _environment(source)
    low, high = _bounds(env_id, states, actions)
    if run is not None:
        _check_run(run, states, actions)
    keep_freed_memory()
    with torch.random.fork_rng(devices=[]):  # the caller's generator is left alone
        torch.manual_seed(config.seed)
        agent = TD3Agent(config, states.size, low, high, run)
        summary = summarize(source, source, EPISODE_RETURNS)
        description = _Description(config, env_id, summary, _digest(agent))
        found = partial(_differences, out, description)
        with opened(out, description, found, resume=resume, overwrite=overwrite) as resuming:
            began = time.monotonic()
            batches = agent.transitions(source)
            spent = time.monotonic() - began
            policy = MemorylessPolicy(agent.act, states, actions)
            trainer = _TD3Trainer(agent, policy, config, batches, env_id)
            Loop(trainer, out, resume=resuming, silent=silent, spent=spent).run(stop_at)
    return read_curve(out)


class _TD3Trainer(Trainer):
    """Takes updates, and lets the actor act now and then.

    Args:
        agent: What is trained.
        policy: Acts as it does.
        config: Settings.
        batches: To learn from.
        env_id: Where to act.
    """

    cure = "a lower learning_rate"
    counts_steps_only = True  # evaluations would drown the updates that they look at

    def __init__(
        self,
        agent: TD3Agent,
        policy: MemorylessPolicy,
        config: TD3Config,
        batches: EncodedTransitions,
        env_id: str,
    ) -> None:
        self.title = f"TD3 {config.variant}"
        self.network, self.optimizers = agent, (agent.adam,)
        every = config.evaluate_every
        self.schedule = Schedule(config.updates, every, every, every, keep=1)
        self._agent, self._policy, self._config = agent, policy, config
        self._batches, self._env_id = batches, env_id
        self._losses, self._counted = torch.zeros(2), 0

    def step(self, step: int) -> None:
        """Take an update, counted from 0."""
        config = self._config
        noise = (config.noise, config.noise_limit)
        batch = self._batches.batch(config.batch_size, noise, config.seed, step)
        self._losses += self._agent.update(batch)
        self._counted += 1

    def look(self, seconds: float) -> Look:
        """The mean losses since the last look."""
        critic, actor = (self._losses / self._counted).tolist()
        self._losses, self._counted = torch.zeros(2), 0
        metrics = {"critic_loss": critic, "actor_loss": actor}
        return Look(metrics, critic + actor, float(gradient_norm(self._agent.parameters())))

    def measure(self, step: int) -> dict[str, float]:
        """Mean and standard deviation of the returns of some episodes, always the same starts."""
        count = self._config.evaluation_episodes
        episodes = rollout({"td3": self._policy}, self._env_id, episodes=count)["td3"]
        if episodes.failures:
            raise RunError(
                f"the evaluation after {step} updates failed: {episodes.failures[0].error}"
            )
        return {
            "return_mean": float(episodes.returns.mean()),
            "return_std": float(episodes.returns.std()),
        }

    def trackers(self, out: Path, resume_after: int) -> list[Tracker]:
        """The learning curve."""
        return [CurveFile(out, resume_after)]

    def status(self, row: Mapping[str, float], rate: float) -> str | None:
        """The mean return, where there was an evaluation."""
        return f"return {row['return_mean']:,.1f}" if "return_mean" in row else None


@dataclass(frozen=True)
class _Description:
    """What `config.json` says."""

    config: TD3Config
    env_id: str
    data: dict[str, Any]
    encoder: str | None

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            TD3: asdict(self.config),
            "environment": self.env_id,
            "data": self.data,
            "encoder": self.encoder,
            "versions": versions(("torchrl", "tensordict")),
        }


def _environment(data: TrajectoryDataset) -> str:
    """Where to evaluate."""
    env_id = environment_to_act_in(data.metadata)
    if env_id is None:
        raise ConfigError(
            "the data name no environment to evaluate on. Name a task, as in "
            "exorl:walk:DIRECTORY, or set it with data.with_metadata(env_id=...)."
        )
    return env_id


def _check_data(data: TrajectoryDataset) -> tuple[Modality, Modality]:
    """States and actions of data that TD3 can learn from."""
    found = check_modalities(data)
    faults = [
        f"modality {m.name!r} must be a vector, it has shape {m.shape}."
        for m in found
        if len(m.shape) != 1
    ]
    if faults:
        raise DataError(*faults)
    return found


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


def _digest(agent: TD3Agent) -> str | None:
    """A hash of the pretrained weights; None if there are none."""
    digest, found = hashlib.sha256(), False
    for encoder in (agent.observer, *agent.encoders):
        for tensor in encoder.state_dict().values() if encoder is not None else ():
            digest.update(tensor.numpy().tobytes())
            found = True
    return digest.hexdigest()[:16] if found else None


def _differences(out: Path, description: _Description) -> list[str]:
    """What differs from the training that a directory holds, so that it cannot go on with that."""
    file, now = out / "config.json", description.to_json()
    try:
        old = json.loads(file.read_text())
        found = data_differences(old["data"], now["data"])
        return found + differences(_compared(old), _compared(now))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RunError(f"{file} is damaged ({error!r}). Choose another directory.") from error


def _compared(plain: dict[str, Any]) -> dict[str, Any]:
    """What must be the same to go on, besides the data."""
    settings = {k: v for k, v in plain[TD3].items() if k not in MAY_CHANGE_ON_RESUME}
    return {TD3: settings} | {key: plain[key] for key in ("environment", "encoder")}
