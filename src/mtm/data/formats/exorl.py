"""ExORL's exploration data: a directory with an `.npz` per episode.

Each file has one row per observation, the first included: `action[i]` led to `observation[i]`, and
`reward[i]` and `physics[i]` came with it. So a step here is `observation[i - 1]`, `action[i]`,
`reward[i]`. An episode whose last `discount` is 0 ended in a terminal state.

The data were recorded without a task in mind. `task` gives the walker's data the rewards of a task,
computed from the stored physics. They are kept in a file next to the data, so that the physics,
most of the bytes, need not be read again.
"""

from __future__ import annotations

import io
import logging
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mtm.core.atomic_write import write_atomically
from mtm.core.errors import DataError, RunError, unknown
from mtm.core.progress import episode_progress
from mtm.core.reading import AS_IT_IS, Reading
from mtm.data.columns import regroup
from mtm.data.environment_ids import SUITE_STEPS
from mtm.data.formats import walker_rewards
from mtm.data.formats.npz import read_members
from mtm.data.trajectories import Metadata, TrajectoryDataset

KEYS = ("observation", "action", "reward", "discount")
"""What the file of an episode holds; `physics` besides, where the simulator tells it."""

TASKS = tuple(walker_rewards.SPEEDS)

Episode = dict[str, NDArray[Any]]


def load_named(name: str, reading: Reading = AS_IT_IS) -> TrajectoryDataset:
    """Read `PATH`, or `TASK:PATH` to have the rewards of a task of the walker.

    Raises:
        DataError: As `load_directory`.
    """
    task, path = task_and_path(name)
    folder = Path(path).expanduser()
    said, colon, _ = path.partition(":")
    if task is None and colon and not folder.is_dir():
        raise DataError(unknown("task of ExORL's walker", said, TASKS))
    return load_directory(folder, reading, task=task)


def task_and_path(name: str) -> tuple[str | None, str]:
    """The parts of `TASK:PATH`; no task for a mere `PATH`."""
    task, colon, path = name.partition(":")
    return (task, path) if colon and task in TASKS else (None, name)


def is_exorl(path: Path) -> bool:
    """Whether a directory holds ExORL's episodes; looks at the names in one file only."""
    for file in _files(path)[:1]:
        try:
            with zipfile.ZipFile(file) as stored:
                return {f"{key}.npy" for key in KEYS} <= set(stored.namelist())
        except Exception:  # whatever is wrong with the file, reading it will say it
            return False
    return False


def load_directory(
    path: Path, reading: Reading = AS_IT_IS, *, task: str | None = None
) -> TrajectoryDataset:
    """Read all episodes of a directory, in the order of the files' names.

    Args:
        path: The directory.
        reading: Names, roles and gaps, where they are the user's own.
        task: `stand`, `walk` or `run`: the walker's rewards are those of this task, and the
            environment is `dmc:walker-TASK`. None: the rewards are those stored.

    Raises:
        DataError: There are no episodes, a file is damaged, or the data are not the walker's.
    """
    files = _some_files(path)
    if task is not None and task not in TASKS:
        raise DataError(unknown("task of ExORL's walker", task, TASKS))
    known = None if task is None else _read_cache(path, task, files)
    episodes: list[Episode] = []
    terminated: list[bool] = []
    with episode_progress() as (report, _):
        for i, file in enumerate(files):
            rewards = None if known is None else known[i]
            episode, ended = _read_episode(file, task, rewards)
            episodes.append(episode)
            terminated.append(ended)
            report(i + 1, len(files))
    if task is not None and known is None:
        _write_cache(path, task, files, [episode["rewards"] for episode in episodes])
    try:
        dataset = TrajectoryDataset.from_episodes(
            episodes,
            metadata=_metadata(path, task),
            nan_is_absent=reading.nan_is_absent,
            terminated=terminated,
        )
        return regroup(dataset, reading)
    except DataError as error:
        raise error.at(path) from error


