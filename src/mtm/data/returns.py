"""Return-to-go: what is still to come, as a sum or as an average per remaining step.

    sum      R_t = r_t + discount * R_{t+1}
    average  R_t / (horizon - t)

The average keeps its scale along an episode, so one constant target fits every step of acting; and
because it divides by the steps that *could* remain, an episode that ended early counts as low.
"""

from __future__ import annotations

import tempfile

import numpy as np
from numpy.typing import NDArray

from mtm.core.config import ReturnsConfig
from mtm.core.errors import DataError
from mtm.data.modalities import BoolArray, IntArray, Modality
from mtm.data.trajectories import TrajectoryDataset
from mtm.data.validate_arrays import CHUNK_STEPS

MOST_IN_MEMORY = 1 << 26
"""Returns that are kept in memory; more go to a temporary file."""

RETURNS = Modality("returns", (), "continuous", 0, "return")


def return_to_go(
    rewards: NDArray[np.float32],
    starts: IntArray,
    ends: IntArray,
    *,
    discount: float = 1.0,
    horizon: int | None = None,
) -> NDArray[np.float32]:
    """The return-to-go of every step of the listed episodes; zero elsewhere.

    Args:
        rewards: One per step, (N,).
        starts: First step of each episode, (E,).
        ends: One past the last step of each episode, (E,).
        discount: Factor per step.
        horizon: If given, average over the `horizon - t` steps that could remain.
    """
    result = _room(len(rewards))
    group = np.cumsum(ends - starts) // CHUNK_STEPS
    for edge in np.split(np.arange(len(starts)), np.flatnonzero(np.diff(group)) + 1):
        _fill(result, rewards, starts[edge], ends[edge], discount, horizon)
    return result


def _fill(
    result: NDArray[np.float32],
    rewards: NDArray[np.float32],
    starts: IntArray,
    ends: IntArray,
    discount: float,
    horizon: int | None,
) -> None:
    """Backwards in time, some episodes at once: at time t the first `alive` ones have a step."""
    lengths = ends - starts
    longest_first = np.argsort(-lengths, kind="stable")
    starts, lengths = starts[longest_first], lengths[longest_first]
    running = np.zeros(len(starts), np.float64)
    for t in range(int(lengths[0]) - 1, -1, -1):
        alive = int(np.searchsorted(-lengths, -t, side="left"))
        steps = starts[:alive] + t
        running[:alive] = rewards[steps] + discount * running[:alive]
        result[steps] = running[:alive] if horizon is None else running[:alive] / (horizon - t)


def _room(steps: int) -> NDArray[np.float32]:
    """Zeros; for very many steps in a file that goes with them, so that memory stays bounded."""
    if steps <= MOST_IN_MEMORY:
        return np.zeros(steps, np.float32)
    with tempfile.TemporaryFile(prefix="mtm-returns-") as file:
        return np.asarray(np.memmap(file, np.float32, "w+", shape=(steps,)))


def reward_of(dataset: TrajectoryDataset) -> Modality:
    """The modality that is the reward: the one of role `reward`, whatever its name.

    Raises:
        DataError: There is none, there are several, or it has several numbers per step.
    """
    found = dataset.modalities.of_role("reward")
    if len(found) == 1 and found[0].size == 1:
        return found[0]
    have = ", ".join(f"{m.name}{list(m.shape)} ({m.role})" for m in dataset.modalities)
    raise DataError(
        "a reward is the one modality of role 'reward', with one number per step; the data have "
        f"{have}. Say which it is with reading.roles and reading.columns."
    )


def add_returns(dataset: TrajectoryDataset, config: ReturnsConfig) -> TrajectoryDataset:
    """Add the modality `returns`, made of the rewards, unless the data bring their own.

    A return is present where every reward from that step on is.

    Raises:
        DataError: As `reward_of`, or an episode is longer than the horizon.
    """
    if RETURNS.name in dataset.names:
        return dataset
    try:
        name = reward_of(dataset).name
    except DataError as error:
        raise DataError(
            f"returns are made of rewards: {error} Or choose modalities without returns."
        ) from error
    dataset.check_stored()
    rewards = dataset.arrays[name].reshape(-1)
    horizon = horizon_of(dataset, config) if config.kind == "average" else None
    absent = None
    if name in dataset.present:
        known = dataset.present[name]
        rewards = np.where(known, rewards, np.float32(0))
        absent = return_to_go((~known).astype(np.float32), dataset.starts, dataset.ends)
    returns = return_to_go(
        rewards, dataset.starts, dataset.ends, discount=config.discount, horizon=horizon
    )
    present: BoolArray | None = None if absent is None else absent == 0
    return dataset.with_modality(RETURNS, returns, present)


def episode_returns(dataset: TrajectoryDataset) -> NDArray[np.float64]:
    """The sum of rewards of each episode, (E,); NaN where one of them is absent.

    Raises:
        DataError: As `reward_of`.
    """
    name = reward_of(dataset).name
    dataset.check_stored()
    rewards = dataset.arrays[name].reshape(-1)
    if name in dataset.present:
        rewards = np.where(dataset.present[name], rewards, 0)
    until = np.append(0.0, np.cumsum(rewards, dtype=np.float64))
    whole = dataset.present_steps(name) == dataset.lengths
    returns: NDArray[np.float64] = np.where(
        whole, until[dataset.ends] - until[dataset.starts], np.nan
    )
    return returns


def horizon_of(dataset: TrajectoryDataset, config: ReturnsConfig) -> int:
    """The horizon of the average: configured, else the environment's, else the longest episode.

    Raises:
        DataError: An episode is longer than that.
    """
    longest = int(dataset.lengths.max())
    horizon = config.horizon or dataset.metadata.horizon or longest
    if longest > horizon:
        episode = int(dataset.lengths.argmax())
        raise DataError(
            f"episode {episode} has {longest} steps, the horizon of the returns is {horizon}. Set "
            f"returns.horizon to at least {longest}, or returns.kind to 'sum'."
        )
    return horizon
