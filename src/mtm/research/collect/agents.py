"""A behaviour agent: Stable-Baselines3's SAC, trained in sittings.

    WORK/training.rows              every transition so far
    WORK/agent-000012000.pt         the agent at the last checkpoint
    WORK/snapshots/000012000.safetensors    the actor, now and then
    WORK/state.json                 written last: what the others must hold

A checkpoint is made only where an episode ends. The replay buffer is not saved: it is filled again
from the recorded transitions.
"""

from __future__ import annotations

import io
import json
import pickle
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import safetensors.torch
import torch
from rich.console import Console
from torch import Tensor

from mtm.control.environments import make
from mtm.core.atomic_write import write_atomically
from mtm.core.errors import RunError, require
from mtm.core.progress import StepProgress
from mtm.research.collect.actor import Actor
from mtm.research.collect.recorder import Recording, Sizes, recording_wrapper

if TYPE_CHECKING:
    from stable_baselines3 import SAC

    from mtm.control.environments import Environment

EXTRA = "collect"
LEARNING_STARTS = 5_000
"""Random steps before the first update; at most a quarter of the training."""
LARGEST_BUFFER = 1_000_000
CHECKPOINT_STEPS = 2_000
SNAPSHOTS = 50
"""How many actors to keep over the training."""
LEAST_SNAPSHOT_STEPS = 1_000
JUDGED_EPISODES = 5
"""Episodes that give a snapshot its return."""


@dataclass(frozen=True)
class Snapshot:
    """An actor kept during training: when, and its mean return with its own noise."""

    step: int
    mean_return: float


@dataclass(frozen=True)
class Trained:
    """What a training leaves behind.

    Attributes:
        recording: Every transition, in order.
        snapshots: By step.
        random_return: Mean return of the random actions that the training began with.
    """

    recording: Recording
    snapshots: tuple[Snapshot, ...]
    random_return: float


