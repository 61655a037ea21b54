"""D4RL's HDF5 layout, from a file or from D4RL's cache."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from mtm.datasets.layout import split_arrays
from mtm.errors import DataError
from mtm.scores import is_adroit
from mtm.trajectories import Metadata, TrajectoryDataset

NOT_MODALITIES = ("next_observations",)
"""Arrays of the layout that repeat another one."""


GOAL_ACHIEVED = "infos/goal_achieved"
"""Adroit's success of each step, which is what its rewards are here, as in the paper."""


def load_file(path: Path, *, nan_is_absent: bool = False) -> TrajectoryDataset:
    """Read a file of D4RL's layout: `observations, actions, rewards, terminals, timeouts`.

    Other arrays at the top level become modalities of their own name; groups (`infos`, `metadata`)
    are left alone, but Adroit's `infos/goal_achieved` replaces the dense rewards. The attributes
    `env_id` and `max_episode_steps` are taken if there.

    Raises:
        DataError: The file is damaged or not of this layout.
    """
    try:
        with h5py.File(path, "r") as file:
            arrays = {
                key: _read(path, key, item)
                for key, item in file.items()
                if isinstance(item, h5py.Dataset) and key not in NOT_MODALITIES
            }
            attributes = {key: _plain(value) for key, value in file.attrs.items()}
            if GOAL_ACHIEVED in file and is_adroit(attributes.get("env_id", path.stem)):
                arrays["rewards"] = _read(path, GOAL_ACHIEVED, file[GOAL_ACHIEVED])
    except OSError as error:
        raise DataError(
            f"{path} cannot be read as HDF5 ({error}); it is damaged or incomplete. Fetch it again."
        ) from error
    modalities, offsets = split_arrays(str(path), arrays)
    horizon = attributes.pop("max_episode_steps", None)
    env_id = attributes.pop("env_id", None)
    metadata = Metadata(
        source=path.name,
        env_id=None if env_id is None else str(env_id),
        horizon=None if horizon is None else int(horizon),
        notes={key: str(value) for key, value in attributes.items()},
    )
    try:
        return TrajectoryDataset.from_arrays(
            modalities, offsets, metadata=metadata, nan_is_absent=nan_is_absent
        )
    except DataError as error:
        raise DataError(f"{path}: {error}") from error


def load_named(name: str, *, nan_is_absent: bool = False) -> TrajectoryDataset:
    """Read a D4RL data set such as `hopper-medium-replay-v2` from D4RL's cache.

    Raises:
        DataError: The cache does not hold it; the message says where it should be.
    """
    task, _, version = name.rpartition("-")
    environment, _, kind = task.partition("-")
    names = (f"{environment}_{kind.replace('-', '_')}-{version}.hdf5", f"{name}.hdf5")
    folder = cache_folder()
    for file in names:
        if (folder / file).is_file():
            return load_file(folder / file, nan_is_absent=nan_is_absent)
    raise DataError(
        f"{folder} holds neither {names[0]} nor {names[1]}. Put the file there, or set "
        "D4RL_DATASET_DIR to the folder that has it."
    )


def cache_folder() -> Path:
    """Where D4RL keeps its files: `$D4RL_DATASET_DIR`, else `~/.d4rl/datasets`."""
    return Path(os.environ.get("D4RL_DATASET_DIR", "~/.d4rl/datasets")).expanduser()


def _read(path: Path, key: str, item: h5py.Dataset) -> NDArray[Any]:
    if item.dtype.kind not in "fiub" or item.ndim == 0:
        raise DataError(
            f"{path}: {key!r} holds {item.dtype} of shape {item.shape}; a row of numbers per "
            "step is needed."
        )
    values: NDArray[Any] = item[()]
    return values


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
