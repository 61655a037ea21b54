"""Episodes in an environment: many policies and many episodes in lockstep.

All policies of one run are asked in one forward pass per step; finished episodes drop out. Episode
e of every policy begins with the same seed, so policies are compared on the same starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from mtm.control.environment_pool import EnvironmentPool, usual_processes
from mtm.control.policies import MaskedPolicy, ModelPolicy, Policy, join
from mtm.core.errors import ConfigError
from mtm.core.system import available_cores
from mtm.core.validators import SEED
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
    actor = _Actor([policies[name] for name in names], episodes)

    def ended(row: int, outcome: Outcome) -> None:
        if arrival is not None:
            arrival(names[row // episodes], outcome)

    with EnvironmentPool(env_id, len(seeds), processes, draws=watch is not None) as pool:
        actor.check(pool)
        with _threads_beside(usual_processes(len(seeds))):
            outcomes = _run(actor, pool, seeds, progress, watch, ended)
    return {
        name: _collect(outcomes[i * episodes : (i + 1) * episodes]) for i, name in enumerate(names)
    }


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
    actor: _Actor,
    pool: EnvironmentPool,
    seeds: NDArray[np.int64],
    progress: Progress | None,
    watch: Watch | None,
    ended: Callable[[int, Outcome], None],
) -> list[Outcome]:
    """Step all environments until the last episode has ended."""
    outcomes = [Outcome(int(seed)) for seed in seeds]
    active = np.arange(len(seeds))
    reports = pool.reset(seeds)
    for place, error in reports.errors.items():
        outcomes[place].fail(error)
    while True:
        if watch is not None and 0 in active and outcomes[0].failure is None:
            watch(outcomes[0].length, pool.frame)
        states = reports.states
        if reports.dones.any():
            for row in active[reports.dones]:
                ended(int(row), outcomes[row])
            going = np.flatnonzero(~reports.dones)
            active, states = active[going], states[going]
            actor.keep(going)
        if progress is not None:
            progress(len(seeds) - len(active), len(seeds))
        if not len(active):
            return outcomes
        reports = pool.step(active, actor.act(states))
        actor.observe(reports.rewards, reports.dones)
        for place, row in enumerate(active):
            if place in reports.errors:
                outcomes[row].fail(reports.errors[place])
            else:
                outcomes[row].add(reports.rewards[place], reports.successes[place])


@dataclass
class Outcome:
    """One episode, filled in as it goes.

    Attributes:
        seed: With which it began.
        total: Sum of rewards.
        length: Steps.
        success: Whether the environment reported success in any step; -1 if it never says.
        failure: The error that the environment broke it off with, if any.
    """

    seed: int
    total: float = 0.0
    length: int = 0
    success: int = -1
    failure: Failure | None = None

    def add(self, reward: float, success: int) -> None:
        """Count one more step."""
        self.total += float(reward)
        self.length += 1
        self.success = max(self.success, int(success))

    def fail(self, error: str) -> None:
        """Note that it was broken off."""
        self.failure = Failure(self.seed, self.length, error)


class _Actor:
    """Several policies as one; those that share a run share its forward passes."""

    def __init__(self, policies: Sequence[Policy], episodes: int) -> None:
        self._groups: list[tuple[Policy, NDArray[np.int64]]] = []
        rows = np.arange(len(policies) * episodes).reshape(len(policies), episodes)
        masked: dict[int, list[tuple[MaskedPolicy, NDArray[np.int64]]]] = {}
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

    def observe(self, rewards: NDArray[np.float64], dones: NDArray[np.bool_]) -> None:
        for policy, rows in self._groups:
            policy.observe(rewards[rows], np.zeros_like(dones[rows]))

    def keep(self, rows: NDArray[np.int64]) -> None:
        """Go on with these of the current rows, which are numbered anew."""
        groups = []
        for policy, mine in self._groups:
            stays = np.isin(mine, rows)
            if stays.any():
                policy.keep(np.flatnonzero(stays))
                groups.append((policy, np.searchsorted(rows, mine[stays])))
        self._groups = groups


def _collect(outcomes: Sequence[Outcome]) -> EpisodeResults:
    finished = [o for o in outcomes if o.failure is None]
    says = any(o.success >= 0 for o in finished)
    return EpisodeResults(
        np.array([o.total for o in finished], np.float64),
        np.array([o.length for o in finished], np.int64),
        np.array([o.success > 0 for o in finished]) if says else None,
        np.array([o.seed for o in finished], np.int64),
        tuple(o.failure for o in outcomes if o.failure is not None),
    )
