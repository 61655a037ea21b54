"""Many environments stepped together, in this process or in several.

Worker processes are started as `python -m mtm.control.environment_worker`, so they work from any
script, notebook or test, without a guard around its main part, and inherit no threads. A worker
first says whether it could make its environments.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from dataclasses import dataclass
from multiprocessing import Pipe
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mtm.control import environments
from mtm.core.errors import ConfigError, RunError
from mtm.core.system import available_cores, thread_settings
from mtm.data.modalities import BoolArray, Modality

ROWS_WORTH_A_PROCESS = 32
"""Environments that make another process worth its start (measured: docs/research-log)."""

SECONDS_TO_STOP = 30
"""That a worker gets to close its environments."""


@dataclass(frozen=True)
class Reports:
    """What one step of n environments brought.

    Attributes:
        states: (n, *shape).
        rewards: (n,).
        dones: The episode is over, (n,).
        successes: 1 yes, 0 no, -1 the environment does not say; (n,).
        errors: Place among the n -> what the environment raised.
    """

    states: NDArray[Any]
    rewards: NDArray[np.float64]
    dones: BoolArray
    successes: NDArray[np.int8]
    errors: dict[int, str]


class EnvironmentPool:
    """`count` environments of one id.

    Args:
        env_id: As for `mtm.control.environments.make`.
        count: How many.
        processes: To share them out to; None decides by their number and this machine's cores.

    Raises:
        ConfigError: The environment cannot be made, here or in another process.
        RunError: Another process ended before it had made its environments.
    """

    def __init__(self, env_id: str, count: int, processes: int | None = None) -> None:
        if processes is None:
            processes = min(available_cores(), max(count // ROWS_WORTH_A_PROCESS, 1))
        processes = min(processes, count)
        self._shard_of = np.arange(count) % processes  # so that all shards empty alike
        self._place_of = np.arange(count) // processes
        self._shards: list[Shard | _RemoteShard] = []
        self._probe = environments.make(env_id)
        try:
            for size in np.bincount(self._shard_of, minlength=processes):
                kind = Shard if processes == 1 else _RemoteShard
                self._shards.append(kind(env_id, int(size)))
            for shard in self._shards:  # after all have begun, so that they start together
                shard.wait_until_made()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> EnvironmentPool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close environments and processes; each of them, even if another raises."""
        with contextlib.ExitStack() as stack:
            for part in (self._probe, *self._shards):
                stack.callback(part.close)

    def check_spaces(self, states: Modality, actions: Modality) -> None:
        """Raise `ConfigError` unless a model of these modalities can act here."""
        environments.check_spaces(self._probe, states, actions)

    def reset(self, seeds: NDArray[np.int64]) -> Reports:
        """Begin an episode in every environment."""
        return self._all("reset", np.arange(len(seeds)), seeds)

    def step(self, rows: NDArray[np.int64], actions: NDArray[Any]) -> Reports:
        """Step some of the environments."""
        return self._all("step", rows, actions)

    def _all(self, what: str, rows: NDArray[np.int64], inputs: NDArray[Any]) -> Reports:
        parts = [np.flatnonzero(self._shard_of[rows] == i) for i in range(len(self._shards))]
        busy = [(shard, part) for shard, part in zip(self._shards, parts, strict=True) if len(part)]
        for shard, part in busy:
            shard.send(what, self._place_of[rows[part]], inputs[part])
        answers = [shard.receive() for shard, _ in busy]
        if len(answers) == 1:
            return answers[0]
        joined = np.concatenate([part for _, part in busy])
        order = np.argsort(joined)
        errors = {
            int(part[place]): text
            for (_, part), answer in zip(busy, answers, strict=True)
            for place, text in answer.errors.items()
        }
        return Reports(
            np.concatenate([a.states for a in answers])[order],
            np.concatenate([a.rewards for a in answers])[order],
            np.concatenate([a.dones for a in answers])[order],
            np.concatenate([a.successes for a in answers])[order],
            errors,
        )


