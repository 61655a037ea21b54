"""`mtm masks list`: the masks, a line each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import tyro

from mtm.masks import patterns


@dataclass(frozen=True)
class Arguments:
    """List the masks. Random ones are for training, the others are also capabilities."""


def main(words: Sequence[str]) -> None:
    """Print name and summary."""
    tyro.cli(Arguments, args=list(words), prog="mtm masks list")
    wide = max(map(len, patterns.NAMES))
    for name in patterns.NAMES:
        print(f"{name:<{wide}}  {patterns.summary(name)}")
