"""Transitions on disk: an append-only file of rows, which always holds whole episodes.

A row is a transition. The rows of the episode under way wait in memory, so that memory is bounded
by the longest episode; they are appended when the episode ends.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mtm.core.errors import ConfigError, RunError

if TYPE_CHECKING:
    from mtm.control.environments import Environment

CHUNK_ROWS = 1 << 14
"""Rows read together when a whole recording is gone through."""


class Sizes(NamedTuple):
    """Numbers in an observation and in an action."""

    observation: int
    action: int


def sizes(env: Environment) -> Sizes:
    """The sizes of an environment whose observations and actions are rows of numbers.

    Raises:
        ConfigError: They are something else, or the episodes have no time limit.
    """
    from gymnasium.spaces import Box

    title = env.spec.id if env.spec is not None else type(env.unwrapped).__name__
    for name, space in (("observations", env.observation_space), ("actions", env.action_space)):
        if not isinstance(space, Box) or len(space.shape) != 1:
            raise ConfigError(
                f"{title}: {name} are {space}; data can be collected only where observations and "
                "actions are rows of numbers."
            )
    if env.spec is None or env.spec.max_episode_steps is None:
        raise ConfigError(
            f"{title} has no time limit, so that an episode may never end. Register it with "
            "max_episode_steps."
        )
    observations, actions = env.observation_space.shape, env.action_space.shape
    assert observations is not None
    assert actions is not None
    return Sizes(observations[0], actions[0])


def row_dtype(sizes: Sizes) -> np.dtype[Any]:
    """What a row holds."""
    return np.dtype(
        [
            ("observations", "<f4", (sizes.observation,)),
            ("actions", "<f4", (sizes.action,)),
            ("next_observations", "<f4", (sizes.observation,)),
            ("rewards", "<f4"),
            ("terminals", "?"),
            ("timeouts", "?"),
        ]
    )


class Recording:
    """A file of transitions; read and written a piece at a time.

    Args:
        path: The file; it is made if there is none.
        sizes: Of the environment.
        rows: Keep that many rows of an earlier sitting, and cut off what came after.

    Raises:
        RunError: The file holds fewer rows than that.
    """

    def __init__(self, path: Path, sizes: Sizes, rows: int = 0) -> None:
        self.path, self.rows = path, rows
        self.dtype = row_dtype(sizes)
        self._waiting: list[tuple[Any, ...]] = []
        there = path.stat().st_size // self.dtype.itemsize if path.exists() else 0
        if there < rows:
            raise RunError(
                f"{path} holds {there:,} transitions, but {rows:,} were recorded; it is damaged. "
                "Collect again with --overwrite."
            )
        with path.open("ab") as file:
            file.truncate(rows * self.dtype.itemsize)

    def add(
        self,
        observation: NDArray[Any],
        action: NDArray[Any],
        next_observation: NDArray[Any],
        reward: float,
        terminated: bool,
        truncated: bool,
    ) -> None:
        """Add a transition. The one that ends an episode brings the episode to the file."""
        timeout = truncated and not terminated
        self._waiting.append((observation, action, next_observation, reward, terminated, timeout))
        if terminated or truncated:
            with self.path.open("ab") as file:
                file.write(np.array(self._waiting, self.dtype).tobytes())
            self.rows += len(self._waiting)
            self._waiting.clear()

    def flush(self) -> None:
        """Make sure that the rows survive a power cut."""
        with self.path.open("rb") as file:
            os.fsync(file.fileno())

    def chunks(self, rows: int | None = None) -> Iterator[NDArray[Any]]:
        """The first `rows` rows (all of them if None), a bounded piece at a time."""
        end = self.rows if rows is None else rows
        for start in range(0, end, CHUNK_ROWS):
            yield self.read(start, min(start + CHUNK_ROWS, end))

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """The rows from `start` up to `stop`."""
        offset = start * self.dtype.itemsize
        return np.fromfile(self.path, self.dtype, count=stop - start, offset=offset)

    def returns(self, rows: int | None = None) -> NDArray[np.float64]:
        """Sum of rewards of each episode in the first `rows` rows, (E,)."""
        totals, open_total = [], 0.0
        for chunk in self.chunks(rows):
            ends = np.flatnonzero(chunk["terminals"] | chunk["timeouts"])
            for part in np.split(chunk["rewards"].astype(np.float64), ends + 1)[:-1]:
                totals.append(open_total + float(part.sum()))
                open_total = 0.0
            begun = ends[-1] + 1 if len(ends) else 0
            open_total += float(chunk["rewards"][begun:].sum(dtype=np.float64))
        return np.array(totals)


@cache
def recording_wrapper() -> Any:
    """The wrapper that records every step of an environment."""
    import gymnasium

    class RecordingEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
        """Passes everything through and adds each transition to a recording."""

        def __init__(self, env: Environment, recording: Recording) -> None:
            super().__init__(env)
            self._recording = recording
            self._observation: Any = None

        def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
            self._observation, info = self.env.reset(**options)
            return self._observation, info

        def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
            before = self._observation
            self._observation, reward, terminated, truncated, info = self.env.step(action)
            self._recording.add(
                before, action, self._observation, float(reward), terminated, truncated
            )
            return self._observation, reward, terminated, truncated, info

    return RecordingEnv
