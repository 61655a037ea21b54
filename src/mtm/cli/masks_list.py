"""`mtm masks list`: the masks, a line each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import tyro

from mtm import masks


@dataclass(frozen=True)
class Arguments:
    """List the masks. Random ones are for training, the others are also capabilities."""


def main(words: Sequence[str]) -> None:
    """Print name and summary."""
    tyro.cli(Arguments, args=list(words), prog="mtm masks list")
    wide = max(map(len, masks.NAMES))
    for name in masks.NAMES:
        print(f"{name:<{wide}}  {masks.summary(name)}")
