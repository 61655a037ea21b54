"""Minari's data sets, from its local store.

Observations and actions become one modality each, `states` and `actions`, by these rules:

- a `Box` keeps its shape, and so does a `MultiBinary`;
- a lone `Discrete` is a discrete modality of n classes, counted from 0;
- a `Dict` or a `Tuple` becomes a row of numbers: its parts one after the other, those of a `Dict`
  in the order of their sorted keys, those of a `Tuple` by position, and so on inwards. In it a
  `Box` or a `MultiBinary` is ravelled, and a `Discrete` is one-hot, n numbers.

Other spaces are refused. An episode of T steps has T + 1 observations; the last one is left out.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mtm.core.errors import DataError, require
from mtm.core.reading import AS_IT_IS, Reading
from mtm.data.columns import regroup
from mtm.data.environment_ids import is_adroit
from mtm.data.formats import hdf5
from mtm.data.modalities import ROLE_OF_NAME, Modality
from mtm.data.trajectories import Metadata, TrajectoryDataset

if TYPE_CHECKING:
    from gymnasium import Space

EXTRA = "minari"

NOTES = ("minari_version", "algorithm_name", "description", "author", "code_permalink")
"""What is kept of that which a data set says of itself."""

SUCCESS = ("success", "goal_achieved")
"""Infos of Adroit that say the success of a step, which is what its rewards are here."""


def load_named(name: str, reading: Reading = AS_IT_IS) -> TrajectoryDataset:
    """Read a data set such as `mujoco/hopper/medium-v0`; nothing is downloaded.

    Rewards are those stored, but for Adroit the success of a step if the infos have it.

    Raises:
        DataError: It is not in the local store (the message says how to get it), is damaged, or has
            spaces that no modality can hold.
        MissingExtraError: Minari is not installed.
    """
    source, stored = _read(require("minari", extra=EXTRA), name)
    env_id = None if source.env_spec is None else source.env_spec.id
    try:
        spaces = {"states": source.observation_space, "actions": source.action_space}
        modalities = [_modality(key, space) for key, space in spaces.items()]
        dataset = TrajectoryDataset.from_episodes(
            [_episode(source, i, episode, is_adroit(env_id)) for i, episode in enumerate(stored)],
            modalities=[*modalities, Modality("rewards", role="reward")],
            metadata=Metadata(
                source=f"minari:{name}",
                env_id=env_id,
                horizon=None if source.env_spec is None else source.env_spec.max_episode_steps,
                notes=_notes(source),
            ),
            nan_is_absent=reading.nan_is_absent,
            terminated=[bool(np.any(episode.terminations[-1:])) for episode in stored],
        )
        return regroup(dataset, reading)
    except DataError as error:
        raise error.at(f"minari:{name}") from error


def store() -> Path:
    """Where Minari keeps its data: `$MINARI_DATASETS_PATH`, else `~/.minari/datasets`."""
    return Path(os.environ.get("MINARI_DATASETS_PATH", "~/.minari/datasets")).expanduser()


def _read(minari: ModuleType, name: str) -> tuple[Any, list[Any]]:
    """Minari's data set and its episodes."""
    try:
        for file in (store() / name / "data").glob("*.hdf5"):
            hdf5.check_file(file)
        source = minari.load_dataset(name, download=False)
        return source, list(source.iterate_episodes())
    except FileNotFoundError as error:
        raise DataError(
            f"{store()} holds no Minari data set {name!r}. It is not downloaded without your word; "
            f"run: minari download {name}, or set MINARI_DATASETS_PATH to the folder that has it."
        ) from error
    except Exception as error:  # of Minari or what it reads with, asserts among them
        raise DataError(
            f"minari:{name} cannot be read ({type(error).__name__}: {error}). If it is damaged, "
            f"delete it and fetch it again: minari delete {name}; minari download {name}"
        ) from error


def _notes(source: Any) -> dict[str, str]:
    said = source.storage.metadata
    return {key: said[key] for key in NOTES if isinstance(said.get(key), str)}


def _episode(source: Any, index: int, episode: Any, adroit: bool) -> dict[str, NDArray[Any]]:
    steps = len(episode.rewards)
    try:
        arrays = {
            "states": _values(source.observation_space, episode.observations),
            "actions": _values(source.action_space, episode.actions),
            "rewards": np.asarray(episode.rewards),
        }
    except (LookupError, TypeError) as error:
        raise DataError(f"episode {index} does not fit its spaces ({error!r}).") from error
    if len(arrays["states"]) != steps + 1:
        raise DataError(
            f"episode {index} has {steps} rewards and {len(arrays['states'])} observations; one "
            "more observation than rewards is needed."
        )
    arrays["states"] = arrays["states"][:-1]
    if adroit:
        found = [episode.infos[key] for key in SUCCESS if key in (episode.infos or {})]
        if found:  # a row per step, and one before them for the reset
            arrays["rewards"] = np.asarray(found[0])[-steps:]
    return arrays


def _modality(name: str, space: Space[Any]) -> Modality:
    from gymnasium import spaces

    role = ROLE_OF_NAME.get(name, "state")
    if isinstance(space, spaces.Discrete):
        return Modality(name, (), "discrete", int(space.n), role)
    if isinstance(space, spaces.Box | spaces.MultiBinary):
        return Modality(name, space.shape, role=role)
    return Modality(name, (_width(space),), role=role)


def _width(space: Space[Any]) -> int:
    """How many numbers a value of the space becomes."""
    from gymnasium import spaces

    if isinstance(space, spaces.Dict | spaces.Tuple):
        return sum(_width(part) for _, part in _parts(space))
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    if isinstance(space, spaces.Box | spaces.MultiBinary):
        return int(np.prod(space.shape, dtype=np.int64))
    raise DataError(
        f"a space of the kind {type(space).__name__} cannot be read ({space}); allowed are Box, "
        "Discrete, MultiBinary, and Dict and Tuple of these."
    )


def _parts(space: Any) -> list[tuple[Any, Space[Any]]]:
    """Key or position, and space, of each part of a `Dict` or a `Tuple`."""
    from gymnasium import spaces

    if isinstance(space, spaces.Dict):
        return sorted(space.spaces.items())
    return list(enumerate(space.spaces))


def _values(space: Space[Any], values: Any) -> NDArray[Any]:
    """What Minari read, as the modality of the space holds it: (rows, *shape)."""
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete):
        classes: NDArray[Any] = np.asarray(values) - space.start
        return classes
    if isinstance(space, spaces.Dict | spaces.Tuple):
        return _flat(space, values)
    return np.asarray(values)


def _flat(space: Space[Any], values: Any) -> NDArray[Any]:
    """A row of numbers per step, (rows, width)."""
    from gymnasium import spaces

    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts = [_flat(part, values[key]) for key, part in _parts(space)]
        if len({len(part) for part in parts}) != 1:
            raise DataError(f"the parts of {space} have lengths {[len(part) for part in parts]}.")
        return np.concatenate(parts, axis=1)
    if isinstance(space, spaces.Discrete):
        classes: NDArray[np.int64] = np.asarray(values) - space.start
        if ((classes < 0) | (classes >= space.n)).any():
            raise DataError(f"a value of {space} is outside of it.")
        one_hot: NDArray[np.float32] = np.eye(int(space.n), dtype=np.float32)[classes]
        return one_hot
    return np.asarray(values).reshape(len(values), -1)
