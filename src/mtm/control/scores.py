"""Normalised scores: 0 is a random policy's return, 100 an expert's.

A score means something only on the environment that the data were recorded on
(`mtm.data.environment_ids`): a later version may have other physics.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mtm.data.environment_ids import family, is_adroit


class Reference(NamedTuple):
    """The returns that score 0 and 100."""

    low: float
    high: float


REFERENCES: dict[str, Reference] = {
    "hopper": Reference(-20.272305, 3234.3),
    "walker2d": Reference(1.629008, 4592.3),
    "halfcheetah": Reference(-280.178953, 12135.0),
    "ant": Reference(-325.6, 3879.7),
    "pen": Reference(96.262799, 3076.8331017826877),
    "door": Reference(-56.512833, 2880.5693087298737),
    "hammer": Reference(-274.856578, 12794.134825156867),
    "relocate": Reference(-6.425911, 4233.877797728884),
}
"""D4RL's reference returns by family. Adroit's are sums of the dense reward."""


def normalized_score(env_id: str | None, returns: ArrayLike) -> NDArray[np.float64] | None:
    """D4RL's normalised score, `100 * (return - low) / (high - low)`.

    Args:
        env_id: The environment.
        returns: Sums of rewards, of any shape; for Adroit of the dense rewards.

    Returns:
        Scores of the same shape, or None where no reference exists.
    """
    key = family(env_id)
    if key is None:
        return None
    low, high = REFERENCES[key]
    return np.asarray(100 * (np.asarray(returns, np.float64) - low) / (high - low))


def score(env_id: str | None, returns: ArrayLike) -> NDArray[np.float64] | None:
    """What an environment is scored by: normalised, or for Adroit the steps with the goal achieved.

    Args:
        env_id: The environment.
        returns: Sums of the rewards that `mtm.control.environments.make` gives.

    Returns:
        Scores of the same shape, or None where no reference exists.
    """
    if is_adroit(env_id):  # the reward is success, so the return counts the steps with it
        return np.asarray(returns, np.float64)
    return normalized_score(env_id, returns)
