"""Small data sets that come with the package.

Three are made on the spot, always the same; the point mass has known dynamics, so what a model
predicts can be compared with the truth. `hopper` is a recording of a real training in MuJoCo.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mtm.core.errors import DataError, unknown
from mtm.core.randomness import Purpose, generator
from mtm.core.reading import AS_IT_IS, Reading
from mtm.data.columns import regroup
from mtm.data.formats import d4rl
from mtm.data.formats.stations import readings
from mtm.data.trajectories import Metadata, TrajectoryDataset

TIME_STEP = 0.25
FRICTION = 1.2
EPISODES, LENGTH = 400, 50
WAVE_STEP = 0.1


def load(name: str, reading: Reading = AS_IT_IS) -> TrajectoryDataset:
    """The built-in data set of a name.

    Raises:
        DataError: There is none of that name.
    """
    if name not in NAMES:
        raise DataError(unknown("built-in data set", name, NAMES))
    return regroup(NAMES[name](), reading)


HOPPER_BEHAVIOUR = (
    "a Stable-Baselines3 SAC training: every fifth episode of its first 200,000 steps, all of its "
    "last 100,000"
)
"""How the bundled recording came about."""


def point_mass(episodes: int = EPISODES, length: int = LENGTH, seed: int = 0) -> TrajectoryDataset:
    """A mass on a plane, pushed towards the origin by controllers of varying skill.

    States are position and velocity, (4,); actions are forces in [-1, 1], (2,); the reward is high
    near the origin. Skill differs from episode to episode, so returns tell good ones from bad.
    """
    rng = generator(seed, Purpose.SYNTHETIC)
    skill = rng.uniform(0, 1, size=(episodes, 1))
    state = np.concatenate([rng.uniform(-1, 1, (episodes, 2)), np.zeros((episodes, 2))], axis=1)
    states, actions = [], []
    for _ in range(length):
        wish = -2.0 * state[:, :2] - 1.5 * state[:, 2:]
        action = np.clip(skill * wish + (1 - skill) * rng.normal(size=(episodes, 2)), -1, 1)
        states.append(state)
        actions.append(action)
        state = step_point_mass(state, action)
    all_states = np.stack(states, axis=1)  # (episodes, length, 4)
    rewards = np.exp(-(all_states[..., :2] ** 2).sum(axis=-1))
    return _equal_episodes(
        "builtin:point-mass",
        {"states": all_states, "actions": np.stack(actions, axis=1), "rewards": rewards},
    )


def step_point_mass(state: NDArray[np.float64], action: NDArray[np.float64]) -> NDArray[np.float64]:
    """The true dynamics: (..., 4) and (..., 2) to the next (..., 4)."""
    velocity = (1 - FRICTION * TIME_STEP) * state[..., 2:] + TIME_STEP * action
    return np.concatenate([state[..., :2] + TIME_STEP * velocity, velocity], axis=-1)


def sinusoids(episodes: int = EPISODES, length: int = LENGTH, seed: int = 0) -> TrajectoryDataset:
    """Two waves per episode, and `phase`, the quarter of the first: a discrete modality."""
    rng = generator(seed, Purpose.SYNTHETIC)
    time = np.arange(length) * WAVE_STEP
    frequency = rng.uniform(0.5, 2.0, size=(episodes, 2, 1))
    angle = frequency * time + rng.uniform(0, 2 * np.pi, size=(episodes, 2, 1))
    waves = np.sin(angle).swapaxes(1, 2)  # (episodes, length, 2)
    quarter = (angle[:, 0] // (np.pi / 2)).astype(np.int64) % 4
    return _equal_episodes("builtin:sinusoids", {"waves": waves, "phase": quarter})


def stations() -> TrajectoryDataset:
    """Ten days of three weather stations, 120 times: a multivariate series without actions."""
    return _equal_episodes("builtin:stations", {"readings": readings()})


def hopper() -> TrajectoryDataset:
    """140,000 steps of Hopper-v5 from the training of a SAC agent, from its first steps on.

    See docs/guides/own-data.md for how it was made and what to expect from it.
    """
    data = d4rl.load_file(Path(__file__).with_name("hopper.hdf5"))
    # The file's own words are of the whole recording, of which it holds a part.
    notes = data.metadata.notes | {"behaviour": HOPPER_BEHAVIOUR}
    return data.with_metadata(source="builtin:hopper", notes=notes)


NAMES: dict[str, Callable[[], TrajectoryDataset]] = {
    "hopper": hopper,
    "point-mass": point_mass,
    "sinusoids": sinusoids,
    "stations": stations,
}


def _equal_episodes(source: str, arrays: dict[str, NDArray[np.generic]]) -> TrajectoryDataset:
    """A data set from arrays of (episodes, length, *shape)."""
    episodes, length = next(iter(arrays.values())).shape[:2]
    return TrajectoryDataset.from_arrays(
        {name: a.reshape(episodes * length, *a.shape[2:]) for name, a in arrays.items()},
        np.arange(episodes + 1) * length,
        metadata=Metadata(source=source, horizon=length),
    )
