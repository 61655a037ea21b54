"""Episodes in an environment: many policies and many episodes in lockstep.

All policies of one run are asked in one forward pass per step; finished episodes drop out. Episode
e of every policy begins with the same seed, so policies are compared on the same starts. Where
other processes step the environments, these are halved: the model acts for one half while the other
steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from mtm.control.environment_pool import EnvironmentPool, Reports, usual_processes
from mtm.control.policies import MaskedPolicy, ModelPolicy, Policy, join
from mtm.core.errors import ConfigError
from mtm.core.system import available_cores
from mtm.core.validators import SEED
from mtm.data.modalities import BoolArray, IntArray
from mtm.training.threads import restored_threads

Progress = Callable[[int, int], None]
"""Called after every step with (episodes finished, episodes in all)."""

Watch = Callable[[int, Callable[[], Any]], None]
"""Called with the steps that an episode has taken, and what draws it as it is now: a frame,
(height, width, 3)."""


Arrival = Callable[[str, "Outcome"], None]
"""Called with the name of a policy and each episode of it as it ends."""


@dataclass(frozen=True)
class Failure:
    """An episode that its environment broke off with an error."""

    seed: int
    step: int
    error: str


@dataclass(frozen=True)
class EpisodeResults:
    """What one policy did, an entry per episode that finished.

    Attributes:
        returns: Sum of rewards, (E,).
        lengths: Steps, (E,).
        successes: Whether the environment reported success in any step, (E,); None if it never
            says.
        seeds: With which the episode began, (E,).
        failures: Episodes that the environment broke off with an error.
    """

    returns: NDArray[np.float64]
    lengths: NDArray[np.int64]
    successes: NDArray[np.bool_] | None
    seeds: NDArray[np.int64]
    failures: tuple[Failure, ...]


def rollout(
    policies: Mapping[str, Policy],
    env_id: str,
    *,
    episodes: int = 20,
    seed: int = 0,
    processes: int | None = None,
    progress: Progress | None = None,
    watch: Watch | None = None,
    arrival: Arrival | None = None,
) -> dict[str, EpisodeResults]:
    """Let every policy act for some episodes.

    Args:
        policies: Name -> policy.
        env_id: As for `mtm.control.environments.make`.
        episodes: Per policy.
        seed: Episode e begins with seed + e.
        processes: To share the environments out to; None decides by their number.
        progress: Told how far it is.
        watch: Sees the first policy's first episode, from its start on; the environments stay in
            this process then. `mtm.control.rendering.why_no_frames` tells whether it can be drawn.
        arrival: Sees every episode as it ends.

    Returns:
        Name -> episodes. An episode that fails does not stop the others.

    Raises:
        ConfigError: Nothing to do, or the environment cannot be made or does not fit the model.
        RunError: A process that steps environments ended.
    """
    if not isinstance(policies, Mapping):
        raise ConfigError(
            f'policies are given by name, as {{"mine": policy}}, got {type(policies).__name__}.'
        )
    if not policies or episodes < 1:
        raise ConfigError(f"{len(policies)} policies for {episodes} episodes: nothing to do.")
    if (fault := SEED.fault("seed", seed)) is not None:
        raise ConfigError(f"{fault}.")
    if processes is not None and processes < 1:
        raise ConfigError(f"processes must be at least 1, got {processes}.")
    if processes is not None and processes > 1 and watch is not None:
        raise ConfigError(f"an episode is watched in this process; got {processes} processes.")
    names = list(policies)
    seeds = np.tile(seed + np.arange(episodes), len(names))
    actors = _actors(list(policies.values()), episodes)

    def ended(row: int, outcome: Outcome) -> None:
        if arrival is not None:
            arrival(names[row // episodes], outcome)

    with EnvironmentPool(env_id, len(seeds), processes, draws=watch is not None) as pool:
        for actor in actors:
            actor.check(pool)
        with _threads_beside(usual_processes(len(seeds))):
            record = _run(actors, pool, seeds, progress, watch, ended)
    return {
        name: record.results(np.arange(i * episodes, (i + 1) * episodes))
        for i, name in enumerate(names)
    }


def _actors(policies: Sequence[Policy], episodes: int) -> list[_Actor]:
    """Who acts: one for all environments, or one for each half of them.

    Other policies than masked ones act for all at once, as they may remember anything.
    Like threads (see `_threads_beside`), halves do not depend on how many processes were asked for.
    """
    rows = np.arange(len(policies) * episodes)
    if usual_processes(len(rows)) == 1 or any(type(p) is not MaskedPolicy for p in policies):
        return [_Actor(policies, episodes, rows)]
    return [_Actor(policies, episodes, rows[i::2]) for i in range(2)]


@contextmanager
def _threads_beside(workers: int) -> Iterator[None]:
    """Let PyTorch use the cores that so many processes leave over, at least one.

    Its threads spin for a while when they have nothing to do, on cores that environments need. What
    counts is how many processes there would be, not how many were asked for: sums of several
    threads may round otherwise, and episodes are the same whatever the number of processes.
    """
    with restored_threads():
        if workers > 1:
            left = max(available_cores() - workers, 1)
            torch.set_num_threads(min(torch.get_num_threads(), left))
        yield


def _run(
    actors: Sequence[_Actor],
    pool: EnvironmentPool,
    seeds: IntArray,
    progress: Progress | None,
    watch: Watch | None,
    ended: Callable[[int, Outcome], None],
) -> _Record:
    """Step all environments until the last episode has ended; actors take turns."""
    record = _Record(seeds)
    tell = progress or (lambda finished, episodes: None)
    turns = zip_longest(*[_steps(actor, pool, record, watch, ended) for actor in actors])
    next(turns)  # all have begun to reset theirs
    for _ in turns:
        tell(record.finished, len(seeds))
    tell(record.finished, len(seeds))
    return record


def _steps(
    actor: _Actor,
    pool: EnvironmentPool,
    record: _Record,
    watch: Watch | None,
    ended: Callable[[int, Outcome], None],
) -> Iterator[None]:
    """Step an actor's environments until its last episode has ended; yields while they step."""
    active = actor.rows
    pool.reset(active, record.seeds[active])
    yield
    reports = pool.receive()
    record.fail(active, reports.errors)
    while True:
        if watch is not None and 0 in active and 0 not in record.failures:
            watch(int(record.lengths[0]), pool.frame)
        states = reports.states
        if reports.dones.any():
            record.finished += int(reports.dones.sum())
            for row in active[reports.dones]:
                ended(int(row), record.outcome(row))
            going = np.flatnonzero(~reports.dones)
            active, states = active[going], states[going]
            actor.keep(going)
        if not len(active):
            return
        pool.step(active, actor.act(states))
        yield
        reports = pool.receive()
        actor.observe(reports.rewards, reports.dones)
        record.add(active, reports)


