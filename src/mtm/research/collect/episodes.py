"""ExORL's episodes: files on disk, and the replay buffer that is filled from them.

An episode of n steps has n + 1 rows: row 0 is the first observation, with zeros for what did not
happen yet, and `action[i]` leads to `observation[i]`.
"""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mtm.core.atomic_write import write_atomically
from mtm.core.errors import DataError
from mtm.data.formats.npz import read_members
from mtm.research.collect.recorder import Sizes

Episode: TypeAlias = dict[str, NDArray[Any]]

_NAME = re.compile(r"episode_(\d+)_(\d+)\.npz")


class EpisodeWriter:
    """Gathers the rows of one episode.

    Args:
        observation: The first one.
        actions: Numbers in an action.
        info: Of the reset; its `physics` is kept if there.
    """

    def __init__(self, observation: NDArray[Any], actions: int, info: dict[str, Any]) -> None:
        self._rows: dict[str, list[Any]] = {
            "observation": [observation],
            "action": [np.zeros(actions)],
            "reward": [[0.0]],
            "discount": [[1.0]],
        }
        if "physics" in info:
            self._rows["physics"] = [info["physics"]]

    def add(
        self,
        action: NDArray[Any],
        observation: NDArray[Any],
        reward: float,
        terminated: bool,
        info: dict[str, Any],
    ) -> None:
        """Add what an action led to."""
        self._rows["observation"].append(observation)
        self._rows["action"].append(action)
        self._rows["reward"].append([reward])
        self._rows["discount"].append([0.0 if terminated else 1.0])
        if "physics" in self._rows:
            self._rows["physics"].append(info["physics"])

    def rows(self, start: int = 0) -> Episode:
        """The rows from `start` on, (n + 1 - start, ...)."""
        # Physics keep their precision: rewards are computed from them.
        return {
            key: np.array(rows[start:], np.float64 if key == "physics" else np.float32)
            for key, rows in self._rows.items()
        }


def write_episode(folder: Path, number: int, episode: Episode) -> Path:
    """Write `episode_NUMBER_LENGTH.npz`; it is there whole or not at all."""
    path = folder / f"episode_{number:06d}_{len(episode['observation']) - 1}.npz"
    content = io.BytesIO()
    np.savez(content, **episode)  # type: ignore[arg-type]
    write_atomically(path, content.getvalue())
    return path


def read_episode(path: Path) -> Episode:
    """The arrays of a file.

    Raises:
        DataError: It is damaged.
    """
    try:
        return read_members(path)
    except DataError as error:
        raise DataError(f"{error} Delete it and go on.") from error


class EpisodeFile(NamedTuple):
    """What a file's name says."""

    number: int
    length: int
    path: Path


def list_episodes(folder: Path) -> list[EpisodeFile]:
    """The episodes in a folder, by number."""
    found = ((_NAME.fullmatch(path.name), path) for path in folder.glob("episode_*.npz"))
    return sorted(EpisodeFile(int(m[1]), int(m[2]), path) for m, path in found if m)


class ReplayBatch(NamedTuple):
    """Transitions: (B, observation), (B, action), (B,), (B, observation)."""

    states: Tensor
    actions: Tensor
    discounts: Tensor
    next_states: Tensor


class Replay:
    """The newest rows of the episodes, in a ring."""

    def __init__(self, sizes: Sizes, capacity: int) -> None:
        self.observations = np.zeros((capacity, sizes.observation), np.float32)
        self._actions = np.zeros((capacity, sizes.action), np.float32)
        self._discounts = np.zeros(capacity, np.float32)
        self._led_to = np.zeros(capacity, bool)  # whether the row before it is the step before
        self._head = 0
        self.size = 0

    def add(self, rows: Episode, *, begins: bool = True) -> None:
        """Add an episode, or with `begins=False` its next rows; the oldest make room."""
        capacity, n = len(self._led_to), len(rows["observation"])
        places = (self._head + np.arange(n)) % capacity
        self.observations[places] = rows["observation"]
        self._actions[places] = rows["action"]
        self._discounts[places] = rows["discount"].reshape(-1)
        self._led_to[places] = True
        self._led_to[places[0]] = not begins
        self._head = (self._head + n) % capacity
        self._led_to[self._head] = False  # what led to the oldest row has just been replaced
        self.size = min(self.size + n, capacity)

    def draw(self, rng: np.random.Generator, count: int) -> ReplayBatch:
        """Draw transitions: `observation[i - 1]` with `action[i]`."""
        rows = rng.integers(self.size, size=count)
        while (unfit := ~self._led_to[rows]).any():
            rows[unfit] = rng.integers(self.size, size=int(unfit.sum()))
        return ReplayBatch(
            torch.from_numpy(self.observations[rows - 1]),
            torch.from_numpy(self._actions[rows]),
            torch.from_numpy(self._discounts[rows]),
            torch.from_numpy(self.observations[rows]),
        )
