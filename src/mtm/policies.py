"""Acting: policies for a batch of environments, which differ by what they show the model.

A policy keeps the history; the model does not. Each row of a policy is one environment and has a
`Way` of acting of its own, so behaviour cloning, several return targets and two-stage acting can
share one forward pass per step.

    policy.reset(n)                  begin n episodes
    actions = policy.act(states)     (n, *shape) in and out
    policy.observe(rewards, dones)   what came of it; rows that are done begin a new episode
    policy.keep(rows)                go on with some of the rows only
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mtm.errors import ConfigError, DataError
from mtm.queries import ask
from mtm.run import Run
from mtm.targets import TargetSpec, resolve_target
from mtm.trajectories import BoolArray, Modality, Role


class Policy(Protocol):
    """Anything that acts in a batch of environments."""

    def reset(self, n: int) -> None:
        """Begin n episodes."""

    def act(self, states: NDArray[Any]) -> NDArray[Any]:
        """One action per row, (n, *shape)."""

    def observe(self, rewards: NDArray[Any], dones: BoolArray) -> None:
        """What the last actions brought, (n,) each."""

    def keep(self, rows: NDArray[np.int64]) -> None:
        """Go on with these rows only."""


@dataclass(frozen=True)
class Way:
    """What one row shows the model.

    Attributes:
        target: Return to ask for, in the units of `returns`; None hides the returns.
        future: States after the current one that are shown to the model when it chooses the
            action: 0 for cloning; for inverse dynamics, how many steps ahead.
        reference: States to follow, (S, *shape); None lets the model predict the future states
            first, which makes acting two-stage.
    """

    target: float | None = None
    future: int = 0
    reference: NDArray[np.float32] | None = None


def behavior_cloning(run: Run) -> MaskedPolicy:
    """Act as the data's policies do on average."""
    return MaskedPolicy(run, [Way()])


def return_conditioned(run: Run, target: TargetSpec = "auto") -> MaskedPolicy:
    """Act as goes with a return.

    Args:
        run: A trained run.
        target: `auto`, or see `mtm.targets.resolve_target`.
    """
    return MaskedPolicy(run, [Way(target=resolve_target(run, target))])


def two_stage(run: Run, target: TargetSpec = "auto", future: int = 1) -> MaskedPolicy:
    """First predict the states that go with a return, then the action that leads to them.

    Args:
        run: A trained run.
        target: As for `return_conditioned`.
        future: How many states to predict.
    """
    return MaskedPolicy(run, [Way(target=resolve_target(run, target), future=future)])


def tracking(run: Run, reference: ArrayLike, future: int = 1) -> MaskedPolicy:
    """Follow a trajectory of states by inverse dynamics.

    Args:
        run: A trained run.
        reference: The states to follow, (S, *shape), from the first one on; the last is held.
        future: How many states ahead to look.
    """
    return MaskedPolicy(run, [Way(future=future, reference=np.asarray(reference, np.float32))])