@dataclass(frozen=True)
class Outcome:
    """One episode that has ended.

    Attributes:
        seed: With which it began.
        total: Sum of rewards.
        length: Steps.
        success: Whether the environment reported success in any step; -1 if it never says.
        failure: The error that the environment broke it off with, if any.
    """

    seed: int
    total: float
    length: int
    success: int
    failure: Failure | None


class _Record:
    """What has come of all episodes so far, (E,) each."""

    def __init__(self, seeds: IntArray) -> None:
        self.seeds = seeds
        self.totals = np.zeros(len(seeds))
        self.lengths = np.zeros(len(seeds), np.int64)
        self.successes = np.full(len(seeds), -1, np.int8)
        self.failures: dict[int, Failure] = {}
        self.finished = 0

    def add(self, rows: IntArray, reports: Reports) -> None:
        """Count one more step of some episodes."""
        self.fail(rows, reports.errors)
        if reports.errors:
            stepped = np.setdiff1d(np.arange(len(rows)), list(reports.errors))
        else:
            stepped = np.arange(len(rows))
        mine = rows[stepped]
        self.totals[mine] += reports.rewards[stepped]
        self.lengths[mine] += 1
        self.successes[mine] = np.maximum(self.successes[mine], reports.successes[stepped])

    def fail(self, rows: IntArray, errors: Mapping[int, str]) -> None:
        """Note which of some episodes were broken off, place among them -> error."""
        for place, error in errors.items():
            row = int(rows[place])
            self.failures[row] = Failure(int(self.seeds[row]), int(self.lengths[row]), error)

    def outcome(self, row: int) -> Outcome:
        """Of one episode."""
        return Outcome(
            int(self.seeds[row]),
            float(self.totals[row]),
            int(self.lengths[row]),
            int(self.successes[row]),
            self.failures.get(int(row)),
        )

    def results(self, rows: IntArray) -> EpisodeResults:
        """Of some episodes."""
        failed = [row in self.failures for row in rows.tolist()]
        finished = rows[~np.array(failed)]
        successes = self.successes[finished]
        return EpisodeResults(
            self.totals[finished],
            self.lengths[finished],
            successes > 0 if (successes >= 0).any() else None,
            self.seeds[finished],
            tuple(self.failures[row] for row in rows.tolist() if row in self.failures),
        )


class _Actor:
    """Several policies as one; those that share a run share its forward passes.

    Args:
        policies: What acts.
        episodes: Of each policy.
        acts_for: Which of all these episodes; masked policies can do without some.
    """

    def __init__(self, policies: Sequence[Policy], episodes: int, acts_for: IntArray) -> None:
        self.rows = acts_for
        self._groups: list[tuple[Policy, IntArray]] = []
        rows = np.arange(len(policies) * episodes).reshape(len(policies), episodes)
        masked: dict[int, list[tuple[MaskedPolicy, IntArray]]] = {}
        for policy, mine in zip(policies, rows, strict=True):
            # Not a subclass: joined, it would be asked as the plain one, whatever it overrides.
            if type(policy) is MaskedPolicy:
                masked.setdefault(id(policy.run), []).append((policy, mine))
            else:
                self._groups.append((policy, mine))
        for members in masked.values():
            joined = join([policy for policy, _ in members])
            self._groups.append((joined, np.concatenate([mine for _, mine in members])))
        for policy, mine in self._groups:
            policy.reset(len(mine))
        if len(acts_for) < rows.size:
            self.keep(acts_for)

    def check(self, pool: EnvironmentPool) -> None:
        for policy, _ in self._groups:
            if isinstance(policy, ModelPolicy):
                pool.check_spaces(policy.states, policy.actions)

    def act(self, states: NDArray[Any]) -> NDArray[Any]:
        chosen = [np.asarray(policy.act(states[rows])) for policy, rows in self._groups]
        # Of a kind that holds what any of them chose: one may give integers, another fractions.
        kind = np.result_type(*(actions.dtype for actions in chosen))
        joined = np.zeros((len(states), *chosen[0].shape[1:]), kind)
        for (_, rows), actions in zip(self._groups, chosen, strict=True):
            joined[rows] = actions
        return joined

    def observe(self, rewards: NDArray[np.float64], dones: BoolArray) -> None:
        for policy, rows in self._groups:
            policy.observe(rewards[rows], np.zeros_like(dones[rows]))

    def keep(self, rows: IntArray) -> None:
        """Go on with these of the current rows, which are numbered anew."""
        groups = []
        for policy, mine in self._groups:
            stays = np.isin(mine, rows)
            if stays.any():
                policy.keep(np.flatnonzero(stays))
                groups.append((policy, np.searchsorted(rows, mine[stays])))
        self._groups = groups
