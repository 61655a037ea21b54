"""Random masks, which one trains with: another one for every sample. `True` is visible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from mtm.core.errors import ConfigError, unknown
from mtm.data.modalities import BoolArray, Modality, Role

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
