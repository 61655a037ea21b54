"""Masks: which tokens the encoder may see. `True` is visible, everywhere.

A pattern is a small function. The *random* patterns draw another mask for every sample and are what
one trains with; the *named* patterns show exactly what a capability needs and mark what it wants
back, for a moment `now` within the segment. A model specialised in one capability is trained by
drawing `now` at random.

    now = 2        t=0  1  2  3
    states          ■   ■  ■  ?      forward dynamics: states and actions until now -> next state
    actions         ■   ■  ■  ·
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from mtm.config import TrainConfig
from mtm.errors import ConfigError, unknown
from mtm.modalities import BoolArray, IntArray, Modality, Role

VISIBLE_FRACTION = (0.4, 1.0)
"""The paper hides 0.0 to 0.6 of a segment."""

WEIGHTS: dict[Role, float] = {"state": 0.2, "return": 0.1, "action": 0.7, "reward": 0.1}
"""How often the first hidden token of the autoregressive part is of each role."""

WAYPOINT_EVERY = 2
"""Steps between the visible states of the `waypoints` pattern."""


class MaskFunction(Protocol):
    """Draws `visible`, (batch_size, T, M), one mask per sample. A user's own may be passed too."""

    def __call__(
        self,
        modalities: Sequence[Modality],
        segment_length: int,
        batch_size: int,
        rng: np.random.Generator,
    ) -> BoolArray:
        """Draw the masks of a batch."""


@dataclass(frozen=True)
class Question:
    """One mask for one purpose: what is given, and what is wanted back; each (T, M)."""

    visible: BoolArray
    wanted: BoolArray


