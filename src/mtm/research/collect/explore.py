"""Exploring without reward, in ExORL's layout: one `.npz` per episode.

The episodes on disk are the replay buffer; the agent is saved after each. What is drawn in episode
e is a pure function of (seed, e), so a collection that was stopped goes on as if it had not been.
An episode that is newer than the agent, which was then not saved in time, is played again.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from mtm.control.environments import make
from mtm.core.atomic_write import writing_to
from mtm.core.errors import ConfigError, require, unknown
from mtm.core.progress import StepProgress
from mtm.research.collect.coverage import make_grid, measure
from mtm.research.collect.episodes import (
    Episode,
    EpisodeWriter,
    Replay,
    list_episodes,
    read_episode,
    write_episode,
)
from mtm.research.collect.explorer import REWARDS, WIDTH, Explorer, RewardName
from mtm.research.collect.folder import Folder, held_folder
from mtm.research.collect.recorder import sizes

if TYPE_CHECKING:
    from mtm.control.environments import Environment

EXTRA = "collect"
FILES = ("episode_*.npz", "coverage.png")
RANDOM_STEPS = 4_000
"""Random steps before the agent acts; at most a tenth of all."""
UPDATE_EVERY = 2
"""Steps for each update of the agent."""
BATCH = 256
LARGEST_REPLAY = 1_000_000
COMPARED_STEPS = 100_000
"""Steps of each side in the comparison with random actions, at most."""


@dataclass(frozen=True)
class ExploreSettings:
    """What to collect; the same settings go on with the same collection.

    Attributes:
        env_id: As for `mtm.control.environments.make`.
        steps: In all; the episode under way is played to its end.
        seed: Of everything random.
        reward: `protorl`, `knn` or `random`.
        width: Of the agent's networks.
    """

    env_id: str
    steps: int
    seed: int
    reward: RewardName
    width: int = WIDTH

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ConfigError(f"--steps must be at least 1, got {self.steps}.")
        if self.seed < 0:
            raise ConfigError(f"--seed must not be negative, got {self.seed}.")
        if self.reward not in REWARDS:
            raise ConfigError(unknown("--explore-reward", self.reward, REWARDS))


def explore(
    settings: ExploreSettings, out: Path, console: Console, *, overwrite: bool = False
) -> Folder:
    """Explore, or go on with an exploration that was interrupted.

    Returns:
        The finished folder, whose `results` hold the coverage.

    Raises:
        ConfigError: The environment or the folder cannot be used.
        MissingExtraError: Matplotlib or the simulator is not installed.
    """
    require("matplotlib", extra=EXTRA)
    env = make(settings.env_id)
    sizes(env)
    with writing_to(out), held_folder(out):
        folder = Folder(out, asdict(settings), FILES, overwrite=overwrite)
        if folder.results is None:
            began = time.monotonic()
            _Exploration(settings, folder, env).run(console)
            results = _compare(settings, out, env, console)
            folder.finish(results | {"seconds_of_last_sitting": time.monotonic() - began})
        else:
            console.print(f"{out} is finished; --overwrite collects again.", soft_wrap=True)
    env.close()
    return folder


class _Exploration:
    """Episode after episode, from the first or from where an earlier sitting stopped."""

    def __init__(self, settings: ExploreSettings, folder: Folder, env: Environment) -> None:
        self._settings, self._env, self._out = settings, env, folder.path
        self._agent_file = folder.work / "agent.pt"
        self._sizes = sizes(env)
        self._random_steps = min(RANDOM_STEPS, settings.steps // 10)
        self._explorer: Explorer | None = None
        if settings.reward != "random":
            self._explorer = Explorer(self._sizes, settings.reward, settings.seed, settings.width)
            if self._agent_file.exists():
                _remove_from(folder.path, self._explorer.load(self._agent_file))
        there = list_episodes(folder.path)
        self._steps = sum(file.length for file in there)
        # Not how many there are: one that was damaged may have been deleted.
        self._next = there[-1].number + 1 if there else 0
        longest = env.spec.max_episode_steps  # type: ignore[union-attr]
        capacity = min(2 * settings.steps + 2 * int(longest or 0), LARGEST_REPLAY)
        self._replay = Replay(self._sizes, capacity)
        for file in there:
            self._replay.add(read_episode(file.path))

    def run(self, console: Console) -> None:
        """Collect what is missing."""
        total = self._settings.steps
        if self._next:
            console.print(f"going on with episode {self._next:,} after {self._steps:,} steps")
        with StepProgress("exploring", total, self._steps, console) as progress:
            while self._steps < total:
                rng = np.random.default_rng([self._settings.seed, self._next])
                episode = self._play(rng, progress)
                write_episode(self._out, self._next, episode)
                self._next += 1
                if self._explorer is not None:
                    self._explorer.save(self._agent_file, self._next)
                self._steps += len(episode["observation"]) - 1

    def _play(self, rng: np.random.Generator, progress: StepProgress) -> Episode:
        """One episode, with updates on the way once the random steps are done."""
        explorer = self._explorer if self._steps >= self._random_steps else None
        explorer = explorer if self._replay.size else None
        seed, status = int(rng.integers(1 << 31)), ""
        if explorer is not None:
            explorer.begin_episode(self._replay, seed)
        observation, info = self._env.reset(seed=seed)
        writer = EpisodeWriter(observation, self._sizes.action, info)
        self._replay.add(writer.rows())
        step, ended = 0, False
        while not ended:
            if explorer is None:
                chosen = rng.uniform(-1, 1, self._sizes.action).astype(np.float32)
            else:
                chosen = explorer.act(observation, rng)
            action = _scaled(self._env, chosen)
            observation, reward, terminated, truncated, info = self._env.step(action)
            writer.add(action, observation, float(reward), terminated, info)
            step, ended = step + 1, terminated or truncated
            self._replay.add(writer.rows(step), begins=False)
            if explorer is not None and (self._steps + step) % UPDATE_EVERY == 0:
                status = f"intrinsic {explorer.learn(self._replay.draw(rng, BATCH)):.3f}"
            progress.at(self._steps + step, status)
        return writer.rows()


def _remove_from(folder: Path, number: int) -> None:
    """Remove the episodes from `number` on: those that the agent has not learned from."""
    for file in list_episodes(folder):
        if file.number >= number:
            file.path.unlink()


def _scaled(env: Environment, action: NDArray[Any]) -> NDArray[np.float32]:
    """From [-1, 1] to the range of the environment's actions."""
    space: Any = env.action_space
    scaled: NDArray[np.float32] = space.low + 0.5 * (action + 1) * (space.high - space.low)
    return scaled.astype(np.float32)


