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
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mtm.control.return_targets import TargetSpec, resolve_target
from mtm.core.errors import ConfigError, DataError
from mtm.data.modalities import BoolArray, Modality, Role
from mtm.inference.engine import ask, dtype_of
from mtm.runs.run import Run


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


@runtime_checkable
class ModelPolicy(Policy, Protocol):
    """A policy that says what it takes and gives, so that an environment can be checked."""

    states: Modality
    actions: Modality


FUTURE = 2
"""States that two-stage acting predicts where the run was not trained with the mask `id`, which
shows all states of a segment; docs/research-log compares one to three."""

SMALLEST_WORTH = 1e-100
"""Of a reward after many discounted steps; what is left is beyond the data long before."""


@dataclass(frozen=True)
class Way:
    """What one row shows the model.

    Attributes:
        target: Return to ask for, in the units of `returns`; None hides the returns.
        future: States after the current one that are shown to the model when it chooses the
            action: 0 for cloning; for inverse dynamics, how many steps ahead.
        reference: States to follow, (S, *shape); None lets the model predict the future states
            first, which makes acting two-stage.
        history: Steps before the current one that are shown.
        own_actions: Whether the history shows the actions that the policy itself has taken. A model
            that sees them tends to repeat them instead of looking at the state.
    """

    target: float | None = None
    future: int = 0
    reference: NDArray[np.float32] | None = None
    history: int = 0
    own_actions: bool = False


def behavior_cloning(run: Run, *, history: int | None = None) -> MaskedPolicy:
    """Go on as the data's policies would after the same history of states and actions.

    Args:
        run: A trained run.
        history: Past steps to show; None: as many as fit.
    """
    past = longest_history(run) if history is None else history
    return MaskedPolicy(run, [Way(history=past, own_actions=True)])


def return_conditioned(run: Run, target: TargetSpec = "auto", *, history: int = 0) -> MaskedPolicy:
    """Act as goes with a return.

    Args:
        run: A trained run.
        target: `auto`, or see `mtm.control.return_targets.resolve_target`.
        history: Past states to show; docs/research-log compares none to three.
    """
    return MaskedPolicy(run, [Way(target=resolve_target(run, target), history=history)])


def two_stage(
    run: Run,
    target: TargetSpec = "auto",
    *,
    future: int | None = None,
    history: int = 0,
) -> MaskedPolicy:
    """First predict the states that go with a return, then the action that leads to them.

    The first stage shows the state and the return now, the second states alone. It is steadier if
    the run was trained with the mask of inverse dynamics too: `random-autoregressive+id`.

    Args:
        run: A trained run.
        target: As for `return_conditioned`.
        future: How many states to predict; None: as many as fit if the run was trained with the
            mask `id`, else two at most.
        history: Past states to show; docs/research-log compares none and one.

    Raises:
        ConfigError: No state is to be predicted, or there is no room for one.
    """
    ahead = _usual_future(run, history) if future is None else future
    if ahead < 1:
        raise ConfigError(
            f"two-stage acting predicts at least one state, got {ahead}; the run's segments have "
            f"{run.model.config.segment_length} step(s), of which one is the current one."
        )
    asked = resolve_target(run, target)
    return MaskedPolicy(run, [Way(target=asked, future=ahead, history=history)])


def tracking(
    run: Run, reference: ArrayLike, *, future: int = 1, history: int | None = None
) -> MaskedPolicy:
    """Follow a trajectory of states by inverse dynamics.

    Args:
        run: A trained run.
        reference: The states to follow, (S, *shape), from the first one on; the last is held.
        future: How many states ahead to look.
        history: Past states to show; None: as many as fit.
    """
    past = longest_history(run, future) if history is None else history
    states = np.asarray(reference, np.float32)
    return MaskedPolicy(run, [Way(future=future, reference=states, history=past)])


def _usual_future(run: Run, history: int) -> int:
    """As many states as the second stage is used to see."""
    room = longest_history(run, history)
    return room if "id" in run.description.train.mask.split("+") else min(FUTURE, room)