class Training:
    """Trains an agent, from the beginning or from the last checkpoint in `work`.

    Args:
        work: The folder that the module's docstring draws.
        env_id: As for `mtm.control.environments.make`.
        steps: How long; the episode under way is played to its end.
        seed: Of agent and environment.
        sizes: Of the environment.
    """

    def __init__(self, work: Path, env_id: str, steps: int, seed: int, sizes: Sizes) -> None:
        self._work, self._steps, self._seed = work, steps, seed
        (work / "snapshots").mkdir(exist_ok=True)
        self._random_steps = min(LEARNING_STARTS, steps // 4)
        self._snapshot_every = max(steps // SNAPSHOTS, LEAST_SNAPSHOT_STEPS)
        self._step, self._snapshots = _read_state(work)
        self._saved = self._step
        self._recording = Recording(work / "training.rows", sizes, rows=self._step)
        self._judge = make(env_id)
        self._agent = self._make_agent(recording_wrapper()(make(env_id), self._recording))

    def run(self, console: Console) -> Trained:
        """Train until enough steps are done."""
        if self._step < self._steps:
            if self._step:
                console.print(f"going on from step {self._step:,}")
            with StepProgress("training", self._steps, self._step, console) as self._progress:
                # The callback ends the training, where an episode ends: within the time limit.
                limit = self._judge.spec.max_episode_steps  # type: ignore[union-attr]
                self._agent.learn(
                    self._steps + int(limit or 0),
                    callback=self._on_step,
                    reset_num_timesteps=self._step == 0,
                )
        self._judge.close()
        self._agent.get_env().close()  # type: ignore[union-attr]
        early = self._recording.returns(min(self._random_steps, self._recording.rows))
        early = early if len(early) else self._recording.returns()
        return Trained(self._recording, tuple(self._snapshots), float(early.mean()))

    def _make_agent(self, env: Environment) -> SAC:
        sb3 = require("stable_baselines3", extra=EXTRA)
        logger = require("stable_baselines3.common.logger", extra=EXTRA)
        agent: SAC = sb3.SAC(
            "MlpPolicy",
            env,
            learning_starts=self._random_steps,
            buffer_size=min(2 * self._steps + CHECKPOINT_STEPS, LARGEST_BUFFER),
            # A sitting that goes on must not begin with the same random numbers as the first.
            seed=self._seed + self._step,
            device="cpu",
        )
        agent.set_logger(logger.Logger(folder=None, output_formats=[]))
        if self._step:
            _load_agent(self._work / _agent_file(self._step), agent)
            agent.num_timesteps = self._step
            _refill(agent, self._recording)
        return agent

    def _on_step(self, local: dict[str, Any], _: dict[str, Any]) -> bool:
        """Stable-Baselines3 calls this after every step; False ends the training."""
        self._progress.at(self._agent.num_timesteps, self._status())
        if not local["dones"][0]:
            return True
        self._step = self._agent.num_timesteps
        last = self._snapshots[-1].step if self._snapshots else 0
        is_last = self._step >= self._steps
        if is_last or self._step // self._snapshot_every > last // self._snapshot_every:
            self._take_snapshot()
        if is_last or self._step - self._saved >= CHECKPOINT_STEPS:
            self._save()
        return not is_last

    def _status(self) -> str:
        return f"return {self._snapshots[-1].mean_return:,.1f}" if self._snapshots else ""

    def _take_snapshot(self) -> None:
        weights = {k: v.detach().clone() for k, v in self._agent.actor.state_dict().items()}
        write_atomically(snapshot_file(self._work, self._step), safetensors.torch.save(weights))
        rng = np.random.default_rng([self._seed, self._step])
        actor = Actor(weights, self._judge)
        returns = [play(self._judge, actor, rng) for _ in range(JUDGED_EPISODES)]
        self._snapshots.append(Snapshot(self._step, float(np.mean(returns))))

    def _save(self) -> None:
        self._recording.flush()
        _save_agent(self._work / _agent_file(self._step), self._agent)
        state = {"step": self._step, "snapshots": [asdict(s) for s in self._snapshots]}
        write_atomically(self._work / "state.json", json.dumps(state).encode())
        for file in self._work.glob("agent-*.pt"):
            if file.name != _agent_file(self._step):
                file.unlink()
        self._saved = self._step


def play(env: Environment, actor: Actor, rng: np.random.Generator) -> float:
    """Play one episode with the policy's own noise; returns the sum of rewards."""
    observation, _ = env.reset(seed=int(rng.integers(1 << 31)))
    total, ended = 0.0, False
    while not ended:
        observation, reward, terminated, truncated, _ = env.step(actor.act(observation, rng))
        total += float(reward)
        ended = terminated or truncated
    return total


def steps_done(work: Path) -> int:
    """How far the training in a folder is, from its last checkpoint."""
    return _read_state(work)[0]


def snapshot_file(work: Path, step: int) -> Path:
    """Where the actor of a step is kept."""
    return work / "snapshots" / f"{step:09d}.safetensors"


def load_snapshot(work: Path, step: int) -> dict[str, Tensor]:
    """The actor's weights of a step."""
    return safetensors.torch.load(snapshot_file(work, step).read_bytes())


def _agent_file(step: int) -> str:
    return f"agent-{step:09d}.pt"


def _read_state(work: Path) -> tuple[int, list[Snapshot]]:
    file = work / "state.json"
    if not file.exists():
        return 0, []
    try:
        state = json.loads(file.read_text())
        return int(state["step"]), [Snapshot(**s) for s in state["snapshots"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{file} is damaged ({error!r}). Collect again with --overwrite.") from error


def _save_agent(path: Path, agent: SAC) -> None:
    content = io.BytesIO()
    torch.save({**agent.get_parameters(), "log_ent_coef": agent.log_ent_coef}, content)
    write_atomically(path, content.getvalue())


def _load_agent(path: Path, agent: SAC) -> None:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise RunError(
            f"{path} cannot be read ({error}). Collect again with --overwrite."
        ) from error
    assert agent.log_ent_coef is not None
    agent.log_ent_coef.data.copy_(content.pop("log_ent_coef").data)
    agent.set_parameters(content, device="cpu")


def _refill(agent: SAC, recording: Recording) -> None:
    """Put the recorded transitions into the agent's replay buffer."""
    buffer = agent.replay_buffer
    assert buffer is not None
    for chunk in recording.chunks():
        actions = agent.policy.scale_action(chunk["actions"])
        for i, row in enumerate(chunk):
            buffer.add(
                row["observations"],
                row["next_observations"],
                actions[i],
                row["rewards"],
                row["terminals"] | row["timeouts"],
                [{"TimeLimit.truncated": bool(row["timeouts"])}],
            )
