"""Acting by the current state alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mtm.data.modalities import BoolArray, Modality

Act: TypeAlias = Callable[[NDArray[Any]], NDArray[np.float32]]


class MemorylessPolicy:
    """A policy of `mtm.control.rollout` without memory.

    Args:
        act: States to actions, (n, *shape) each.
        states: What it takes.
        actions: What it gives.
    """

    def __init__(self, act: Act, states: Modality, actions: Modality) -> None:
        self.act, self.states, self.actions = act, states, actions

    def reset(self, n: int) -> None:
        """Begin n episodes."""

    def observe(self, rewards: NDArray[Any], dones: BoolArray) -> None:
        """What the last actions brought."""

    def keep(self, rows: NDArray[np.int64]) -> None:
        """Go on with these rows only."""
