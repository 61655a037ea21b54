"""Mixes of masks as text: `NAME`, `NAME+NAME`, `NAME:WEIGHT+NAME:WEIGHT`.

    random-autoregressive+id                                half of the samples each
    random-autoregressive:0.7+fd:0.1+id:0.1+rcbc:0.1        shares of the samples, of any sum

This module imports neither torch nor numpy: settings are checked with it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from mtm.core.errors import unknown


def parse_mix(text: str) -> dict[str, float]:
    """Mask -> weight, in order; a mask without a weight has 1.

    Raises:
        ValueError: A weight is not a number, or a mask is named twice.
    """
    weights: dict[str, float] = {}
    for part in text.split("+"):
        name, colon, weight = part.partition(":")
        if name in weights:
            raise ValueError(f"mask {text!r} names {name!r} twice; give it one weight")
        weights[name] = _weight(part, weight) if colon else 1.0
    return weights


def mix_text(weights: Mapping[str, float]) -> str:
    """The text of a mix that is given as a dict, mask -> weight."""
    return "+".join(f"{name}:{weight}" for name, weight in weights.items())


def mix_faults(text: str, known: Collection[str]) -> list[str]:
    """Everything that is wrong with the text of a mix."""
    try:
        weights = parse_mix(text)
    except ValueError as error:
        return [str(error)]
    faults = [unknown("mask", name, known) for name in weights if name not in known]
    if not faults and not any(weights.values()):
        faults.append(f"mask {text!r}: at least one weight must be above 0")
    if len({":" in part for part in text.split("+")}) > 1:
        faults.append(f"mask {text!r}: give every mask a weight (NAME:WEIGHT), or none of them")
    return faults


def _weight(part: str, text: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        weight = -1.0
    if not 0 <= weight < math.inf:
        raise ValueError(
            f"mask {part!r}: the weight must be a number of at least 0, got {text!r}; write "
            "NAME:WEIGHT, as in random-autoregressive:0.7+fd:0.3"
        )
    return weight
