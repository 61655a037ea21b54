"""Loading by name and from files, and what is said when that fails."""

from __future__ import annotations

import warnings
from contextlib import suppress
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtm.core.errors import DataError
from mtm.data import loading
from mtm.data.episode_bounds import offsets_from_flags
from mtm.data.formats import builtin

SHARED_LAYOUT = {
    "observations": np.arange(20, dtype=np.float32).reshape(10, 2),
    "actions": np.zeros((10, 1), np.float32),
    "rewards": np.ones(10, np.float32),
    "terminals": np.isin(np.arange(10), [3]),
    "timeouts": np.isin(np.arange(10), [7]),
}


def write_hdf5(path: Path, arrays: dict, **attributes) -> str:
    with h5py.File(path, "w") as file:
        for key, values in arrays.items():
            file[key] = values
        file.attrs.update(attributes)
    return str(path)


def test_d4rl_layout(tmp_path: Path) -> None:
    path = write_hdf5(
        tmp_path / "hopper.hdf5",
        SHARED_LAYOUT | {"infos/qpos": np.zeros((10, 3)), "next_observations": np.zeros((10, 2))},
        env_id="Hopper-v5",
        max_episode_steps=1000,
        behaviour="random",
    )
    data = loading.load(path)
    assert data.names == ("states", "actions", "rewards")
    assert data.lengths.tolist() == [4, 4, 2]  # terminal, timeout, and what is left
    assert data.metadata.env_id == "Hopper-v5"
    assert data.metadata.horizon == 1000
    assert data.metadata.notes == {"behaviour": "random"}
    assert data.episode(1)["states"][:, 0].tolist() == [8, 10, 12, 14]


def test_d4rl_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("D4RL_DATASET_DIR", str(tmp_path))
    write_hdf5(tmp_path / "hopper_medium_replay-v2.hdf5", SHARED_LAYOUT)
    assert loading.load("d4rl:hopper-medium-replay-v2").num_steps == 10


def test_npz_with_offsets_gaps_and_own_names(tmp_path: Path) -> None:
    path = tmp_path / "log.npz"
    known = np.arange(10) % 2 == 0
    torque = np.where(known, 1.0, np.nan)
    np.savez(path, qpos=np.zeros((10, 3)), torque=torque, torque_present=known, offsets=[0, 6, 10])
    data = loading.load(str(path))
    assert data.names == ("qpos", "torque")
    assert data.lengths.tolist() == [6, 4]
    assert data.count_present("torque") == 5


def test_offsets_from_flags() -> None:
    assert offsets_from_flags(np.array([0, 1, 0, 1], bool)).tolist() == [0, 2, 4]
    assert offsets_from_flags(np.array([0, 1, 0], bool)).tolist() == [0, 2, 3]
    assert offsets_from_flags(np.zeros(3, bool)).tolist() == [0, 3]


class Trap:
    """Unpickling one of these would be seen."""

    def __reduce__(self):
        return (pytest.fail, ("a pickle was executed",))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("pickle.npz", {"states": np.array([Trap()], object)}, "cannot be read"),
        ("no-end.npz", {"states": np.zeros((4, 1))}, "nothing says where episodes end"),
        ("nothing.npz", {"terminals": np.ones(4)}, "no modality found"),
        ("uneven.npz", {"states": np.zeros((4, 1)), "terminals": np.ones(3)}, "terminals 3"),
        (
            "nan.npz",
            {"states": np.full((4, 1), np.nan), "terminals": np.ones(4)},
            "nan.npz: modality 'states', episode 0, step 0",
        ),
        ("text.npz", {"states": np.array(["a"]), "terminals": np.ones(1)}, "text.npz: .*dtype"),
    ],
)
def test_bad_npz(tmp_path: Path, name: str, content: dict, message: str) -> None:
    np.savez(tmp_path / name, **content)
    with pytest.raises(DataError, match=message):
        loading.load(str(tmp_path / name))


