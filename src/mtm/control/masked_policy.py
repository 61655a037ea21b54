"""A policy that asks the model: what it shows is the mask of a capability and what it knows.

Each row is one environment and has a `Way` of acting of its own, so behaviour cloning, several
return targets and two-stage acting share one forward pass per step.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mtm.control.asked_returns import AskedReturns
from mtm.core.errors import ConfigError, DataError
from mtm.data.modalities import BoolArray, IntArray
from mtm.inference.certainty import ask_how_sure
from mtm.inference.engine import Arrays, ask, ask_capability, dtype_of
from mtm.masks import NAMED_MASKS, Question
from mtm.runs.run import Run

MEMORY = ("_past_states", "_past_actions", "_filled", "_steps", "_gained")
"""What a policy remembers of each row."""


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
        guidance: How far to go from the action without the return to that with it: 1 takes the
            latter, more goes beyond it.
    """

    target: float | None = None
    future: int = 0
    reference: NDArray[np.float32] | None = None
    history: int = 0
    own_actions: bool = False
    guidance: float = 1.0

    @property
    def first(self) -> str | None:
        """The capability that is asked first; inverse dynamics follows where there is a future."""
        if self.reference is not None:
            return None
        if self.future:
            return "plan"
        return "bc" if self.target is None else "rcbc"


class _Asked(NamedTuple):
    """What rows show and want, (n, T, M) each, at the moments that it was worked out for, (n,)."""

    moments: IntArray
    visible: BoolArray
    wanted: BoolArray
    want: list[str]


