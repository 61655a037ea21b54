"""Many environments stepped together, in this process or in several.

Worker processes (`mtm.control.environment_worker`) are new interpreters, so they work from any
script, notebook or test, without a guard around its main part, and inherit no threads. They are
spoken to through their standard input and output, which every platform has. A worker first says
whether it could make its environments.

    pool.step(rows, actions)        some environments begin a step
    pool.step(others, actions)      and others, if there are processes, at the same time
    reports = pool.receive()        what came of the first
"""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
from collections import deque
from dataclasses import dataclass
from types import TracebackType
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from mtm.control import environments
from mtm.core.errors import ConfigError, RunError
from mtm.core.system import available_cores, thread_settings
from mtm.data.modalities import BoolArray, IntArray, Modality

ROWS_WORTH_A_PROCESS = 32
"""Environments that make another process worth its start (measured: docs/research-log)."""

SECONDS_TO_STOP = 30
"""That a worker gets to close its environments."""

START_WORKER = (
    "import sys; sys.path[:] = sys.argv[1:]; del sys.argv[1:]; "
    "from mtm.control.environment_worker import main; main()"
)
"""A worker imports what its pool's process would: this package, an environment's module."""

READY = b"the environment worker answers from here on\n"
"""First line of a worker; what Python printed on starting, as a sitecustomize may, precedes it."""