def longest_history(run: Run, future: int = 0) -> int:
    """As many past steps as fit into a segment, beside the current and the future ones."""
    return max(run.model.config.segment_length - 1 - future, 0)


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
        self._discount = run.description.train.returns.discount
        for way in ways:
            if min(way.future, way.history) < 0 or way.history + 1 + way.future > self.length:
                raise ConfigError(
                    f"history {way.history} + the current step + future {way.future} must fit into "
                    f"the model's segment_length {self.length}."
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
        self._past_states = np.zeros((n, T, *self.states.shape), dtype_of(self.states))
        self._past_actions = np.zeros((n, T, *self.actions.shape), dtype_of(self.actions))
        self._filled = np.zeros(n, np.int64)  # steps before now that the row remembers
        self._steps = np.zeros(n, np.int64)
        self._gained = np.zeros(n)  # as worth at the first step, like the target
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
            wanted = self._wanted(rows, predicted)
            answers = ask(self.run, window, visible, want, wanted)
            chosen = answers[self.actions.name][rows, self._filled]
        else:
            chosen = np.zeros((n, *self.actions.shape), dtype_of(self.actions))
        if plans.any():
            imagined = answers[self.states.name] if predicted.any() else None
            chosen[plans] = self._act_by_inverse_dynamics(plans, imagined)
        self._past_actions[rows, self._filled] = chosen
        return chosen

    def observe(self, rewards: NDArray[Any], dones: BoolArray) -> None:
        """Count rewards; rows that are done begin a new episode with the next `act`."""
        self._gained += self._worth() * np.asarray(rewards, np.float64)
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

    def _worth(self) -> NDArray[np.float64]:
        """What a reward now counts at the first step of the episode: discounted once a step."""
        worth = np.power(self._discount, self._steps, dtype=np.float64)
        return np.maximum(worth, SMALLEST_WORTH)

    def _set_ways(self) -> None:
        ways = self._row_ways
        self._futures = np.array([w.future for w in ways])
        self._histories = np.array([w.history for w in ways])
        self._own_actions = np.array([w.own_actions for w in ways])
        self._follows = np.array([w.reference is not None for w in ways])
        self._targets = np.array([np.nan if w.target is None else w.target for w in ways])

    def _make_room(self) -> None:
        """Forget what is older than a row's history."""
        crowded = self._filled > self._histories
        for past in (self._past_states, self._past_actions):
            past[crowded] = np.roll(past[crowded], -1, axis=1)
        self._filled[crowded] -= 1

    def _window(self) -> tuple[dict[str, NDArray[Any]], BoolArray]:
        """What is known, and what each row shows: states until now, actions before, the return."""
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
        shown = (time < now) & self._own_actions[:, None] & ~plans
        visible[:, :, self.index[self.actions.name]] = shown
        if self.returns is not None:
            asked = ~np.isnan(self._targets)
            window[self.returns.name] = self._asked_returns()
            # What was asked for in the past says nothing that the question now does not, and no
            # mask of training shows a state and all returns after it.
            visible[:, :, self.index[self.returns.name]] = (time == now) & asked[:, None]
        return window, visible

    def _wanted(self, rows: NDArray[np.int64], predicted: BoolArray) -> BoolArray:
        """The action now; for rows that imagine the future, also the states after now."""
        wanted = np.zeros((len(rows), self.length, len(self.index)), bool)
        wanted[rows, self._filled, self.index[self.actions.name]] = True
        ahead = np.arange(self.length)[None, :] - self._filled[:, None]
        imagined = (ahead > 0) & (ahead <= self._futures[:, None]) & predicted[:, None]
        wanted[:, :, self.index[self.states.name]] = imagined
        return wanted

    def _asked_returns(self) -> NDArray[np.float32]:
        """What is left to earn, at each step of the window; per remaining step for averages.

        It stays within what the data know: an average over the last steps could be anything.
        """
        targets = np.nan_to_num(self._targets)
        horizon = self.run.description.data.get("returns_horizon")
        if horizon:
            left = (targets * horizon - self._gained) / self._worth()
            left = left / np.maximum(horizon - self._steps, 1)
        elif self.run.description.train.returns.kind == "sum":
            left = (targets - self._gained) / self._worth()
        else:
            left = targets  # returns of the user's own: what they count is not known
        assert self.returns is not None
        known = self.run.normalizer.statistics[self.returns.name]
        left = np.where(self._steps == 0, targets, np.clip(left, known.low, known.high))
        return np.repeat(left[:, None], self.length, axis=1).astype(np.float32)

    def _act_by_inverse_dynamics(
        self, plans: BoolArray, imagined: NDArray[Any] | None
    ) -> NDArray[Any]:
        """Show states until now and after it, and nothing else; ask for the action between."""
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
        wanted = np.zeros_like(visible)
        wanted[np.arange(len(rows)), now, self.index[self.actions.name]] = True
        answer = ask(self.run, {self.states.name: states}, visible, [self.actions.name], wanted)
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