def _compare(
    settings: ExploreSettings, out: Path, env: Environment, console: Console
) -> dict[str, Any]:
    """Draw the coverage beside as many states of random actions; returns the numbers."""
    from mtm.research.collect.pictures import coverage_maps
    from mtm.research.figures import save

    files = list_episodes(out)
    rng = np.random.default_rng([settings.seed, len(files)])
    explored = _explored_states([files[i].path for i in rng.permutation(len(files))])
    random = _random_states(env, len(explored), rng, console)
    grid = make_grid(settings.env_id, np.concatenate([explored, random]))
    ours, theirs = measure(grid, explored), measure(grid, random)
    save(coverage_maps(settings.reward, ours, theirs), out / "coverage.png", dpi=150)
    return {
        "episodes": len(files),
        "steps": sum(file.length for file in files),
        "coverage": {
            "over": list(grid.names),
            "states_compared": len(explored),
            "explored": {"cells": ours.cells, "entropy": ours.entropy},
            "random": {"cells": theirs.cells, "entropy": theirs.entropy},
        },
    }


def _explored_states(files: Sequence[Path]) -> NDArray[np.float32]:
    """The states of whole episodes, in the order given, as far as they are compared."""
    states: list[NDArray[Any]] = []
    while sum(map(len, states)) < COMPARED_STEPS and len(states) < len(files):
        states.append(read_episode(files[len(states)])["observation"])
    return np.concatenate(states)[:COMPARED_STEPS]


def _random_states(
    env: Environment, count: int, rng: np.random.Generator, console: Console
) -> NDArray[np.float32]:
    """The states that random actions visit, (count, size)."""
    states: list[NDArray[Any]] = []
    ended, width = True, sizes(env).action
    with StepProgress("random actions, for comparison", count, 0, console) as progress:
        while len(states) < count:
            if ended:
                observation, _ = env.reset(seed=int(rng.integers(1 << 31)))
                ended = False
            else:
                action = _scaled(env, rng.uniform(-1, 1, width))
                observation, _, terminated, truncated, _ = env.step(action)
                ended = terminated or truncated
            states.append(observation)
            progress.at(len(states))
    return np.array(states, np.float32)
