"""Several masks in one training: each sample draws one of them, as often as its weight says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mtm.core.errors import ConfigError
from mtm.data.modalities import BoolArray, Modality
from mtm.masks.capabilities import NamedMask
from mtm.masks.random_masks import MaskFunction


@dataclass(frozen=True)
class MixedMask:
    """Each sample draws one of several masks.

    Attributes:
        parts: The masks.
        weights: How often each is drawn, of any sum; equally often if empty.
    """

    parts: tuple[MaskFunction, ...]
    weights: tuple[float, ...] = ()

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
        weights = np.array(self.weights)[:, None]  # (parts, 1)
        fits = np.stack(
            [
                (has & shown).any(axis=1) & (has & wanted).any(axis=1)
                for shown, wanted in (_columns(mask, modalities, T) for mask in self.parts)
            ]
        ) & (weights > 0)
        fits |= ~fits.any(axis=0) & (weights > 0)  # nothing that any mask asks for: all the same
        until = (fits * weights).cumsum(axis=0)  # (parts, B)
        chosen = (until > rng.random(B) * until[-1]).argmax(axis=0)
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
    if not isinstance(mask, NamedMask):
        return np.ones(len(modalities), bool), np.ones(len(modalities), bool)
    question = mask.question(modalities, segment_length)
    return np.any(question.visible, axis=0), np.any(question.wanted, axis=0)
