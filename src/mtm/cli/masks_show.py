"""`mtm masks show NAME`: draw a mask as a grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import tyro

from mtm import masks
from mtm.errors import ConfigError
from mtm.modalities import ROLE_OF_NAME, Modality


@dataclass(frozen=True)
class Arguments:
    """Draw a mask: what is visible, what is wanted back, what is hidden."""

    name: tyro.conf.Positional[str]
    """As in `mtm masks list`."""
    length: int = 4
    """T: time steps."""
    modalities: tuple[str, ...] = ("states", "returns", "actions")
    """Their order is the autoregressive order."""
    draws: int = 3
    """How many draws of a random mask to show."""
    seed: int = 0
    """Of the random draws."""


def main(words: Sequence[str]) -> None:
    """Print one grid, or several draws of a random mask."""
    arguments = tyro.cli(Arguments, args=list(words), prog="mtm masks show")
    if arguments.length < 1 or arguments.draws < 1:
        raise ConfigError("--length and --draws must be at least 1.")
    modalities = [
        Modality(name, role=ROLE_OF_NAME.get(name, "state")) for name in arguments.modalities
    ]
    mask = masks.make_mask(arguments.name)
    for part in arguments.name.split("+"):
        print(f"{part}: {masks.summary(part)}")
    print("■ visible  ? wanted  · hidden\n")
    if isinstance(mask, masks.NamedPattern):
        question = mask.question(modalities, arguments.length)
        print(masks.draw(question.visible, modalities, question.wanted))
        return
    rng = np.random.default_rng(arguments.seed)
    for visible in mask(modalities, arguments.length, arguments.draws, rng):
        print(masks.draw(visible, modalities) + "\n")
