"""Whether Adroit's goal is achieved, from observations: D4RL's own files do not say it.

The conditions are those of gymnasium-robotics, in terms of what each task shows of itself. As in
the environment, a step succeeds if the state that it leads to does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mtm.data.modalities import BoolArray


def _door(observations: NDArray[Any]) -> BoolArray:
    open_by: NDArray[Any] = observations[:, 28]
    return open_by >= 1.35


def _hammer(observations: NDArray[Any]) -> BoolArray:
    depth: NDArray[Any] = observations[:, 26]
    return np.abs(0.091 - depth) < 0.01


def _pen(observations: NDArray[Any]) -> BoolArray:
    distance = np.linalg.norm(observations[:, 39:42], axis=1)
    similarity = (observations[:, 33:36] * observations[:, 36:39]).sum(axis=1)
    close: BoolArray = (distance < 0.075) & (similarity > 0.95)
    return close


def _relocate(observations: NDArray[Any]) -> BoolArray:
    distance: NDArray[Any] = np.linalg.norm(observations[:, 36:39], axis=1)
    return distance < 0.1


SUCCESS: dict[str, tuple[int, Callable[[NDArray[Any]], BoolArray]]] = {
    "door": (39, _door),
    "hammer": (46, _hammer),
    "pen": (45, _pen),
    "relocate": (39, _relocate),
}
"""For each task the width of its observations, and the condition."""


def achieved(task: str, observations: NDArray[Any], ends: BoolArray) -> NDArray[np.float32] | None:
    """1 for each step that leads to success, else 0; None for a task or width that is not Adroit's.

    Args:
        task: `door`, `hammer`, `pen` or `relocate`.
        observations: Before each step, (N, width).
        ends: Whether a step is the last of its episode, (N,). What it led to was not recorded, so
            it counts as the state before it.
    """
    width, condition = SUCCESS.get(task, (0, _door))
    if observations.shape[1:] != (width,):
        return None
    now = condition(np.asarray(observations))
    after = np.append(now[1:], now[-1:])
    return np.where(ends, now, after).astype(np.float32)
