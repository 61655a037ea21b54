"""The rewards of dm_control's walker (stand, walk, run), from states of its physics.

A state is 9 positions and 9 velocities: height, distance and pitch of the torso, then hip, knee and
ankle of the right and of the left leg. The walker is planar, so each of its rewards has a closed
form, which is computed for any number of states at once and needs no simulator.

The horizontal velocity is that of the centre of mass. Seen from the torso, the centre is the sum of
one arm per link, which turns with the link:

    x = distance + sum over links of  across * cos(angle) + along * sin(angle)

where `along` (the link's own z) and `across` (its x) are lengths weighted by the share of the mass
that the arm carries. Its derivative is the velocity.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mtm.core.errors import DataError, unknown

STATE_SIZE = 18

FORMULA = 1
"""Counts changes of the rewards, so that those kept in files are made again after one."""

SPEEDS = {"stand": 0.0, "walk": 1.0, "run": 8.0}
"""Horizontal velocity that each task asks for, in metres per second; standing asks for none."""

STAND_HEIGHT = 1.2
TORSO_HEIGHT = 1.3
"""Height of the torso where its position is 0."""

JOINTS = ((2,), (2, 3), (2, 3, 4), (2, 3, 4, 5), (2, 6), (2, 6, 7), (2, 6, 7, 8))
"""For each link (torso; thigh, shin, foot right; the same left) the joints that turn it."""


def rewards(task: str, physics: ArrayLike) -> NDArray[np.float64]:
    """The reward that a task of the walker gives for being in each state.

    Args:
        task: `stand`, `walk` or `run`.
        physics: States, (N, 18). The reward of a step is that of the state after it.

    Returns:
        One reward per state, (N,), from 0 to 1.

    Raises:
        DataError: There is no such task, or these are not states of the walker.
    """
    if task not in SPEEDS:
        raise DataError(unknown("task of the walker", task, SPEEDS))
    given = np.asarray(physics)
    if given.ndim != 2 or given.shape[1] != STATE_SIZE or given.dtype.kind not in "fiu":
        raise DataError(
            f"rewards are computed for the walker only, whose physics has {STATE_SIZE} numbers per "
            f"step; this is {given.dtype} of shape {given.shape}."
        )
    states = given.astype(np.float64)
    # What is not finite gives NaN; who takes these rewards says where.
    with np.errstate(over="ignore", invalid="ignore"):
        stand = _standing(states)
        if task == "stand":
            return stand
        # Linear below the wanted velocity: 0.5 at half of it, 0 at none.
        moving = np.clip(horizontal_velocity(states) / SPEEDS[task], 0, 1)
        return stand * (5 * moving + 1) / 6


def horizontal_velocity(states: NDArray[np.float64]) -> NDArray[np.float64]:
    """Velocity of the centre of mass along the floor, (N, 18) -> (N,)."""
    velocity: NDArray[np.float64] = states[:, 10].copy()
    for joints, (across, along) in zip(JOINTS, _arms(), strict=True):
        angle, turning = np.zeros(len(states)), np.zeros(len(states))
        for joint in joints:
            sign = 1 if joint == 2 else -1  # the legs' joints turn against the torso's
            angle += sign * states[:, joint]
            turning += sign * states[:, 9 + joint]
        velocity += turning * (along * np.cos(angle) - across * np.sin(angle))
    return velocity


def _standing(states: NDArray[np.float64]) -> NDArray[np.float64]:
    """How well the walker stands, (N, 18) -> (N,)."""
    height = TORSO_HEIGHT + states[:, 0]
    # A Gaussian below the wanted height, 0.1 at half of it.
    lack = np.clip(STAND_HEIGHT - height, 0, None) / (STAND_HEIGHT / 2)
    upright = (1 + np.cos(states[:, 2])) / 2
    standing: NDArray[np.float64] = (3 * 0.1 ** (lack**2) + upright) / 4
    return standing


def _arms() -> list[tuple[float, float]]:
    """For each link, what it adds to the centre of mass: (across, along).

    Every part is a capsule. A thigh hangs from the torso's end, 0.3 down, a shin from the thigh's,
    0.45 down, a foot from the shin's, 0.5 down; a foot's middle is 0.06 before the ankle.
    """
    torso, thigh, shin, foot = (
        _capsule(0.07, 0.6),
        _capsule(0.05, 0.45),
        _capsule(0.04, 0.5),
        _capsule(0.05, 0.2),
    )
    leg = thigh + shin + foot
    total = torso + 2 * leg
    legs = [
        (0.0, -(0.225 * thigh + 0.45 * (shin + foot)) / total),
        (0.0, -(0.25 * shin + 0.5 * foot) / total),
        (0.06 * foot / total, 0.0),
    ]
    return [(0.0, -0.3 * 2 * leg / total), *legs, *legs]


def _capsule(radius: float, length: float) -> float:
    """Volume of a capsule; all parts have the same density."""
    return math.pi * radius**2 * (length + 4 / 3 * radius)
