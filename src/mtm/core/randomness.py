"""Random numbers as a pure function of (seed, purpose, step).

Nothing draws from a global generator, and nothing keeps a generator between steps: the batch and
the masks of step k can be made again from the seed alone, so resuming is exact for free.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np


class Purpose(IntEnum):
    """What the numbers are for; each purpose has a stream of its own. Never renumber."""

    SEGMENTS = 0
    MASKS = 1
    VALIDATION = 2
    DROPOUT = 3
    SPLIT = 4
    SYNTHETIC = 5
    DROP = 6
    GAPS = 7
    RELABEL = 8
    PLANNING = 9
    BEAM_SEARCH = 10


def generator(seed: int, purpose: Purpose, step: int = 0) -> np.random.Generator:
    """The generator of one purpose at one step."""
    return np.random.default_rng([seed, int(purpose), step])