class MaskedPolicy:
    """Acts with one model; `n` rows share out the ways in order, in equal parts.

    Args:
        run: A trained run with one modality each of role state and action.
        ways: How to act. `reset(n)` needs n to be a multiple of their number.
    """

    def __init__(self, run: Run, ways: Sequence[Way]) -> None:
        self.run, self.ways = run, list(ways)
        known = run.modalities
        self.states, self.actions = known.only("state"), known.only("action")
        self.returns = known.only("return") if any(w.target is not None for w in ways) else None
        self.length = run.segment_length
        self.asked_returns = asked_returns(run)
        for way in ways:
            if way.guidance != 1 and (self.actions.kind == "discrete" or way.target is None):
                raise ConfigError(
                    f"guidance {way.guidance} weighs actions with a return against those without: "
                    "it needs a target, and actions that are numbers."
                )
            if not 0 <= way.guidance < np.inf:
                raise ConfigError(f"guidance must be a number of at least 0, got {way.guidance}.")
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
        self.check_states(states)
        n = len(self._row_ways)
        self._make_room()
        rows = self._rows
        self._past_states[rows, self._filled] = states
        answers = self._ask_first()
        plans = self._futures > 0
        if self.actions.name in answers:
            chosen = answers[self.actions.name][rows, self._filled]
        else:
            chosen = np.zeros((n, *self.actions.shape), dtype_of(self.actions))
        if plans.any():
            chosen[plans] = self._act_by_inverse_dynamics(plans, answers.get(self.states.name))
        self._past_actions[rows, self._filled] = chosen
        return chosen

    def check_states(self, states: NDArray[Any]) -> None:
        """Raise a `DataError` unless there is a state for each row."""
        n = len(self._row_ways)
        if np.shape(states) != (n, *self.states.shape):
            raise DataError(
                f"{n} states of shape {self.states.shape} are expected, got {np.shape(states)}; "
                "call reset(n) first."
            )

    def observe(self, rewards: NDArray[Any], dones: BoolArray) -> None:
        """Count rewards; rows that are done begin a new episode with the next `act`."""
        self._gained += self.asked_returns.worth(self._steps) * np.asarray(rewards, np.float64)
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

    def take(self, actions: NDArray[Any]) -> None:
        """Remember these as the actions of the current step, whatever `act` has chosen."""
        self._past_actions[np.arange(len(actions)), self._filled] = actions

    def question(self, filled: int) -> Question:
        """What a row of the first way shows and wants that remembers so many steps, (T, M) each."""
        twin = MaskedPolicy(self.run, self.ways[:1])
        twin._filled[:] = filled
        asked = twin._asked_now()
        return Question(asked.visible[0], asked.wanted[0])

    def deviations(self) -> NDArray[np.float32] | None:
        """The standard deviation that the model expects of the actions that `act` chose last.

        Returns:
            (n, *shape), of cloning and return-conditioned acting; None if the run does not say.
        """
        name, (_, visible, wanted, _) = self.actions.name, self._asked_now()
        asked = ask_how_sure(self.run, self._window(), visible, [name], wanted).deviations
        return asked[name][self._rows, self._filled] if name in asked else None

    def fork(self) -> MaskedPolicy:
        """The same policy within the same episodes, to go on by itself: in imagination."""
        twin = copy.copy(self)
        for name in MEMORY:
            setattr(twin, name, getattr(self, name).copy())
        return twin

    @property
    def steps(self) -> NDArray[np.int64]:
        """Steps that each row's episode has behind it, (n,)."""
        return self._steps

    def _set_ways(self) -> None:
        ways = self._row_ways
        self._futures = np.array([w.future for w in ways])
        self._histories = np.array([w.history for w in ways])
        self._own_actions = np.array([w.own_actions for w in ways])
        self._follows = np.array([w.reference is not None for w in ways])
        self._targets = np.array([np.nan if w.target is None else w.target for w in ways])
        self._guidance = np.array([w.guidance for w in ways])
        self._first = np.array([w.first or "" for w in ways])
        self._asks_first = any(w.first for w in ways)
        self._guided = np.flatnonzero(~np.isnan(self._targets) & (self._guidance != 1))
        self._rows = np.arange(len(ways))
        self._asked: _Asked | None = None

    def _make_room(self) -> None:
        """Forget what is older than a row's history."""
        crowded = self._filled > self._histories
        if not crowded.any():
            return
        mine = slice(None) if crowded.all() else crowded
        for past in (self._past_states, self._past_actions):
            past[mine, :-1] = past[mine, 1:]
        self._filled[mine] -= 1

    def _ask_first(self) -> Arrays:
        """The action now, or the states to come, by the capability that each row asks first."""
        if not self._asks_first:
            return {}
        if self._asked is None or not np.array_equal(self._asked.moments, self._filled):
            self._asked = self._asked_now()
        window, (_, visible, wanted, want) = self._window(), self._asked
        guided = self._guided
        if not len(guided):
            return ask(self.run, window, visible, want, wanted)
        rows = np.append(np.arange(len(visible)), guided)  # those once more, without the return
        visible, wanted = visible[rows], wanted[rows]
        assert self.returns is not None
        visible[-len(guided) :, :, self.run.modalities.place(self.returns.name)] = False
        repeated = {name: values[rows] for name, values in window.items()}
        answers = ask(self.run, repeated, visible, want, wanted)
        return {name: self._guide(values, guided) for name, values in answers.items()}

    def _guide(self, answers: NDArray[Any], guided: NDArray[np.int64]) -> NDArray[Any]:
        """From the answers without the return, which come last, beyond those with it."""
        told, untold = answers[: -len(guided)], answers[-len(guided) :]
        weight = self._guidance[guided].reshape(-1, *[1] * (answers.ndim - 1))
        told[guided] = untold + weight * (told[guided] - untold)
        return told

    def _asked_now(self) -> _Asked:
        """What the rows show and want now: the masks of their capabilities, of what is known."""
        shape = (len(self._first), self.length, len(self.run.modalities))
        visible, wanted = np.zeros(shape, bool), np.zeros(shape, bool)
        for name in dict.fromkeys(self._first.tolist()):
            if name:
                rows = np.flatnonzero(self._first == name)
                asked = NAMED_MASKS[name].questions(
                    self.run.modalities, self.length, self._filled[rows]
                )
                visible[rows], wanted[rows] = asked.visible, asked.wanted
        ahead = np.arange(self.length)[None, :] - self._filled[:, None]  # (n, T)
        needed = (ahead == 0) | (ahead <= self._futures[:, None])
        wanted &= needed[:, :, None]
        place = self.run.modalities.place
        want = [m.name for m in (self.actions, self.states) if wanted[:, :, place(m.name)].any()]
        return _Asked(self._filled.copy(), visible & self._known(), wanted, want)

    def _window(self) -> Arrays:
        """What is remembered, and the return to ask for."""
        window: Arrays = {
            self.states.name: self._past_states,
            self.actions.name: self._past_actions,
        }
        if self.returns is not None:
            window[self.returns.name] = self._asked_returns()
        return window

    def _known(self) -> BoolArray:
        """Which tokens of the window are remembered, (n, T, M).

        Of returns only the one asked for now: what was asked for in the past says nothing that the
        question now does not, and no mask of training shows a state and all returns after it.
        """
        time, now = np.arange(self.length)[None, :], self._filled[:, None]
        place = self.run.modalities.place
        known = np.zeros((len(now), self.length, len(self.run.modalities)), bool)
        known[:, :, place(self.states.name)] = time <= now
        known[:, :, place(self.actions.name)] = (time < now) & self._own_actions[:, None]
        if self.returns is not None:
            asked = ~np.isnan(self._targets)[:, None]
            known[:, :, place(self.returns.name)] = (time == now) & asked
        return known

    def _asked_returns(self) -> NDArray[np.float32]:
        """What to ask for now, at each step of the window."""
        targets = np.where(np.isnan(self._targets), 0.0, self._targets)
        left = self.asked_returns.left(targets, self._gained, self._steps)
        return np.repeat(left[:, None], self.length, axis=1).astype(np.float32)

    def _act_by_inverse_dynamics(self, plans: BoolArray, imagined: Any) -> NDArray[Any]:
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
                states[i, now[i] + ahead] = imagined[row, now[i] + ahead]
        until = (now + self._futures[rows])[:, None]
        known = np.zeros((len(rows), self.length, len(self.run.modalities)), bool)
        known[:, :, self.run.modalities.place(self.states.name)] = np.arange(self.length) <= until
        answer = ask_capability(self.run, "id", {self.states.name: states}, known, now)
        return answer[self.actions.name][np.arange(len(rows)), now]