def _some_files(path: Path) -> list[Path]:
    files = _files(path)
    if not files:
        what = "holds no episodes of ExORL" if path.is_dir() else "is not a directory"
        raise DataError(f"{path} {what}; .npz files with {', '.join(KEYS)} are needed.")
    return files


def _files(path: Path) -> list[Path]:
    return sorted(path.glob("*.npz"))


def _metadata(path: Path, task: str | None) -> Metadata:
    if task is None:
        return Metadata(source=path.name, notes={"reward_source": "as stored"})
    return Metadata(
        source=path.name,
        env_id=f"dmc:walker-{task}",
        horizon=SUITE_STEPS,
        notes={"reward_source": f"the task {task}, from the stored physics"},
    )


def _read_episode(
    file: Path, task: str | None, rewards: NDArray[Any] | None
) -> tuple[Episode, bool]:
    """One episode, and whether it ended in a terminal state.

    `rewards` are those of the task if they are known already.
    """
    keys = ["observation", "action", "discount"]
    if rewards is None:
        keys.append("reward" if task is None else "physics")
    stored = _read(file, keys)
    lengths = {key: len(values) for key, values in stored.items()}
    if len(set(lengths.values())) > 1 or lengths["observation"] < 2:
        listed = ", ".join(f"{key} {n}" for key, n in lengths.items())
        raise DataError(f"{file}: every array needs the same number of rows, 2 or more: {listed}.")
    if rewards is None and task is None:
        rewards = stored["reward"][1:]
        rewards = rewards[:, 0] if rewards.shape[1:] == (1,) else rewards
    elif rewards is None:
        try:
            rewards = walker_rewards.rewards(str(task), stored["physics"][1:])
        except DataError as error:
            raise error.at(file) from error
    episode = {
        "states": stored["observation"][:-1],
        "actions": stored["action"][1:],
        "rewards": rewards,
    }
    return episode, not np.any(stored["discount"][-1])


def _read(file: Path, keys: Sequence[str]) -> Episode:
    """Some arrays of a file; object arrays are refused, never unpickled."""
    return {key: np.atleast_1d(values) for key, values in read_members(file, keys).items()}


def _cache_file(path: Path, task: str) -> Path:
    """Not `.npz`, or programs that read all of these here would stumble over it."""
    return path / f".mtm-rewards-{task}.cache"


def _identity(files: Sequence[Path]) -> Episode:
    """What tells that the files, and the rewards made of them, are still the same."""
    stats = [file.stat() for file in files]
    return {
        "formula": np.array([walker_rewards.FORMULA]),
        "names": np.array([file.name for file in files]),
        "sizes": np.array([stat.st_size for stat in stats]),
        "times": np.array([stat.st_mtime_ns for stat in stats]),
    }


def _read_cache(path: Path, task: str, files: Sequence[Path]) -> list[NDArray[Any]] | None:
    """The rewards of each episode as kept earlier; None if there are none, or of other files."""
    try:
        now = _identity(files)
        kept = _read(_cache_file(path, task), (*now, "lengths", "rewards"))
    except DataError:  # none, or damaged: they are computed and kept again
        return None
    if not all(np.array_equal(kept[key], value) for key, value in now.items()):
        return None
    return np.split(kept["rewards"], np.cumsum(kept["lengths"])[:-1])


def _write_cache(
    path: Path, task: str, files: Sequence[Path], rewards: Sequence[NDArray[Any]]
) -> None:
    """Keep rewards for next time."""
    kept: dict[str, Any] = _identity(files)
    kept["lengths"] = np.array([len(part) for part in rewards])
    kept["rewards"] = np.concatenate(rewards, dtype=np.float32)
    content = io.BytesIO()
    np.savez(content, **kept)
    try:
        write_atomically(_cache_file(path, task), content.getvalue())
    except RunError as error:  # a folder that is read-only, or full: all works without
        logging.getLogger(__name__).info("%s: rewards are not kept (%s)", path, error)