@pytest.mark.parametrize("name", ["cut.hdf5", "cut.npz"])
def test_a_truncated_file(tmp_path: Path, name: str) -> None:
    whole = tmp_path / f"whole.{name.split('.')[1]}"
    if name.endswith("npz"):
        np.savez(whole, **SHARED_LAYOUT)
    else:
        write_hdf5(whole, SHARED_LAYOUT)
    data = whole.read_bytes()
    (tmp_path / name).write_bytes(data[: len(data) // 2])
    with pytest.raises(DataError, match=f"{name} cannot be read"):
        loading.load(str(tmp_path / name))


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_mutated_npz_file_loads_or_is_refused(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("npz") / "log.npz"
    np.savez(path, **SHARED_LAYOUT)
    content = bytearray(path.read_bytes())
    if data.draw(st.booleans()):
        content = content[: data.draw(st.integers(0, len(content)))]
    for _ in range(data.draw(st.integers(0, 4))):
        if content:
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    with suppress(DataError), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # flags that never fire are told, and are no crash
        loading.load(str(path))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"rewards": np.ones(9, np.float32)}, "rewards 9"),
        ({"note": np.bytes_("hello")}, "'note' holds"),
        ({"observations": np.full((10, 2), np.inf)}, "bad.hdf5: modality 'states', episode 0"),
    ],
)
def test_bad_hdf5(tmp_path: Path, arrays: dict, message: str) -> None:
    path = write_hdf5(tmp_path / "bad.hdf5", SHARED_LAYOUT | arrays)
    with pytest.raises(DataError, match=message):
        loading.load(path)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("builtin:pointmass", "Did you mean 'point-mass'"),
        ("bultin:point-mass", "unknown prefix of a data set 'bultin'. Did you mean 'builtin'"),
        ("no/such/file.hdf5", "no data set at"),
    ],
)
def test_unknown_specs(spec: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        loading.load(spec)


def test_unknown_kind_of_file(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("1,2")
    with pytest.raises(DataError, match="unknown kind of file '.csv'"):
        loading.load(str(tmp_path / "log.csv"))
    with pytest.raises(DataError, match="holds no data file"):
        loading.load(str(tmp_path))


def test_a_directory_is_its_files_one_after_the_other(tmp_path: Path) -> None:
    write_hdf5(tmp_path / "a.hdf5", SHARED_LAYOUT, env_id="Hopper-v5")
    states = SHARED_LAYOUT["observations"] + 100
    np.savez(tmp_path / "b.npz", states=states, gripper=np.arange(10) % 2, offsets=[0, 10])
    data = loading.load(str(tmp_path))
    assert data.lengths.tolist() == [4, 4, 2, 10]
    assert data.arrays["states"][10:].tolist() == states.tolist()
    assert data.known("actions").tolist() == [True] * 10 + [False] * 10
    assert data.known("gripper").tolist() == [False] * 10 + [True] * 10
    assert data.metadata.env_id is None
    np.savez(tmp_path / "c.npz", states=np.zeros((3, 5)), offsets=[0, 3])
    with pytest.raises(DataError, match=r"c.npz: modality 'states' is continuous of shape \(5,\)"):
        loading.load(str(tmp_path))


def test_point_mass_follows_its_dynamics() -> None:
    data = builtin.point_mass(episodes=5, length=10)
    episode = data.episode(3)
    stepped = builtin.step_point_mass(
        episode["states"].astype(float), episode["actions"].astype(float)
    )
    np.testing.assert_allclose(stepped[:-1], episode["states"][1:], atol=1e-5)


@pytest.mark.parametrize("name", builtin.NAMES)
def test_built_in_sets_are_always_the_same(name: str) -> None:
    assert loading.load(f"builtin:{name}").fingerprint == builtin.NAMES[name]().fingerprint


def test_the_bundled_recording() -> None:
    data = loading.load("builtin:hopper")
    assert (data.num_episodes, data.num_steps) == (471, 140_214)
    assert data.metadata.env_id == "Hopper-v5"
    assert data.metadata.horizon == 1000
    assert Path(builtin.__file__).with_name("hopper.hdf5").stat().st_size < 8_000_000


def test_adroit_s_reward_is_success(tmp_path: Path) -> None:
    achieved = np.arange(10) % 2
    arrays = SHARED_LAYOUT | {"infos/goal_achieved": achieved.astype(bool)}
    path = write_hdf5(tmp_path / "door.hdf5", arrays, env_id="AdroitHandDoor-v1")
    assert loading.load(path).arrays["rewards"].tolist() == achieved.tolist()
    other = write_hdf5(tmp_path / "hopper.hdf5", arrays, env_id="Hopper-v5")
    assert loading.load(other).arrays["rewards"].tolist() == [1.0] * 10
