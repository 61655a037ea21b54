"""A capability is its mask: what it may see, and what it wants back. `True` is visible.

Training, evaluation, queries and policies all take it from here. It asks its question for a moment
`now` within the segment. Who asks shows what the mask allows *and* is known: a policy without a
past shows none. A model specialised in one capability is trained by drawing `now` at random.

    now = 2        t=0  1  2  3
    states          ■   ■  ■  ?      forward dynamics: states and actions until now -> next state
    actions         ■   ■  ■  ·
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from mtm.core.errors import ConfigError
from mtm.data.modalities import BoolArray, IntArray, Modality, Role

WAYPOINT_EVERY = 2
"""Steps between the visible states of the `waypoints` pattern."""


@dataclass(frozen=True)
class Question:
    """What may be seen, and what is wanted back: (T, M) each, or (B, T, M) for a batch."""

    visible: BoolArray
    wanted: BoolArray


@dataclass(frozen=True)
class NamedMask:
    """What a capability shows and asks for.

    Attributes:
        summary: One line for people.
        roles: Roles that the modalities must have among them.
        ask: The question at the moment `now` of a segment of length T.
        moments: The moments that make sense in a segment of length T; a long one has some.
        usual: The moment that is meant when none is given.
    """

    summary: str
    roles: tuple[Role, ...]
    ask: Callable[[_Grid, int], Question]
    moments: Callable[[int], range]
    usual: Callable[[int], int]

    def question(
        self, modalities: Sequence[Modality], segment_length: int, now: int | None = None
    ) -> Question:
        """The question at `now`, or at the usual moment.

        Raises:
            ConfigError: `now` makes no sense, the segment is too short, or no modality has a role
                that the mask needs.
        """
        grid = _Grid(modalities, segment_length)
        missing = [role for role in self.roles if not grid.role(role).any()]
        if missing:
            raise ConfigError(
                f"this mask needs a modality of role {' and '.join(missing)}; there are "
                f"{', '.join(f'{m.name} ({m.role})' for m in modalities)}."
            )
        moments = self.moments(segment_length)
        if not moments:
            shortest = next(T for T in itertools.count(segment_length) if self.moments(T))
            raise ConfigError(
                f"this mask needs a segment of at least {shortest} steps, got {segment_length}."
            )
        now = self.usual(segment_length) if now is None else now
        if now not in moments:
            raise ConfigError(
                f"now={now} makes no sense for this mask in a segment of length {segment_length}; "
                f"allowed: {list(moments)}."
            )
        return self.ask(grid, now)

    def fits(self, modalities: Sequence[Modality], segment_length: int) -> bool:
        """Whether these modalities and this length let the question be asked."""
        has = {m.role for m in modalities}
        return has.issuperset(self.roles) and bool(self.moments(segment_length))

    def __call__(
        self,
        modalities: Sequence[Modality],
        segment_length: int,
        batch_size: int,
        rng: np.random.Generator,
    ) -> BoolArray:
        """A mask per sample, each at a moment of its own."""
        return self.draw(modalities, segment_length, batch_size, rng).visible

    def draw(
        self,
        modalities: Sequence[Modality],
        segment_length: int,
        batch_size: int,
        rng: np.random.Generator,
    ) -> Question:
        """A question per sample, each at a moment of its own: (B, T, M) each."""
        table = _all_questions(self, tuple(modalities), segment_length)
        moments = rng.integers(len(table.visible), size=batch_size)
        return Question(table.visible[moments], table.wanted[moments])

    def questions(
        self, modalities: Sequence[Modality], segment_length: int, moments: IntArray
    ) -> Question:
        """A question per sample, each at its own of these moments (B,): (B, T, M) each.

        Raises:
            ConfigError: As `question`.
        """
        table = _all_questions(self, tuple(modalities), segment_length)
        senseless = (moments < 0) | (moments >= len(table.visible))
        if senseless.any():
            self.question(modalities, segment_length, int(moments[senseless][0]))
        return Question(table.visible[moments], table.wanted[moments])


@lru_cache(maxsize=64)
def _all_questions(
    capability: NamedMask, modalities: tuple[Modality, ...], segment_length: int
) -> Question:
    """The questions at every moment, which begin with 0: (moments, T, M) each."""
    moments = capability.moments(segment_length)
    usual = capability.question(modalities, segment_length)  # tells what is wrong, if anything is
    asked = [capability.question(modalities, segment_length, now) for now in moments] or [usual]
    assert moments.start == 0
    assert moments.step == 1
    return Question(np.stack([q.visible for q in asked]), np.stack([q.wanted for q in asked]))


class _Grid:
    """The (T, M) tokens of a segment, and handy sets of them."""

    def __init__(self, modalities: Sequence[Modality], segment_length: int) -> None:
        self.time = np.arange(segment_length)[:, None]
        self._roles = np.array([m.role for m in modalities])[None, :]

    def role(self, role: Role) -> BoolArray:
        """Tokens of a role, (1, M)."""
        matches: BoolArray = self._roles == role
        return matches

    @property
    def end(self) -> int:
        """The last time step."""
        return len(self.time) - 1


def _behavior_cloning(grid: _Grid, now: int) -> Question:
    past, current = grid.time < now, grid.time == now
    state, action = grid.role("state"), grid.role("action")
    return Question((past | current) & state | past & action, current & action)


def _return_conditioned(grid: _Grid, now: int) -> Question:
    cloning = _behavior_cloning(grid, now)
    return Question(cloning.visible | (grid.time <= now) & grid.role("return"), cloning.wanted)


def _behavior_cloning_now(grid: _Grid, now: int) -> Question:
    current = grid.time == now
    return Question(current & grid.role("state"), current & grid.role("action"))


def _return_conditioned_now(grid: _Grid, now: int) -> Question:
    cloning = _behavior_cloning_now(grid, now)
    return Question(cloning.visible | (grid.time == now) & grid.role("return"), cloning.wanted)


def _forward_dynamics(grid: _Grid, now: int) -> Question:
    known = grid.role("state") | grid.role("action")
    return Question((grid.time <= now) & known, (grid.time == now + 1) & grid.role("state"))


def _backward_dynamics(grid: _Grid, now: int) -> Question:
    state, action = grid.role("state"), grid.role("action")
    visible = (grid.time > now) & state | (grid.time >= now) & action
    return Question(visible, (grid.time == now) & state)


def _inverse_dynamics(grid: _Grid, now: int) -> Question:
    return Question(
        (grid.time <= grid.end) & grid.role("state"), (grid.time == now) & grid.role("action")
    )


def _goal(grid: _Grid, now: int) -> Question:
    visible = ((grid.time <= now) | (grid.time == grid.end)) & grid.role("state")
    between = (grid.time > now) & (grid.time < grid.end) & grid.role("state")
    acting = (grid.time >= now) & (grid.time < grid.end) & grid.role("action")
    return Question(visible, between | acting)


def _waypoints(grid: _Grid, now: int) -> Question:
    marks = (grid.time <= now) | ((grid.time - now) % WAYPOINT_EVERY == 0) | (grid.time == grid.end)
    between = (grid.time > now) & ~marks & grid.role("state")
    acting = (grid.time >= now) & (grid.time < grid.end) & grid.role("action")
    return Question(marks & grid.role("state"), between | acting)


def _plan(grid: _Grid, now: int) -> Question:
    known = grid.role("state") | grid.role("return")
    coming = (grid.time > now) & grid.role("state")
    return Question((grid.time <= now) & known, coming | (grid.time == now) & grid.role("action"))


def _past(grid: _Grid, now: int) -> Question:
    known = grid.role("state") | grid.role("action")
    return Question((grid.time > now) & known, (grid.time <= now) & known)


NAMED_MASKS: dict[str, NamedMask] = {
    "bc": NamedMask(
        "behaviour cloning: states and past actions -> the action now",
        ("state", "action"),
        _behavior_cloning,
        moments=lambda T: range(T),
        usual=lambda T: T - 1,
    ),
    "rcbc": NamedMask(
        "return-conditioned cloning: states, returns and past actions -> the action now",
        ("state", "return", "action"),
        _return_conditioned,
        moments=lambda T: range(T),
        usual=lambda T: T - 1,
    ),
    "bc-now": NamedMask(
        "cloning without a past: the state now -> the action now",
        ("state", "action"),
        _behavior_cloning_now,
        moments=lambda T: range(T),
        usual=lambda T: T - 1,
    ),
    "rcbc-now": NamedMask(
        "return-conditioned without a past: the state and the return now -> the action now",
        ("state", "return", "action"),
        _return_conditioned_now,
        moments=lambda T: range(T),
        usual=lambda T: T - 1,
    ),
    "id": NamedMask(
        "inverse dynamics: all states -> the action between two of them",
        ("state", "action"),
        _inverse_dynamics,
        moments=lambda T: range(T - 1),
        usual=lambda T: T - 2,
    ),
    "fd": NamedMask(
        "forward dynamics: states and actions until now -> the next state",
        ("state", "action"),
        _forward_dynamics,
        moments=lambda T: range(T - 1),
        usual=lambda T: T - 2,
    ),
    "bd": NamedMask(
        "backward dynamics: states after now, actions from now on -> the state now",
        ("state", "action"),
        _backward_dynamics,
        moments=lambda T: range(T - 1),
        usual=lambda T: 0,
    ),
    "goal": NamedMask(
        "goal reaching: states until now and the last state -> the way there",
        ("state",),
        _goal,
        moments=lambda T: range(T - 1),
        usual=lambda T: 0,
    ),
    "waypoints": NamedMask(
        f"following waypoints: states until now and every {WAYPOINT_EVERY}nd -> the way between",
        ("state",),
        _waypoints,
        moments=lambda T: range(T - 1),
        usual=lambda T: 0,
    ),
    "past": NamedMask(
        "past inference: states and actions after now -> what came before",
        ("state",),
        _past,
        moments=lambda T: range(T - 1),
        usual=lambda T: T // 2 - 1,
    ),
    "plan": NamedMask(
        "planning: states and returns until now -> the action, the states to come",
        ("state",),
        _plan,
        moments=lambda T: range(T - 1),
        usual=lambda T: 0,
    ),
}
"""Capabilities, by name."""