def asked_returns(run: Run) -> AskedReturns:
    """How a policy of this run asks for returns; without any, it has only a discount."""
    made, statistics = run.description.train.returns, run.normalizer.statistics
    known = [statistics[m.name] for m in run.modalities.of_role("return") if m.name in statistics]
    return AskedReturns(
        discount=made.discount,
        horizon=run.description.data.get("returns_horizon"),
        is_sum=made.kind == "sum",
        low=float(known[0].low.min()) if known else -np.inf,
        high=float(known[0].high.max()) if known else np.inf,
    )


def join(policies: Sequence[MaskedPolicy]) -> MaskedPolicy:
    """One policy that acts in all of these ways, for one forward pass per step.

    Raises:
        ConfigError: They use different runs.
    """
    if any(p.run is not policies[0].run for p in policies):
        raise ConfigError("only policies of the same run can share a forward pass.")
    return MaskedPolicy(policies[0].run, [way for p in policies for way in p.ways])


def act_together(
    policies: Sequence[MaskedPolicy], states: Sequence[NDArray[Any]]
) -> list[NDArray[Any]]:
    """What each policy does by itself, within its own episodes, in one forward pass for all.

    Args:
        policies: Of one run, each at most once.
        states: Of each, as for `act`.

    Raises:
        ConfigError: They use different runs.
        DataError: As `act`; then none has acted.
    """
    for policy, mine in zip(policies, states, strict=True):
        policy.check_states(mine)
    if len(policies) == 1:
        return [policies[0].act(states[0])]
    joined = join(policies)
    joined._row_ways = [way for policy in policies for way in policy._row_ways]
    for name in MEMORY:
        setattr(joined, name, np.concatenate([getattr(p, name) for p in policies]))
    joined._set_ways()
    actions = joined.act(np.concatenate(states))
    ends = np.cumsum([len(p._row_ways) for p in policies])[:-1]
    for name in MEMORY:
        for policy, part in zip(policies, np.split(getattr(joined, name), ends), strict=True):
            setattr(policy, name, part.copy())
    return np.split(actions, ends)
