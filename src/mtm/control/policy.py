"""What acts in a batch of environments.

policy.reset(n)                  begin n episodes
actions = policy.act(states)     (n, *shape) in and out
policy.observe(rewards, dones)   what came of it; rows that are done begin a new episode
policy.keep(rows)                go on with some of the rows only
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from mtm.data.modalities import BoolArray, Modality


class Policy(Protocol):
    """Anything that acts in a batch of environments."""

    def reset(self, n: int) -> None:
        """Begin n episodes."""

    def act(self, states: NDArray[Any]) -> NDArray[Any]:
        """One action per row, (n, *shape)."""

    def observe(self, rewards: NDArray[Any], dones: BoolArray) -> None:
        """What the last actions brought, (n,) each."""

    def keep(self, rows: NDArray[np.int64]) -> None:
        """Go on with these rows only."""


@runtime_checkable
class ModelPolicy(Policy, Protocol):
    """A policy that says what it takes and gives, so that an environment can be checked."""

    states: Modality
    actions: Modality
