"""Many environments stepped together, in this process or spread over several.

Worker processes are started as `python -m mtm.environment_worker`, so they work from any script,
notebook or test, without a guard around its main part, and inherit no threads.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mtm import environments
from mtm.machine import available_cores
from mtm.modalities import BoolArray, Modality

ROWS_WORTH_A_PROCESS = 32
"""Environments that make another process worth its start (measured: docs/speed.md)."""


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
        env_id: As for `mtm.environments.make`.
        count: How many.
        processes: To spread them over; None decides by their number and this machine's cores.
    """

    def __init__(self, env_id: str, count: int, processes: int | None = None) -> None:
        if processes is None:
            processes = min(available_cores(), max(count // ROWS_WORTH_A_PROCESS, 1))
        self._shard_of = np.arange(count) % processes  # so that all shards empty alike
        self._place_of = np.arange(count) // processes
        self._shards: list[Shard | _RemoteShard] = []
        self._probe = environments.make(env_id)
        try:
            for size in np.bincount(self._shard_of, minlength=processes):
                kind = Shard if processes == 1 else _RemoteShard
                self._shards.append(kind(env_id, int(size)))
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
        """Close environments and processes."""
        self._probe.close()
        for shard in self._shards:
            shard.close()

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
        space = self._envs[0].observation_space
        self._shape = space.shape or ()
        self._dtype = np.float32 if self._shape else np.int64
        self._reports: Reports | None = None

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
        self._folder = tempfile.TemporaryDirectory(prefix="mtm-")
        address = str(Path(self._folder.name) / "socket")
        key = os.urandom(16)
        with Listener(address, authkey=key) as listener:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "mtm.environment_worker", address, env_id, str(size)],
                stdin=subprocess.PIPE,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
            )
            assert self._process.stdin is not None
            self._process.stdin.write(key)
            self._process.stdin.close()
            self._connection: Connection = listener.accept()

    def send(self, what: str, places: NDArray[np.int64], inputs: NDArray[Any]) -> None:
        self._connection.send((what, places, inputs))

    def receive(self) -> Reports:
        reports: Reports = self._connection.recv()
        return reports

    def close(self) -> None:
        self._connection.close()
        self._process.wait(timeout=30)
        self._folder.cleanup()