class Shard:
    """Environments of this process."""

    def __init__(self, env_id: str, size: int) -> None:
        self._envs = [environments.make(env_id) for _ in range(size)]
        from gymnasium.spaces import Discrete  # it is there: environments have been made

        space = self._envs[0].observation_space
        self._shape = space.shape or ()
        self._dtype = np.int64 if isinstance(space, Discrete) else np.float32
        self._reports: Reports | None = None

    def wait_until_made(self) -> None:
        """They are made at once here."""

    def send(self, what: str, places: NDArray[np.int64], inputs: NDArray[Any]) -> None:
        """Reset or step the environments at some places; `receive` gives the reports."""
        n = len(places)
        if what == "step":
            inputs = self._within_bounds(inputs)
        reports = Reports(
            np.zeros((n, *self._shape), self._dtype),
            np.zeros(n),
            np.zeros(n, bool),
            np.full(n, -1, np.int8),
            {},
        )
        for i, (place, given) in enumerate(zip(places, inputs, strict=True)):
            try:
                self._one(what, self._envs[place], given, reports, i)
            except Exception as error:  # an environment may raise anything: report, and go on
                reports.errors[i] = f"{type(error).__name__}: {error}"
                reports.dones[i] = True
        self._reports = reports

    def receive(self) -> Reports:
        """What the last `send` brought."""
        assert self._reports is not None
        return self._reports

    def close(self) -> None:
        """Close the environments."""
        for env in self._envs:
            env.close()

    def _within_bounds(self, actions: NDArray[Any]) -> Any:
        """Actions as the environments take them; numbers are clipped to the bounds."""
        space: Any = self._envs[0].action_space
        if hasattr(space, "low"):
            return np.clip(actions, space.low, space.high)
        return [int(action) for action in actions]

    @staticmethod
    def _one(what: str, env: Any, given: Any, reports: Reports, i: int) -> None:
        if what == "reset":
            reports.states[i], _ = env.reset(seed=int(given))
            return
        state, reward, terminated, truncated, info = env.step(given)
        reports.states[i], reports.rewards[i] = state, reward
        reports.dones[i] = terminated or truncated
        if "success" in info:
            reports.successes[i] = bool(info["success"])


class _RemoteShard:
    """Environments of another process."""

    def __init__(self, env_id: str, size: int) -> None:
        self._env_id = env_id
        self._connection, theirs = Pipe()
        with theirs:
            words = [
                "-m",
                "mtm.control.environment_worker",
                str(theirs.fileno()),
                env_id,
                str(size),
            ]
            self._process = subprocess.Popen(
                [sys.executable, *words],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=os.environ | thread_settings(1),
            )

    def wait_until_made(self) -> None:
        fault: str | None = self._answer()
        if fault is not None:
            raise ConfigError(
                f"another process cannot make the environment {self._env_id!r} ({fault}). An id "
                "that only this program registers is not known there: write MODULE:ID, where "
                "importing MODULE registers it, or stay in this process, with processes=1 or fewer "
                "episodes."
            )

    def send(self, what: str, places: NDArray[np.int64], inputs: NDArray[Any]) -> None:
        try:
            self._connection.send((what, places, inputs))
        except OSError as error:
            raise self._ended() from error

    def receive(self) -> Reports:
        reports: Reports = self._answer()
        return reports

    def close(self) -> None:
        self._connection.close()
        try:
            self._process.wait(SECONDS_TO_STOP)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _answer(self) -> Any:
        try:
            return self._connection.recv()
        except (EOFError, OSError) as error:
            raise self._ended() from error

    def _ended(self) -> RunError:
        self.close()
        return RunError(
            f"a process that steps environments {self._env_id!r} ended with exit code "
            f"{self._process.returncode}; what it printed tells why. With processes=1 or fewer "
            "episodes there is none."
        )
