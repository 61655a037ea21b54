"""Masks by name: random ones, capabilities, and mixes of both."""

from __future__ import annotations

from collections.abc import Mapping

from mtm.core.config import CUSTOM_MASK, TrainConfig
from mtm.core.errors import ConfigError
from mtm.core.mask_mix import mix_faults, mix_text, parse_mix
from mtm.masks.capabilities import NAMED_MASKS
from mtm.masks.training_masks import (
    ListedShares,
    MaskFunction,
    MixedMask,
    RandomAutoregressiveMask,
    RandomMask,
)

RANDOM_SUMMARIES: dict[str, str] = {
    "random": "a random share of each modality",
    "random-autoregressive": "random, and all after a random token is hidden (the paper's)",
    "balanced": "random-autoregressive, with a share for each question that people ask most",
    "original": "random-autoregressive as the original code draws it: a listed share per modality",
}

BALANCED: dict[str, float] = {
    "random-autoregressive": 0.25,
    "rcbc-now": 0.3,
    "bc-now": 0.3,
    "fd": 0.075,
    "id": 0.075,
}
"""What `balanced` draws, as far as the data allow. Random masks hardly ever ask just these."""

NAMES: tuple[str, ...] = (*RANDOM_SUMMARIES, *NAMED_MASKS)
"""Names of all patterns."""


def summary(name: str) -> str:
    """One line on a pattern."""
    return NAMED_MASKS[name].summary if name in NAMED_MASKS else RANDOM_SUMMARIES[name]


def make_mask(
    name: str | Mapping[str, float],
    *,
    random: RandomMask | None = None,
    weights: Mapping[str, float] | None = None,
) -> MaskFunction:
    """The mask function of a name or of a mix, of which each sample draws one.

    Args:
        name: A mask, several joined by `+`, or with weights: `random-autoregressive:0.7+fd:0.3`,
            as a dict `{"random-autoregressive": 0.7, "fd": 0.3}`.
        random: How the random masks draw; None: as in the paper.
        weights: How often each modality is the first that the autoregressive part hides.

    Raises:
        ConfigError: A name is not known (the message lists the near ones), or a weight is wrong.
    """
    if not isinstance(name, str):
        name = mix_text(name)
    faults = mix_faults(name, NAMES)
    if faults:
        raise ConfigError("\n".join(faults))
    mix = {part: weight for part, weight in parse_mix(name).items() if weight > 0}
    parts = tuple(_one_mask(part, random or RandomMask(), weights) for part in mix)
    return parts[0] if len(parts) == 1 else MixedMask(parts, tuple(mix.values()))


def training_mask(config: TrainConfig) -> MaskFunction:
    """What a training with these settings shows of every sample.

    Raises:
        ConfigError: The mask is not known.
    """
    random = RandomMask(config.visible_fraction, config.whole_modalities)
    return make_mask(config.mask, random=random, weights=config.mask_weights)


def asked_in_training(config: TrainConfig) -> frozenset[str]:
    """The masks that a training with these settings draws, those within `balanced` too.

    None of a function of the user's own, which says nothing of itself.
    """
    if config.mask == CUSTOM_MASK:
        return frozenset()
    drawn = {name for name, weight in parse_mix(config.mask).items() if weight > 0}
    return frozenset(drawn | (set(BALANCED) if "balanced" in drawn else set()))


def _one_mask(name: str, random: RandomMask, weights: Mapping[str, float] | None) -> MaskFunction:
    if name == "random":
        return random
    if name == "random-autoregressive":
        return RandomAutoregressiveMask(random, weights)
    if name == "original":
        return RandomAutoregressiveMask(ListedShares(random.visible_fraction), weights)
    if name == "balanced":
        parts = tuple(_one_mask(part, random, weights) for part in BALANCED)
        return MixedMask(parts, tuple(BALANCED.values()), fitting=True)
    return NAMED_MASKS[name]
