"""Offline TD3, on states or on what a pretrained run makes of them.

    OUT/config.json     settings, data, encoder: what the run is
    OUT/curve.csv       a row per evaluation: updates, seconds, returns, losses
    OUT/checkpoints/    see mtm.runs.checkpoint

The batch and the noise of an update are functions of (seed, update), so a resumed run is the same
to the bit.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from rich.console import Console

from mtm.control.environments import check_spaces, make
from mtm.control.memoryless_policy import ReflexPolicy
from mtm.control.rollout import rollout
from mtm.core.config_io import differences
from mtm.core.errors import ConfigError, DataError, RunError, require
from mtm.core.progress import StepProgress, silence
from mtm.core.system import keep_freed_memory
from mtm.core.versions import versions
from mtm.data import loading
from mtm.data.environment_ids import environment_to_act_in
from mtm.data.modalities import Modality
from mtm.data.trajectories import TrajectoryDataset
from mtm.research.baselines.agent_training import EPISODE_RETURNS
from mtm.research.baselines.td3_config import TD3Config
from mtm.research.baselines.td3_curve import COLUMNS, CURVE_FILE, Curve, read_curve
from mtm.research.baselines.transitions import check_modalities
from mtm.runs import checkpoint
from mtm.runs import run as runs
from mtm.runs.checkpoint import State
from mtm.runs.run import Run, load_run
from mtm.training.optimization import check_finite, gradient_norm
from mtm.training.trackers import MetricsFile

if TYPE_CHECKING:
    from mtm.research.baselines.td3_agent import TD3Agent

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
    from mtm.research.baselines.td3_agent import TD3Agent

    out = Path(out)
    run = _pretrained(config, encoder_run)
    with silence(silent):
        source = loading.load(data) if isinstance(data, str) else data
    states, actions = _check_data(source)
    env_id = environment_to_act_in(source.metadata)
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
        spec = data if isinstance(data, str) else source.metadata.source
        summary = runs.summarize(spec, source, source, EPISODE_RETURNS)
        description = _Description(config, env_id, summary, _digest(agent))
        resuming = _open(out, description, resume)
        policy = ReflexPolicy(agent.act, states, actions)
        training = _Training(agent, policy, config, source, env_id, out)
        training.run(resuming=resuming, silent=silent)
    return read_curve(out)


class _Training:
    """Takes updates, evaluates, saves."""

    def __init__(
        self,
        agent: TD3Agent,
        policy: ReflexPolicy,
        config: TD3Config,
        data: TrajectoryDataset,
        env_id: str,
        out: Path,
    ) -> None:
        self.agent, self.policy, self.config = agent, policy, config
        self.data, self.env_id, self.out = data, env_id, out

    def run(self, *, resuming: bool, silent: bool) -> None:
        """All updates that are missing."""
        config = self.config
        state = State(0, 0.0, {})
        if resuming:
            state = checkpoint.restore(self.out / "checkpoints", self.agent, self.agent.adam)
        began = time.monotonic()
        batches = self.agent.transitions(self.data)
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
                norm = float(gradient_norm(self.agent.parameters()))
                check_finite(step, critic + actor, norm, "a lower learning_rate")
                row = self._evaluate(step) | {"critic_loss": critic, "actor_loss": actor}
                curve.log(step, row | {"seconds": seconds})
                self._save(State(step, seconds, {}))
                losses, since = torch.zeros(2), step
                progress.at(step, f"return {row['return_mean']:,.1f}")

    def _evaluate(self, step: int) -> dict[str, float]:
        """Mean and standard deviation of the returns of some episodes, always the same starts."""
        count = self.config.evaluation_episodes
        episodes = rollout({"td3": self.policy}, self.env_id, episodes=count)["td3"]
        if episodes.failures:
            raise RunError(
                f"the evaluation after {step} updates failed: {episodes.failures[0].error}"
            )
        return {
            "return_mean": float(episodes.returns.mean()),
            "return_std": float(episodes.returns.std()),
        }

    def _save(self, state: State) -> None:
        folder, averages = self.out / "checkpoints", checkpoint.optimizer_tensors(self.agent.adam)
        checkpoint.save(folder, state, self.agent.state_dict(), averages)
        checkpoint.prune(folder, keep=1)


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
            runs.TD3: asdict(self.config),
            "environment": self.env_id,
            "data": self.data,
            "encoder": self.encoder,
            "versions": versions(("torchrl", "tensordict")),
        }


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


def _open(out: Path, description: _Description, resume: bool) -> bool:
    """Make or check the directory; returns whether to go on from a checkpoint."""
    file = out / "config.json"
    if not (resume and file.exists()):
        runs.create(out, description)
        return False
    now = description.to_json()
    try:
        old = json.loads(file.read_text())
        found = runs.data_differences(old["data"], now["data"])
        found += differences(_compared(old), _compared(now))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RunError(f"{file} is damaged ({error!r}). Choose another directory.") from error
    runs.refuse_differences(out, found)
    runs.write_description(out, description)
    return True


def _compared(plain: dict[str, Any]) -> dict[str, Any]:
    """What must be the same to go on, besides the data."""
    settings = {k: v for k, v in plain[runs.TD3].items() if k not in MAY_CHANGE_ON_RESUME}
    return {runs.TD3: settings} | {key: plain[key] for key in ("environment", "encoder")}
