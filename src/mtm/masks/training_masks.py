"""Masks to train with: random ones and mixes, another draw for every sample. `True` is visible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mtm.core.errors import ConfigError, unknown
from mtm.data.modalities import BoolArray, Modality, Role
from mtm.masks.capabilities import NamedMask, Question

VISIBLE_FRACTION = (0.4, 1.0)
"""The paper hides 0.0 to 0.6 of a segment."""

SHARES = (0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 1.0)
"""Visible shares that the original draws from; for D4RL it leaves out the first one."""

WEIGHTS: dict[Role, float] = {"state": 0.2, "return": 0.1, "action": 0.7, "reward": 0.1}
"""How often the first hidden token of the autoregressive part is of each role."""


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
        """The same count of visible tokens for each modality, at random times.

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
class ListedShares:
    """The original's random part: each modality draws one of `SHARES`, and shows that share.

    Attributes:
        visible_fraction: The range within which shares are used.
    """

    visible_fraction: tuple[float, float] = VISIBLE_FRACTION

    def __call__(
        self,
        modalities: Sequence[Modality],
        segment_length: int,
        batch_size: int,
        rng: np.random.Generator,
    ) -> BoolArray:
        """Exact counts, rounded down, at random times.

        Raises:
            ConfigError: No share lies within the range.
        """
        low, high = self.visible_fraction
        shares = np.array([share for share in SHARES if low <= share <= high])
        if not len(shares):
            raise ConfigError(
                f"visible_fraction {low} to {high} holds none of the shares of the original: "
                f"{', '.join(map(str, SHARES))}."
            )
        drawn = rng.choice(shares, size=(batch_size, 1, len(modalities)))
        order = rng.random((batch_size, segment_length, len(modalities)))
        visible: BoolArray = order.argsort(axis=1).argsort(axis=1) < np.floor(
            segment_length * drawn
        )
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

    random: MaskFunction = RandomMask()
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
    """Each sample draws one of several masks.

    Attributes:
        parts: The masks.
        weights: How often each is drawn, of any sum; equally often if empty.
        fitting: Leave out the capabilities that the modalities or the length do not allow, such as
            return-conditioned acting without returns; otherwise they are an error.
    """

    parts: tuple[MaskFunction, ...]
    weights: tuple[float, ...] = ()
    fitting: bool = False

    def __post_init__(self) -> None:
        weights = self.weights or (1.0,) * len(self.parts)
        if len(weights) != len(self.parts) or not all(0 <= w < np.inf for w in weights):
            raise ConfigError(
                f"a mix needs a weight of at least 0 for each of its {len(self.parts)} masks, got "
                f"{self.weights}."
            )
        if not sum(weights):
            raise ConfigError(f"a mix needs a weight above 0, got {self.weights}.")
        object.__setattr__(self, "weights", weights)

    def __call__(
        self,
        modalities: Sequence[Modality],
        segment_length: int,
        batch_size: int,
        rng: np.random.Generator,
    ) -> BoolArray:
        """A mask per sample, of samples that lack nothing."""
        whole = np.ones((batch_size, segment_length, len(modalities)), bool)
        return self.of_present(modalities, whole, rng).visible

    def of_present(
        self, modalities: Sequence[Modality], present: BoolArray, rng: np.random.Generator
    ) -> Question:
        """A question per sample, which draws only masks that show and ask for what it has.

        All states shown to learn the actions between them teach nothing where no action was
        recorded: without this, data without actions would waste that share of their samples.

        Args:
            modalities: The streams.
            present: What the samples have, (B, T, M).
            rng: Draws.
        """
        B, T, _ = present.shape
        parts, weights = self._parts_for(modalities, T)
        drawn = [draw_questions(mask, modalities, present, rng) for mask in parts]
        has = present.any(axis=1)  # (B, M)
        fits = np.stack(
            [
                (has & shown).any(axis=1) & (has & wanted).any(axis=1)
                for shown, wanted in (_columns(mask, modalities, T) for mask in parts)
            ]
        ) & (weights > 0)
        fits |= ~fits.any(axis=0) & (weights > 0)  # nothing that any mask asks for: all the same
        until = (fits * weights).cumsum(axis=0)  # (parts, B)
        chosen = (until > rng.random(B) * until[-1]).argmax(axis=0)
        sample = np.arange(B)
        return Question(
            np.stack([question.visible for question in drawn])[chosen, sample],
            np.stack([question.wanted for question in drawn])[chosen, sample],
        )

    def _parts_for(
        self, modalities: Sequence[Modality], segment_length: int
    ) -> tuple[list[MaskFunction], NDArray[np.float64]]:
        """The parts to draw from, and their weights, (parts, 1)."""
        kept = [
            (mask, weight)
            for mask, weight in zip(self.parts, self.weights, strict=True)
            if not (self.fitting and isinstance(mask, NamedMask))
            or mask.fits(modalities, segment_length)
        ]
        return [mask for mask, _ in kept], np.array([weight for _, weight in kept])[:, None]


def draw_questions(
    mask: MaskFunction,
    modalities: Sequence[Modality],
    present: BoolArray,
    rng: np.random.Generator,
) -> Question:
    """A question for each sample of a batch; a mix takes into account what they have.

    Args:
        mask: Any mask function. One that does not say what it wants, wants everything.
        modalities: The streams.
        present: What the samples have, (B, T, M).
        rng: Draws.

    Returns:
        What may be seen and what is wanted, if it is present, (B, T, M) each.
    """
    if isinstance(mask, MixedMask):
        return mask.of_present(modalities, present, rng)
    batch_size, segment_length, _ = present.shape
    if isinstance(mask, NamedMask):
        return mask.draw(modalities, segment_length, batch_size, rng)
    visible = mask(modalities, segment_length, batch_size, rng)
    return Question(visible, np.ones_like(visible))


def draw_one_for_all(
    mask: MaskFunction,
    modalities: Sequence[Modality],
    present: BoolArray,
    rng: np.random.Generator,
) -> Question:
    """As `draw_questions`, but one question, of what any sample has, for the whole batch."""
    question = draw_questions(mask, modalities, np.any(present, axis=0)[None], rng)
    return Question(
        np.repeat(question.visible, len(present), axis=0),
        np.repeat(question.wanted, len(present), axis=0),
    )


def _columns(
    mask: MaskFunction, modalities: Sequence[Modality], segment_length: int
) -> tuple[BoolArray, BoolArray]:
    """The modalities that a mask shows and those that it wants back, (M,) each; random: all."""
    if not isinstance(mask, NamedMask):
        return np.ones(len(modalities), bool), np.ones(len(modalities), bool)
    question = mask.question(modalities, segment_length)
    return np.any(question.visible, axis=0), np.any(question.wanted, axis=0)


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