@dataclass(frozen=True)
class NamedPattern:
    """A capability as a mask.

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
                that the pattern needs.
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

    def __call__(
        self,
        modalities: Sequence[Modality],
        segment_length: int,
        batch_size: int,
        rng: np.random.Generator,
    ) -> BoolArray:
        """A mask per sample, each at a moment of its own."""
        self.question(modalities, segment_length)
        grid = _Grid(modalities, segment_length)
        moments = self.moments(segment_length)
        table = np.stack([self.ask(grid, now).visible for now in moments])
        drawn: BoolArray = table[rng.integers(len(table), size=batch_size)]
        return drawn


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


@dataclass(frozen=True)
class RandomMask:
    """Each sample draws a fraction, then shows that share of each modality's tokens.

    Attributes:
        visible_fraction: Range of the visible fraction, drawn uniformly.
        whole_modalities: Share of the samples that show or hide each modality as a whole instead,
            with equal chances. That is what capabilities do, and it hardly ever comes by itself.
    """

    visible_fraction: tuple[float, float] = VISIBLE_FRACTION
    whole_modalities: float = 0.0

    def __call__(
        self,
        modalities: Sequence[Modality],
        segment_length: int,
        batch_size: int,
        rng: np.random.Generator,
    ) -> BoolArray:
        """The same count of visible tokens for each modality, spread over time at random.

        Counts are rounded up or down by chance, so that their mean is exact and short segments are
        seen whole as often as the range says; rounding down would never show all of one.
        """
        fraction = rng.uniform(*self.visible_fraction, size=(batch_size, 1, 1))
        count = np.floor(segment_length * fraction + rng.random((batch_size, 1, 1)))
        order = rng.random((batch_size, segment_length, len(modalities)))
        visible: BoolArray = order.argsort(axis=1).argsort(axis=1) < count
        if self.whole_modalities:
            whole = rng.random((batch_size, 1, 1)) < self.whole_modalities
            visible = np.where(whole, _some_modalities(batch_size, len(modalities), rng), visible)
        return visible


@dataclass(frozen=True)
class RandomAutoregressiveMask:
    """The paper's training pattern: random, and one token is predicted from its past alone.

    A modality and a time are drawn; that token and all after it, in the order of the modalities
    within a step, are hidden.

    Attributes:
        random: What is visible before the autoregressive part.
        weights: How often each modality is the first hidden one, by name; by role if empty.
    """

    random: RandomMask = RandomMask()
    weights: Mapping[str, float] | None = None

    def __call__(
        self,
        modalities: Sequence[Modality],
        segment_length: int,
        batch_size: int,
        rng: np.random.Generator,
    ) -> BoolArray:
        """A random mask with everything from one token on hidden."""
        visible = self.random(modalities, segment_length, batch_size, rng)
        chance = _chances(modalities, self.weights)
        m = rng.choice(len(modalities), p=chance, size=batch_size)
        t = rng.integers(segment_length, size=batch_size)
        first_hidden = (t * len(modalities) + m)[:, None]  # (B, 1)
        token = np.arange(segment_length * len(modalities))[None, :]  # (1, L)
        return visible & (token < first_hidden).reshape(visible.shape)


@dataclass(frozen=True)
class MixedMask:
    """Each sample draws one of several masks, all equally likely."""

    parts: tuple[MaskFunction, ...]

    def __call__(
        self,
        modalities: Sequence[Modality],
        segment_length: int,
        batch_size: int,
        rng: np.random.Generator,
    ) -> BoolArray:
        """Draw all masks for all samples, then choose."""
        drawn = np.stack([m(modalities, segment_length, batch_size, rng) for m in self.parts])
        visible: BoolArray = drawn[rng.integers(len(drawn), size=batch_size), np.arange(batch_size)]
        return visible


def _some_modalities(batch_size: int, count: int, rng: np.random.Generator) -> BoolArray:
    """Each modality or not, with equal chances, but one at least: (batch_size, 1, count)."""
    shown = rng.random((batch_size, count)) < 0.5
    shown[np.arange(batch_size), rng.integers(count, size=batch_size)] |= ~shown.any(axis=1)
    return shown[:, None, :]


def _chances(
    modalities: Sequence[Modality], weights: Mapping[str, float] | None
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    names = [m.name for m in modalities]
    for name in weights or ():
        if name not in names:
            raise ConfigError(unknown("modality in the mask's weights:", name, names))
    if weights:
        chance = np.array([weights.get(name, 0.0) for name in names])
    else:
        shares = [sum(other.role == m.role for other in modalities) for m in modalities]
        chance = np.array([WEIGHTS[m.role] / n for m, n in zip(modalities, shares, strict=True)])
    if (chance < 0).any() or chance.sum() <= 0:
        raise ConfigError(f"mask weights must be >= 0 and not all 0, got {dict(weights or {})}.")
    normalized: np.ndarray[tuple[int], np.dtype[np.float64]] = chance / chance.sum()
    return normalized


def _behavior_cloning(grid: _Grid, now: int) -> Question:
    past, current = grid.time < now, grid.time == now
    state, action = grid.role("state"), grid.role("action")
    return Question((past | current) & state | past & action, current & action)


def _return_conditioned(grid: _Grid, now: int) -> Question:
    cloning = _behavior_cloning(grid, now)
    return Question(cloning.visible | (grid.time <= now) & grid.role("return"), cloning.wanted)


def _forward_dynamics(grid: _Grid, now: int) -> Question:
    known = grid.role("state") | grid.role("action")
    return Question((grid.time <= now) & known, (grid.time == now + 1) & grid.role("state"))


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


def _past(grid: _Grid, now: int) -> Question:
    known = grid.role("state") | grid.role("action")
    return Question((grid.time > now) & known, (grid.time <= now) & known)


NAMED: dict[str, NamedPattern] = {
    "bc": NamedPattern(
        "behaviour cloning: states and past actions -> the action now",
        ("state", "action"),
        _behavior_cloning,
        moments=lambda T: range(T),
        usual=lambda T: T - 1,
    ),
    "rcbc": NamedPattern(
        "return-conditioned cloning: states, returns and past actions -> the action now",
        ("state", "return", "action"),
        _return_conditioned,
        moments=lambda T: range(T),
        usual=lambda T: T - 1,
    ),
    "id": NamedPattern(
        "inverse dynamics: all states -> the action between two of them",
        ("state", "action"),
        _inverse_dynamics,
        moments=lambda T: range(T - 1),
        usual=lambda T: T - 2,
    ),
    "fd": NamedPattern(
        "forward dynamics: states and actions until now -> the next state",
        ("state", "action"),
        _forward_dynamics,
        moments=lambda T: range(T - 1),
        usual=lambda T: T - 2,
    ),
    "goal": NamedPattern(
        "goal reaching: states until now and the last state -> the way there",
        ("state",),
        _goal,
        moments=lambda T: range(T - 1),
        usual=lambda T: 0,
    ),
    "waypoints": NamedPattern(
        f"following waypoints: states until now and every {WAYPOINT_EVERY}nd -> the way between",
        ("state",),
        _waypoints,
        moments=lambda T: range(T - 1),
        usual=lambda T: 0,
    ),
    "past": NamedPattern(
        "past inference: states and actions after now -> what came before",
        ("state",),
        _past,
        moments=lambda T: range(T - 1),
        usual=lambda T: T // 2 - 1,
    ),
}
"""Capabilities, by name."""

RANDOM_SUMMARIES: dict[str, str] = {
    "random": "a random share of each modality",
    "random-autoregressive": "random, and all after a random token is hidden (the paper's)",
}

NAMES: tuple[str, ...] = (*RANDOM_SUMMARIES, *NAMED)
"""Names of all patterns."""


def summary(name: str) -> str:
    """One line on a pattern."""
    return NAMED[name].summary if name in NAMED else RANDOM_SUMMARIES[name]


def make_mask(
    name: str,
    *,
    random: RandomMask | None = None,
    weights: Mapping[str, float] | None = None,
) -> MaskFunction:
    """The mask function of a name, or of several joined by `+`: each sample draws one of them.

    Args:
        name: Of a pattern, or several.
        random: How the random patterns draw; None: as in the paper.
        weights: How often each modality is the first that `random-autoregressive` hides.

    Raises:
        ConfigError: The name is not known; the message lists the near ones.
    """
    if "+" in name:
        parts = [make_mask(part, random=random, weights=weights) for part in name.split("+")]
        return MixedMask(tuple(parts))
    if name == "random":
        return random or RandomMask()
    if name == "random-autoregressive":
        return RandomAutoregressiveMask(random or RandomMask(), weights)
    if name in NAMED:
        return NAMED[name]
    raise ConfigError(unknown("mask", name, NAMES))


def training_mask(config: TrainConfig) -> MaskFunction:
    """What a training with these settings shows of every sample.

    Raises:
        ConfigError: The mask is not known.
    """
    random = RandomMask(config.visible_fraction, config.whole_modalities)
    return make_mask(config.mask, random=random, weights=config.mask_weights)


def draw(
    visible: BoolArray, modalities: Sequence[Modality], wanted: BoolArray | None = None
) -> str:
    """A mask as a grid of text: ■ visible, ? wanted, · hidden; a row per modality.

    Args:
        visible: (T, M).
        modalities: Their names label the rows.
        wanted: (T, M), if there is a question.
    """
    wide = max(len(m.name) for m in modalities)
    times: IntArray = np.arange(len(visible))
    lines = [" " * wide + "  " + " ".join(f"{t:>2}" for t in times)]
    for i, modality in enumerate(modalities):
        cells = [
            "■" if visible[t, i] else "?" if wanted is not None and wanted[t, i] else "·"
            for t in times
        ]
        lines.append(f"{modality.name:<{wide}}  " + " ".join(f"{c:>2}" for c in cells))
    return "\n".join(lines)
