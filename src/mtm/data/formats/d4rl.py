"""D4RL's HDF5 layout, from a file or by the name of one of D4RL's data sets."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from mtm.core.errors import DataError, unknown
from mtm.core.reading import AS_IT_IS, Reading
from mtm.data.columns import END_FLAGS, PRESENT, as_horizon, columns_to_read, dataset_of
from mtm.data.download import fetch
from mtm.data.environment_ids import family, is_adroit
from mtm.data.episode_bounds import as_flags
from mtm.data.formats import hdf5
from mtm.data.formats.adroit_success import achieved
from mtm.data.formats.d4rl_catalog import CATALOG, MIRRORS_VARIABLE, entry_of_file, file_names
from mtm.data.memory_limits import Allowance
from mtm.data.trajectories import Metadata, TrajectoryDataset

NOT_MODALITIES = ("next_observations",)
"""Arrays of the layout that repeat another one."""


GOAL_ACHIEVED = "infos/goal_achieved"
"""Adroit's success of each step, which is what its rewards are here, as in the paper."""

_NAME = re.compile(r"[\w-]{1,100}")
"""What can be the name of a data set in the cache, and is no path."""


def load_file(path: Path, reading: Reading = AS_IT_IS) -> TrajectoryDataset:
    """Read a file of D4RL's layout: `observations, actions, rewards, terminals, timeouts`.

    Other arrays at the top level become modalities of their own name; groups (`infos`, `metadata`)
    are left alone, but Adroit's `infos/goal_achieved` replaces the dense rewards; where it is
    missing, as in D4RL's own files, success is computed from the observations. The attributes
    `env_id` and `max_episode_steps` are taken if there; D4RL's own files, known by their names,
    have neither, and get those of the environment that they belong to.

    Raises:
        DataError: The file is damaged or not of this layout.
    """
    with hdf5.opened(path) as file:
        left = Allowance(path)
        wanted = _wanted(path, file, reading)
        arrays = {key: hdf5.read_array(path, key, file[key], left) for key in wanted}
        attributes = hdf5.read_attributes(file, left)
        env_id = attributes.pop("env_id", None)
        if GOAL_ACHIEVED in file and is_adroit(str(env_id or path.stem)):
            success = file[GOAL_ACHIEVED]
            arrays["rewards"] = hdf5.read_array(path, GOAL_ACHIEVED, success, left)
        elif is_adroit(str(env_id or path.stem)):
            arrays |= _success(path, family(str(env_id or path.stem)) or "", arrays)
    horizon = as_horizon(path, attributes.pop("max_episode_steps", None))
    metadata = Metadata(
        source=path.name,
        env_id=None if env_id is None else str(env_id),
        horizon=horizon,
        notes={key: str(value) for key, value in attributes.items()},
    )
    return _with_environment(dataset_of(str(path), arrays, reading, metadata), path.stem)


def load_named(name: str, reading: Reading = AS_IT_IS) -> TrajectoryDataset:
    """Read a D4RL data set such as `hopper-medium-replay-v2`; download it if it is not there.

    `cache_folder()` is looked into first: a file there is taken, whether it can be downloaded or
    not. What can be is listed in `mtm.data.formats.d4rl_catalog`.

    Raises:
        DataError: There is none of that name, it cannot be downloaded, or it is damaged.
    """
    path = _cached(name) or _download(name)
    try:
        return load_file(path, reading)
    except DataError as error:
        entry, size = CATALOG.get(name), path.stat().st_size
        if entry is None or size == entry.size:
            raise
        raise DataError(
            f"{error} The file has {size:,} bytes, D4RL's has {entry.size:,}. If it should be "
            "D4RL's, delete it, and it is downloaded."
        ) from error


def cache_folder() -> Path:
    """Where D4RL keeps its files: `$D4RL_DATASET_DIR`, else `~/.d4rl/datasets`."""
    return Path(os.environ.get("D4RL_DATASET_DIR", "~/.d4rl/datasets")).expanduser()


def _cached(name: str) -> Path | None:
    """D4RL's file of that name, if it is there."""
    if not _NAME.fullmatch(name):
        return None
    paths = [cache_folder() / file for file in file_names(name)]
    return next((path for path in paths if path.is_file()), None)


def _download(name: str) -> Path:
    if name not in CATALOG:
        raise DataError(unknown("D4RL data set", name, CATALOG))
    entry = CATALOG[name]
    path = cache_folder() / entry.file_name
    try:
        return fetch(path, entry.urls(), size=entry.size, sha256=entry.sha256)
    except DataError as error:
        raise DataError(
            f"{error} Or set D4RL_DATASET_DIR to a folder that has it, or {MIRRORS_VARIABLE} to "
            "base URLs (separated by commas) that do."
        ) from error


def _with_environment(dataset: TrajectoryDataset, stem: str) -> TrajectoryDataset:
    """Add what D4RL's own files do not state: the environment and its horizon."""
    entry = entry_of_file(stem)
    if entry is None or dataset.metadata.env_id is not None:
        return dataset
    # Adroit's human demonstrations go on for longer than its environments do.
    longest = int(dataset.lengths.max(initial=entry.horizon))
    return dataset.with_metadata(env_id=entry.env_id, horizon=dataset.metadata.horizon or longest)


def _success(path: Path, task: str, arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Rewards of an Adroit file, if they can be told from what was read of it."""
    flags = [as_flags(path, key, arrays[key]) for key in END_FLAGS if key in arrays]
    observations = arrays.get("observations")
    if observations is None or not flags or len({*map(len, flags), len(observations)}) > 1:
        return {}
    rewards = achieved(task, observations, np.logical_or.reduce(flags))
    return {} if rewards is None else {"rewards": rewards}


def _wanted(path: Path, file: h5py.File, reading: Reading) -> list[str]:
    """The arrays to read: those that the user names, in groups too, else all at the top level."""
    top = [key for key, item in file.items() if isinstance(item, h5py.Dataset)]
    asked = [column for columns in reading.columns_of().values() for column in columns]
    named = [key for column in asked for key in (column, column + PRESENT)]
    found = [key for key in named if isinstance(file.get(key), h5py.Dataset)]
    return columns_to_read(str(path), dict.fromkeys([*top, *found]), reading, NOT_MODALITIES)
