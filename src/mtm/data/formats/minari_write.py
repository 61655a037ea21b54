"""Writing a data set into Minari's local store, by Minari's own storage.

The only state is the observation; several states are a `Dict` of them, and so are several actions.
Minari knows no gaps, so data that have any are refused. An episode of T steps has T + 1
observations there: the last one, which is not known, repeats the one before it. Notes on steps are
infos, with 0 for the reset.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mtm.core.errors import DataError, require
from mtm.data.formats.minari import EXTRA, NOTES, store
from mtm.data.modalities import Modality, Role
from mtm.data.terminations import terminal_endings
from mtm.data.trajectories import Metadata, TrajectoryDataset

if TYPE_CHECKING:
    from gymnasium import Space

EPISODES_TOGETHER = 100
"""Episodes that are in memory at a time."""


def place_of(name: str) -> Path:
    """The folder of a data set in Minari's store.

    Raises:
        DataError: Minari does not allow the name.
        MissingExtraError: Minari is not installed.
    """
    try:
        require("minari.dataset.minari_dataset", extra=EXTRA).parse_dataset_id(name)
    except ValueError as error:
        raise DataError(
            f"minari:{name}: Minari does not allow this name. It is NAME-vVERSION, or "
            "NAMESPACE/NAME-vVERSION, such as minari:robot/push-v0."
        ) from error
    return store() / name


def write_folder(
    dataset: TrajectoryDataset, notes: Mapping[str, NDArray[Any]], root: Path, name: str
) -> None:
    """Write episodes with notes on their steps; some at a time are in memory.

    Args:
        dataset: With a modality of role state and one of role action at least.
        notes: Arrays with a row per step.
        root: A folder, which is made.
        name: What Minari calls the data set.

    Raises:
        DataError: There is no state or no action, or a value is absent.
        MissingExtraError: Minari is not installed.
    """
    storage_of = require("minari.dataset.minari_storage", extra=EXTRA).MinariStorage
    states, actions = (_of_role(dataset, role) for role in ("state", "action"))
    _refuse_gaps(dataset)
    _make_namespace(name)
    (root / "data").mkdir(parents=True)
    storage = storage_of.new(
        root / "data",
        observation_space=_space(states),
        action_space=_space(actions),
        env_spec=_env_spec(dataset.metadata),
        jpeg_encoding=False,
    )
    said = {key: text for key, text in dataset.metadata.notes.items() if key in NOTES}
    version = require("minari", extra=EXTRA).__version__
    storage.update_metadata({**said, "dataset_id": name, "minari_version": version})
    pending: list[Any] = []
    for episode in _episodes(dataset, notes, states, actions):
        pending.append(episode)
        if len(pending) == EPISODES_TOGETHER:
            storage.update_episodes(pending)
            pending = []
    if pending:
        storage.update_episodes(pending)


def _of_role(dataset: TrajectoryDataset, role: Role) -> Sequence[Modality]:
    found = dataset.modalities.of_role(role)
    if not found:
        raise DataError(
            f"{dataset.metadata.source}: Minari needs {role}s, there is no modality of role "
            f"{role!r} among {', '.join(dataset.names)}. Say which it is (--reading.roles)."
        )
    return found


def _refuse_gaps(dataset: TrajectoryDataset) -> None:
    faults = []
    for name in dataset.present:
        lacking = np.flatnonzero(dataset.present_steps(name) < dataset.lengths)
        if len(lacking):
            index = int(lacking[0])
            steps = slice(int(dataset.starts[index]), int(dataset.ends[index]))
            step = int(np.argmin(dataset.present[name][steps]))
            faults.append(
                f"{dataset.metadata.source}: modality {name!r}, episode {index}, step {step}: "
                "absent, and Minari knows no gaps. Fill them (mtm relabel), or leave the modality "
                "out (--reading.columns)."
            )
    if faults:
        raise DataError(*faults)


def _make_namespace(name: str) -> None:
    namespaces = require("minari.namespace", extra=EXTRA)
    namespace, _, _ = name.rpartition("/")
    store().mkdir(parents=True, exist_ok=True)
    if namespace and namespace not in namespaces.list_local_namespaces():
        namespaces.create_namespace(namespace)


def _space(modalities: Sequence[Modality]) -> Space[Any]:
    from gymnasium import spaces

    def one(m: Modality) -> Space[Any]:
        if m.kind == "discrete":
            return spaces.Discrete(m.classes)
        return spaces.Box(-np.inf, np.inf, m.shape, np.float32)

    if len(modalities) == 1:
        return one(modalities[0])
    return spaces.Dict({m.name: one(m) for m in modalities})


def _env_spec(metadata: Metadata) -> Any:
    """What gymnasium knows of the environment, or its name and horizon; None if there is none."""
    registration = require("gymnasium.envs.registration", extra=EXTRA)
    refused = require("gymnasium.error", extra=EXTRA).Error
    if metadata.env_id is None:
        return None
    try:
        spec = registration.registry.get(metadata.env_id)
        return spec or registration.EnvSpec(metadata.env_id, max_episode_steps=metadata.horizon)
    except refused:  # an id that is none of gymnasium's
        return None


def _episodes(
    dataset: TrajectoryDataset,
    notes: Mapping[str, NDArray[Any]],
    states: Sequence[Modality],
    actions: Sequence[Modality],
) -> Iterator[Any]:
    buffer = require("minari.data_collector.episode_buffer", extra=EXTRA).EpisodeBuffer
    terminal = terminal_endings(dataset)
    rewards = dataset.modalities.of_role("reward")
    for index in range(dataset.num_episodes):
        steps = slice(int(dataset.starts[index]), int(dataset.ends[index]))
        values = dataset.episode(index)
        length = steps.stop - steps.start
        ends = np.arange(length) == length - 1
        earned = values[rewards[0].name].reshape(length) if rewards else np.zeros(length)
        infos = {key: _with_reset(note[steps]) for key, note in notes.items()}
        yield buffer(
            id=index,
            observations=_joined({m.name: _with_next(values[m.name]) for m in states}),
            actions=_joined({m.name: values[m.name] for m in actions}),
            rewards=earned,
            terminations=ends & terminal[index],
            truncations=ends & ~terminal[index],
            infos=infos or None,
        )


def _joined(values: dict[str, NDArray[Any]]) -> Any:
    return values if len(values) > 1 else next(iter(values.values()))


def _with_next(values: NDArray[Any]) -> NDArray[Any]:
    return np.concatenate([values, values[-1:]])


def _with_reset(values: NDArray[Any]) -> NDArray[Any]:
    return np.concatenate([np.zeros_like(values[:1]), values])