class MaskedPolicy:
    """Acts with one model; `n` rows share out the ways in order, in equal parts.

    Args:
        run: A trained run with one modality each of role state and action.
        ways: How to act. `reset(n)` needs n to be a multiple of their number.
    """

    def __init__(self, run: Run, ways: Sequence[Way]) -> None:
        self.run, self.ways = run, list(ways)
        self.states = _one(run, "state")
        self.actions = _one(run, "action")
        self.returns = _one(run, "return") if any(w.target is not None for w in ways) else None
        self.index = {m.name: i for i, m in enumerate(run.modalities)}
        self.length = run.model.config.segment_length
        for way in ways:
            if not 0 <= way.future < self.length:
                raise ConfigError(
                    f"future must be 0 to {self.length - 1} for a model of segment_length "
                    f"{self.length}, got {way.future}."
                )
        self.reset(len(self.ways))

    def reset(self, n: int) -> None:
        """Begin n episodes, n / len(ways) of each way."""
        if n < 1 or n % len(self.ways):
            raise ConfigError(
                f"{n} environments cannot be shared out among {len(self.ways)} ways of acting."
            )
        T = self.length
        self._row_ways = [way for way in self.ways for _ in range(n // len(self.ways))]
        self._past_states = np.zeros((n, T, *self.states.shape), _dtype(self.states))
        self._past_actions = np.zeros((n, T, *self.actions.shape), _dtype(self.actions))
        self._filled = np.zeros(n, np.int64)  # steps before now that the row's history holds
        self._steps = np.zeros(n, np.int64)
        self._gained = np.zeros(n)
        self._set_ways()

    def act(self, states: NDArray[Any]) -> NDArray[Any]:
        """Remember the states and choose an action for each row."""
        n = len(self._row_ways)
        if np.shape(states) != (n, *self.states.shape):
            raise DataError(
                f"{n} states of shape {self.states.shape} are expected, got {np.shape(states)}; "
                "call reset(n) first."
            )
        self._make_room()
        rows = np.arange(n)
        self._past_states[rows, self._filled] = states
        window, visible = self._window()
        plans = self._futures > 0
        predicted = plans & ~self._follows
        want = [self.actions.name] + ([self.states.name] if predicted.any() else [])
        if not plans.all() or predicted.any():
            answers = ask(self.run, window, visible, want)
            chosen = answers[self.actions.name][rows, self._filled]
        else:
            chosen = np.zeros((n, *self.actions.shape), _dtype(self.actions))
        if plans.any():
            imagined = answers[self.states.name] if predicted.any() else None
            chosen[plans] = self._act_by_inverse_dynamics(plans, imagined)
        self._past_actions[rows, self._filled] = chosen
        return chosen

    def observe(self, rewards: NDArray[Any], dones: BoolArray) -> None:
        """Count rewards; rows that are done begin a new episode with the next `act`."""
        self._gained += np.asarray(rewards, np.float64)
        self._steps += 1
        self._filled += 1
        done = np.asarray(dones, bool)
        self._filled[done] = self._steps[done] = 0
        self._gained[done] = 0.0

    def keep(self, rows: NDArray[np.int64]) -> None:
        """Go on with these rows only."""
        self._row_ways = [self._row_ways[i] for i in rows]
        self._past_states, self._past_actions = self._past_states[rows], self._past_actions[rows]
        self._filled, self._steps = self._filled[rows], self._steps[rows]
        self._gained = self._gained[rows]
        self._set_ways()

    def _set_ways(self) -> None:
        ways = self._row_ways
        self._futures = np.array([w.future for w in ways])
        self._follows = np.array([w.reference is not None for w in ways])
        self._targets = np.array([np.nan if w.target is None else w.target for w in ways])

    def _make_room(self) -> None:
        """Shift histories so that the current state and the future fit into the window."""
        crowded = self._filled > self.length - 1 - self._futures
        for past in (self._past_states, self._past_actions):
            past[crowded] = np.roll(past[crowded], -1, axis=1)
        self._filled[crowded] -= 1

    def _window(self) -> tuple[dict[str, NDArray[Any]], BoolArray]:
        """What is known, and what each row shows: states until now, actions before, returns."""
        n, T = len(self._filled), self.length
        time, now = np.arange(T)[None, :], self._filled[:, None]
        window: dict[str, NDArray[Any]] = {
            self.states.name: self._past_states,
            self.actions.name: self._past_actions,
        }
        visible = np.zeros((n, T, len(self.index)), bool)
        visible[:, :, self.index[self.states.name]] = time <= now
        # Actions are hidden where the future is to be imagined: it must not depend on them.
        plans = (self._futures > 0)[:, None]
        visible[:, :, self.index[self.actions.name]] = (time < now) & ~plans
        if self.returns is not None:
            asked = ~np.isnan(self._targets)
            window[self.returns.name] = self._asked_returns()
            until = np.where(plans, T, now)
            visible[:, :, self.index[self.returns.name]] = (time <= until) & asked[:, None]
        return window, visible

    def _asked_returns(self) -> NDArray[np.float32]:
        """The target at each step of the window: constant for averages, what is left for sums."""
        targets = np.nan_to_num(self._targets)
        if self.run.description.train.returns.kind == "sum":
            targets = targets - self._gained
        return np.repeat(targets[:, None], self.length, axis=1).astype(np.float32)

    def _act_by_inverse_dynamics(
        self, plans: BoolArray, imagined: NDArray[Any] | None
    ) -> NDArray[Any]:
        """Show states until now and after it, ask for the action between."""
        rows = np.flatnonzero(plans)
        states = self._past_states[rows].copy()
        now = self._filled[rows]
        for i, row in enumerate(rows):
            ahead = np.arange(1, self._futures[row] + 1)
            reference = self._row_ways[row].reference
            if reference is not None:
                wanted = np.minimum(self._steps[row] + ahead, len(reference) - 1)
                states[i, now[i] + ahead] = reference[wanted]
            else:
                assert imagined is not None
                states[i, now[i] + ahead] = imagined[row, now[i] + ahead]
        visible = np.zeros((len(rows), self.length, len(self.index)), bool)
        until = (now + self._futures[rows])[:, None]
        visible[:, :, self.index[self.states.name]] = np.arange(self.length)[None, :] <= until
        answer = ask(self.run, {self.states.name: states}, visible, [self.actions.name])
        return answer[self.actions.name][np.arange(len(rows)), now]


def join(policies: Sequence[MaskedPolicy]) -> MaskedPolicy:
    """One policy that acts in all of these ways, for one forward pass per step.

    Raises:
        ConfigError: They use different runs.
    """
    if any(p.run is not policies[0].run for p in policies):
        raise ConfigError("only policies of the same run can share a forward pass.")
    return MaskedPolicy(policies[0].run, [way for p in policies for way in p.ways])


def _one(run: Run, role: Role) -> Modality:
    found = [m for m in run.modalities if m.role == role]
    if len(found) != 1:
        raise ConfigError(
            f"acting needs exactly one modality of role {role!r}, the run has "
            f"{', '.join(m.name for m in found) or 'none'}."
        )
    return found[0]


def _dtype(modality: Modality) -> Any:
    return np.int64 if modality.kind == "discrete" else np.float32
