"""`mtm masks show NAME`: draw a mask as a grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import tyro

from mtm import masks
from mtm.core.config import TrainConfig
from mtm.core.errors import ConfigError
from mtm.core.mask_mix import parse_mix
from mtm.data.modalities import ROLE_OF_NAME, Modality
from mtm.masks.capabilities import NAMED_MASKS, NamedMask

USUAL = TrainConfig()
"""Where nothing is said: how `mtm train` draws its masks."""


@dataclass(frozen=True)
class Arguments:
    """Draw a mask: what is visible, what is wanted back, what is hidden."""

    name: tyro.conf.Positional[str]
    """As in `mtm masks list`; NAME+NAME for several."""
    length: int = 4
    """T: time steps."""
    modalities: tuple[str, ...] = ("states", "returns", "actions")
    """Their order is the autoregressive order."""
    draws: int = 3
    """How many draws of a random mask to show."""
    seed: int = 0
    """Of the random draws."""


def main(words: Sequence[str]) -> None:
    """Print a grid of each named mask, and several draws of each random one."""
    arguments = tyro.cli(Arguments, args=list(words), prog="mtm masks show")
    if arguments.length < 1 or arguments.draws < 1:
        raise ConfigError("--length and --draws must be at least 1.")
    masks.make_mask(arguments.name)  # faults show before anything else
    drawn = {name: _grids(name, arguments) for name in parse_mix(arguments.name)}
    print("■ visible  ? wanted  · hidden")
    for name, grids in drawn.items():
        print(f"\n{name}: {masks.summary(name)}")
        if name not in NAMED_MASKS:
            print(
                f"Drawn as `mtm train` does by default: in {USUAL.whole_modalities:.0%} of the "
                "samples each modality is\nshown or hidden as a whole (--whole-modalities)."
            )
        for grid in grids:
            print(f"\n{grid}")


def _grids(name: str, arguments: Arguments) -> list[str]:
    modalities = [
        Modality(name, role=ROLE_OF_NAME.get(name, "state")) for name in arguments.modalities
    ]
    mask = masks.training_mask(replace(USUAL, mask=name))
    if isinstance(mask, NamedMask):
        try:
            question = mask.question(modalities, arguments.length)
        except ConfigError as error:
            raise ConfigError(f"{name}: {error}") from error
        return [masks.draw(question.visible, modalities, question.wanted)]
    rng = np.random.default_rng(arguments.seed)
    visible = mask(modalities, arguments.length, arguments.draws, rng)
    return [masks.draw(sample, modalities) for sample in visible]
