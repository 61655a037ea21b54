"""Minari's sets load as what was recorded, by the rules that the loader states."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mtm.core.errors import DataError
from mtm.core.reading import Reading
from mtm.data.formats.minari import load_named

minari = pytest.importorskip("minari", reason="minari is not installed (extra minari)")
spaces = pytest.importorskip("gymnasium").spaces
EpisodeBuffer = pytest.importorskip("minari.data_collector").EpisodeBuffer

BOX = spaces.Box(-np.inf, np.inf, (4,), np.float32)
PUSH = spaces.Box(-1, 1, (2,), np.float32)
LENGTHS = (5, 3)


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    return tmp_path


def rows(space: Any, n: int) -> Any:
    """`n` samples of a space, in Minari's form: a leaf holds all rows."""
    if isinstance(space, spaces.Dict):
        return {key: rows(part, n) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(rows(part, n) for part in space.spaces)
    return np.array([space.sample() for _ in range(n)])


def create(
    name: str,
    observations: Any = BOX,
    actions: Any = PUSH,
    env: str | None = None,
    infos: Any = lambda n: {},
) -> list[Any]:
    """Write a set; returns its episodes."""
    observations.seed(0)
    buffers = [
        EpisodeBuffer(
            id=i,
            observations=rows(observations, n + 1),
            actions=rows(actions, n),
            rewards=list(np.arange(n, dtype=float) + i),
            terminations=[False] * n,
            truncations=[False] * (n - 1) + [True],
            infos=infos(n),
        )
        for i, n in enumerate(LENGTHS)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of metadata that are not given
        minari.create_dataset_from_buffers(
            name,
            buffers,
            env=env,
            observation_space=observations,
            action_space=actions,
            algorithm_name="random",
        )
    return buffers


def test_box() -> None:
    buffers = create("toy/box-v0")
    data = load_named("toy/box-v0")
    assert data.names == ("states", "actions", "rewards")
    assert data.lengths.tolist() == list(LENGTHS)
    for i, buffer in enumerate(buffers):
        episode = data.episode(i)
        np.testing.assert_array_equal(episode["states"], buffer.observations[:-1])
        np.testing.assert_array_equal(episode["actions"], buffer.actions)
        np.testing.assert_array_equal(episode["rewards"], buffer.rewards)
    assert data.metadata.source == "minari:toy/box-v0"
    assert (data.metadata.env_id, data.metadata.horizon) == (None, None)
    assert data.metadata.notes["algorithm_name"] == "random"


def test_the_environment_and_its_discrete_actions() -> None:
    space = spaces.Discrete(2)
    buffers = create("cartpole/random-v0", actions=space, env="CartPole-v1")
    data = load_named("cartpole/random-v0")
    assert (data.metadata.env_id, data.metadata.horizon) == ("CartPole-v1", 500)
    actions = data.modality("actions")
    assert (actions.kind, actions.classes, actions.role) == ("discrete", 2, "action")
    assert data.episode(1)["actions"].tolist() == buffers[1].actions.tolist()


def test_a_dict_is_flattened_in_the_order_of_its_keys() -> None:
    space = spaces.Dict(
        goal=spaces.Box(-1, 1, (2, 2), np.float32),
        body=spaces.Dict(speed=spaces.Box(0, 1, (), np.float64), gear=spaces.Discrete(3, start=1)),
        arms=spaces.Tuple([spaces.MultiBinary(2), spaces.Box(5, 6, (1,), np.float32)]),
    )
    buffers = create("toy/dict-v0", observations=space)
    data = load_named("toy/dict-v0")
    assert data.modality("states").shape == (2 + 1 + 3 + 1 + 4,)
    said = buffers[0].observations
    gear = np.array([[g == 1, g == 2, g == 3] for g in said["body"]["gear"]])
    expected = [
        said["arms"][0],
        said["arms"][1],
        gear,
        said["body"]["speed"][:, None],
        said["goal"].reshape(-1, 4),
    ]
    np.testing.assert_array_equal(
        data.episode(0)["states"], np.concatenate(expected, axis=1)[:-1].astype(np.float32)
    )


def test_a_discrete_observation_counts_from_0() -> None:
    buffers = create("toy/discrete-v0", observations=spaces.Discrete(4, start=10))
    data = load_named("toy/discrete-v0")
    assert data.modality("states").classes == 4
    assert data.episode(0)["states"].tolist() == (buffers[0].observations[:-1] - 10).tolist()


def test_adroit_s_reward_is_success() -> None:
    pytest.importorskip("gymnasium_robotics", reason="gymnasium-robotics is not installed (sim)")
    from mtm.control import environments

    env = environments.make("AdroitHandDoor-v1")
    create(
        "door/toy-v0",
        env.observation_space,
        env.action_space,
        "AdroitHandDoor-v1",
        lambda n: {"success": np.arange(n + 1) % 2 == 1},
    )
    assert load_named("door/toy-v0").episode(0)["rewards"].tolist() == [1, 0, 1, 0, 1]


def test_spaces_that_no_modality_can_hold() -> None:
    create("toy/many-v0", actions=spaces.MultiDiscrete([2, 3]))
    with pytest.raises(DataError, match=r"minari:toy/many-v0: .*MultiDiscrete cannot be read.*Box"):
        load_named("toy/many-v0")


def test_a_gap_is_a_fault_unless_it_is_said_to_be_one() -> None:
    hole = spaces.Box(-1, 1, (1,), np.float32)
    hole.sample = lambda: np.array([np.nan], np.float32)
    create("toy/hole-v0", actions=hole)
    with pytest.raises(
        DataError, match="minari:toy/hole-v0: modality 'actions', episode 0, step 0"
    ):
        load_named("toy/hole-v0")
    assert load_named("toy/hole-v0", Reading(nan_is_absent=True)).count_present("actions") == 0


def test_a_set_that_is_not_there(store: Path) -> None:
    with pytest.raises(DataError, match=f"{store} holds no .*minari download mujoco/hopper/medium"):
        load_named("mujoco/hopper/medium-v0")
    assert list(store.iterdir()) == []  # nothing was fetched


@pytest.mark.parametrize("file", ["metadata.json", "main_data.hdf5"])
def test_damaged_sets(store: Path, file: str) -> None:
    create("toy/box-v0")
    path = store / "toy/box-v0/data" / file
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(DataError, match="minari:toy/box-v0 cannot be read .*minari download"):
        load_named("toy/box-v0")


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
@pytest.mark.parametrize("file", ["metadata.json", "main_data.hdf5"])
def test_wrong_bytes_load_or_say_why(store: Path, file: str, data: Any) -> None:
    path = store / "toy/box-v0/data" / file
    if not (store / "whole").exists():
        create("toy/box-v0")
        shutil.copy(path, store / "whole")
    content = bytearray((store / "whole").read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place : place + 4] = data.draw(st.binary(min_size=4, max_size=4))
    path.write_bytes(content)
    try:
        load_named("toy/box-v0")
    except DataError as error:
        message = str(error)
    else:
        message = "minari:toy/box-v0"
    assert "minari:toy/box-v0" in message