def usual_processes(count: int) -> int:
    """The processes that so many environments are shared out to on this machine."""
    wanted = min(available_cores(), max(count // ROWS_WORTH_A_PROCESS, 1))
    return wanted if wanted < 2 else wanted // 2 * 2  # a half of the environments has whole ones


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
        draws: `frame` can be called; all environments are in this process then.

    Raises:
        ConfigError: The environment cannot be made, here or in another process.
        RunError: Another process ended before it had made its environments.
    """

    def __init__(
        self, env_id: str, count: int, processes: int | None = None, *, draws: bool = False
    ) -> None:
        if draws:
            processes = 1
        elif processes is None:
            processes = usual_processes(count)
        processes = min(processes, count)
        self._shard_of = np.arange(count) % processes  # so that all shards empty alike
        self._place_of = np.arange(count) // processes
        self._shards: list[_LocalShard | _RemoteShard] = []
        self._under_way: deque[list[tuple[_LocalShard | _RemoteShard, IntArray]]] = deque()
        self._probe = environments.make(env_id)
        try:
            for size in np.bincount(self._shard_of, minlength=processes):
                self._shards.append(
                    _LocalShard(Shard(env_id, int(size), draws=draws))
                    if processes == 1
                    else _RemoteShard(env_id, int(size))
                )
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

    def reset(self, rows: IntArray, seeds: IntArray) -> None:
        """Begin an episode in some of the environments."""
        self._send("reset", rows, seeds)

    def step(self, rows: IntArray, actions: NDArray[Any]) -> None:
        """Begin a step of some of the environments; without other processes, do it."""
        self._send("step", rows, actions)

    def receive(self) -> Reports:
        """Wait for what was begun first, and has not been received yet."""
        busy = self._under_way.popleft()
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

    def frame(self) -> Any:
        """The first environment as it is now, (height, width, 3)."""
        (shard,) = self._shards
        assert isinstance(shard, _LocalShard)
        return shard.environments.frame()

    def _send(self, what: str, rows: IntArray, inputs: NDArray[Any]) -> None:
        parts = [np.flatnonzero(self._shard_of[rows] == i) for i in range(len(self._shards))]
        busy = [(shard, part) for shard, part in zip(self._shards, parts, strict=True) if len(part)]
        for shard, part in busy:
            shard.send(what, self._place_of[rows[part]], inputs[part])
        self._under_way.append(busy)


class Shard:
    """Environments of one process."""

    def __init__(self, env_id: str, size: int, *, draws: bool = False) -> None:
        self._envs = [environments.make(env_id, render=draws and i == 0) for i in range(size)]
        from gymnasium.spaces import Discrete  # it is there: environments have been made

        space = self._envs[0].observation_space
        self._shape = space.shape or ()
        self._dtype = np.int64 if isinstance(space, Discrete) else np.float32

    def answer(self, what: str, places: IntArray, inputs: NDArray[Any]) -> Reports:
        """Reset or step the environments at some places."""
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
        return reports

    def frame(self) -> Any:
        """The first environment as it is now."""
        return self._envs[0].render()

    def close(self) -> None:
        """Close the environments; each of them, even if another raises."""
        with contextlib.ExitStack() as stack:
            for env in self._envs:
                stack.callback(env.close)

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
        if not np.isfinite(given).all():
            raise ValueError(f"an action is no number: {given}")
        state, reward, terminated, truncated, info = env.step(given)
        reports.states[i], reports.rewards[i] = state, reward
        reports.dones[i] = terminated or truncated
        if "success" in info:
            reports.successes[i] = bool(info["success"])


class _LocalShard:
    """Environments of this process, which step as soon as they are asked."""

    def __init__(self, environments: Shard) -> None:
        self.environments = environments
        self._reports: deque[Reports] = deque()

    def wait_until_made(self) -> None:
        """They have been made."""

    def send(self, what: str, places: IntArray, inputs: NDArray[Any]) -> None:
        self._reports.append(self.environments.answer(what, places, inputs))

    def receive(self) -> Reports:
        return self._reports.popleft()

    def close(self) -> None:
        self.environments.close()


class _RemoteShard:
    """Environments of another process."""

    def __init__(self, env_id: str, size: int) -> None:
        self._env_id = env_id
        self._is_busy = False
        self._reports: deque[Reports] = deque()  # come, and not received yet
        self._process = subprocess.Popen(
            [sys.executable, "-c", START_WORKER, *sys.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | thread_settings(1),
        )
        self._ask((env_id, size))

    def wait_until_made(self) -> None:
        for line in self._answers:
            if line.endswith(READY):
                break
        fault: str | None = self._answer()
        if fault is not None:
            raise ConfigError(
                f"another process cannot make the environment {self._env_id!r} ({fault}). An id "
                "that only this program registers is not known there: write MODULE:ID, where "
                "importing MODULE registers it, or stay in this process, with processes=1 or fewer "
                "episodes."
            )

    def send(self, what: str, places: IntArray, inputs: NDArray[Any]) -> None:
        if self._is_busy:  # each would wait until the other reads, if both wrote much
            self._reports.append(self._answer())
        self._ask((what, places, inputs))
        self._is_busy = True

    def receive(self) -> Reports:
        """What the first `send` brought that has not been received."""
        if self._reports:
            return self._reports.popleft()
        reports: Reports = self._answer()
        self._is_busy = False
        return reports

    def close(self) -> None:
        for pipe in (self._requests, self._answers):
            with contextlib.suppress(OSError):  # a request that the process did not live to read
                pipe.close()
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(SECONDS_TO_STOP)
        finally:
            self._process.kill()  # nothing, if it has ended
            self._process.wait()

    @property
    def _requests(self) -> IO[bytes]:
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def _answers(self) -> IO[bytes]:
        assert self._process.stdout is not None
        return self._process.stdout

    def _ask(self, request: tuple[Any, ...]) -> None:
        try:
            write_pickle(self._requests, request)
        except OSError as error:
            raise self._ended() from error

    def _answer(self) -> Any:
        try:
            return pickle.load(self._answers)
        except (EOFError, OSError, pickle.UnpicklingError) as error:
            raise self._ended() from error

    def _ended(self) -> RunError:
        self.close()
        return RunError(
            f"a process that steps environments {self._env_id!r} ended with exit code "
            f"{self._process.returncode}; what it printed tells why. With processes=1 or fewer "
            "episodes there is none."
        )


def write_pickle(pipe: IO[bytes], value: Any) -> None:
    """Send a value to the process at the other end, which reads it with `pickle.load`."""
    pickle.dump(value, pipe, pickle.HIGHEST_PROTOCOL)
    pipe.flush()
