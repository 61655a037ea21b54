"""Masks: which tokens the encoder may see. `True` is visible, everywhere.

A pattern is a small function. The *random* patterns, here, draw another mask for every sample and
are what one trains with; the *named* ones (`mtm.masks.capabilities`) show exactly what a capability
needs and mark what it wants back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from mtm.core.config import TrainConfig
from mtm.core.errors import ConfigError, unknown
from mtm.data.modalities import BoolArray, IntArray, Modality, Role
from mtm.masks.capabilities import NAMED, NamedPattern

VISIBLE_FRACTION = (0.4, 1.0)
"""The paper hides 0.0 to 0.6 of a segment."""

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
        """A mask per sample, of samples that lack nothing."""
        whole = np.ones((batch_size, segment_length, len(modalities)), bool)
        return self.of_present(modalities, whole, rng)

    def of_present(
        self, modalities: Sequence[Modality], present: BoolArray, rng: np.random.Generator
    ) -> BoolArray:
        """As above, but a sample draws only masks that show and ask for something that it has.

        All states shown to learn the actions between them teach nothing where no action was
        recorded: without this, data without actions would waste that share of their samples.

        Args:
            modalities: The streams.
            present: What the samples have, (B, T, M).
            rng: Draws.
        """
        B, T, _ = present.shape
        drawn = np.stack([mask(modalities, T, B, rng) for mask in self.parts])  # (parts, B, T, M)
        has = present.any(axis=1)  # (B, M)
        fits = np.stack(
            [
                (has & shown).any(axis=1) & (has & wanted).any(axis=1)
                for shown, wanted in (_columns(mask, modalities, T) for mask in self.parts)
            ]
        )
        fits |= ~fits.any(axis=0)  # nothing that any mask asks for: all the same
        place = (rng.random(B) * fits.sum(axis=0)).astype(np.int64)  # among the masks that fit
        chosen = (fits.cumsum(axis=0) > place).argmax(axis=0)
        visible: BoolArray = drawn[chosen, np.arange(B)]
        return visible


def draw_masks(
    mask: MaskFunction,
    modalities: Sequence[Modality],
    present: BoolArray,
    rng: np.random.Generator,
) -> BoolArray:
    """A mask for each sample of a batch; a mix takes into account what they have.

    Args:
        mask: Any mask function.
        modalities: The streams.
        present: What the samples have, (B, T, M).
        rng: Draws.

    Returns:
        What may be seen if it is present, (B, T, M).
    """
    if isinstance(mask, MixedMask):
        return mask.of_present(modalities, present, rng)
    batch_size, segment_length, _ = present.shape
    return mask(modalities, segment_length, batch_size, rng)


def _columns(
    mask: MaskFunction, modalities: Sequence[Modality], segment_length: int
) -> tuple[BoolArray, BoolArray]:
    """The modalities that a mask shows and those that it wants back, (M,) each; random: all."""
    if not isinstance(mask, NamedPattern):
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
