"""robomimic's HDF5, and RLDS's steps as they are exported to Parquet."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mtm.core.errors import DataError
from mtm.core.reading import Reading
from mtm.data import loading

LENGTHS = (3, 2, 4)


def robomimic_file(path: Path, lengths: tuple[int, ...] = LENGTHS, images: bool = False) -> Path:
    """As robomimic's scripts write it; demo_10 comes after demo_2."""
    with h5py.File(path, "w") as file:
        group = file.create_group("data")
        args = {"env_name": "Lift", "type": 1, "env_kwargs": {"control_freq": 20}}
        group.attrs["env_args"] = json.dumps(args)
        for number, length in zip((0, 2, 10), lengths, strict=True):
            demo = group.create_group(f"demo_{number}")
            demo.attrs["num_samples"] = length
            time = np.arange(length, dtype=np.float64)
            demo["actions"] = np.stack([time, time + number], 1)
            demo["rewards"] = time
            demo["dones"] = np.arange(length) == length - 1
            demo["states"] = np.zeros((length, 7))
            demo["obs/eef_pos"] = np.full((length, 3), number, np.float64)
            demo["obs/gripper"] = time
            demo["next_obs/gripper"] = time + 1
            if images:
                demo["obs/agentview_image"] = np.zeros((length, 4, 4, 3), np.uint8)
        file["mask/train"] = np.array([b"demo_0"])
    return path


def test_robomimic_s_demonstrations(tmp_path: Path) -> None:
    path = robomimic_file(tmp_path / "lift.hdf5", images=True)
    with pytest.warns(UserWarning, match="obs/agentview_image left out"):
        data = loading.load(path)
    assert {m.name: (m.shape, m.role) for m in data.modalities} == {
        "states": ((4,), "state"),
        "actions": ((2,), "action"),
        "rewards": ((), "reward"),
    }
    assert data.lengths.tolist() == list(LENGTHS)
    assert data.episode(2)["states"].tolist() == [[10, 10, 10, t] for t in range(4)]
    assert data.episode(1)["actions"].tolist() == [[0, 2], [1, 3]]
    assert data.metadata.notes == {"env_name": "Lift", "fps": "20"}
    own = Reading(columns={"states": "states", "hand": ("obs/eef_pos",), "torque": "actions"})
    assert loading.load(path, own).names == ("states", "hand", "torque")


def test_what_is_wrong_with_demonstrations_is_told(tmp_path: Path) -> None:
    path = robomimic_file(tmp_path / "lift.hdf5")
    with h5py.File(path, "a") as file:
        del file["data/demo_2/rewards"]
    with pytest.raises(DataError, match="lift.hdf5: data/demo_2 has no array 'rewards'"):
        loading.load(path)
    with h5py.File(path, "a") as file:
        file["data/demo_2/rewards"] = np.zeros(5)
    with pytest.raises(DataError, match="data/demo_2: all arrays need one row per step.*rewards 5"):
        loading.load(path)
    with h5py.File(path, "a") as file:
        del file["data/demo_2/rewards"]
        file["data/demo_2/rewards"] = [0, np.nan]
    with pytest.raises(DataError, match="'rewards', episode 1, step 1"):
        loading.load(path)
    with pytest.raises(DataError, match="unknown column 'obs/eef'"):
        loading.load(path, Reading(columns={"states": "obs/eef"}))
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match="lift.hdf5 cannot be read as HDF5"):
        loading.load(path)


def steps_of(episode: int, length: int) -> list[dict]:
    return [
        {
            "observation": {
                "state": [float(episode), float(t)],
                "force": float(t) / 10,
                "image": b"jpeg",
                "depth": [[[0.0]]],
            },
            "action": [float(t)] * 3,
            "reward": float(t == length - 2),
            "is_first": t == 0,
            "is_last": t == length - 1,
            "is_terminal": t == length - 1 and episode != 1,
            "language_instruction": "push",
        }
        for t in range(length)
    ]


def check_rlds(path: Path) -> None:
    data = loading.load(path)
    assert {m.name: (m.shape, m.role) for m in data.modalities} == {
        "states": ((3,), "state"),
        "actions": ((3,), "action"),
        "rewards": ((), "reward"),
    }
    assert data.lengths.tolist() == [length - 1 for length in LENGTHS]  # without the last
    np.testing.assert_allclose(
        data.episode(2)["states"], [[0, 2, 0], [0.1, 2, 1], [0.2, 2, 2]], rtol=1e-6
    )
    assert data.episode(2)["rewards"].tolist() == [0, 0, 1]
    assert data.terminated is not None
    assert data.terminated.tolist() == [True, False, True]


def test_rlds_with_a_row_per_episode(tmp_path: Path) -> None:
    rows = {"episode_metadata": [{"file_path": f"{e}.h5"} for e in range(3)]}
    rows["steps"] = [steps_of(e, length) for e, length in enumerate(LENGTHS)]
    pq.write_table(pa.table(rows), tmp_path / "log.parquet")
    check_rlds(tmp_path / "log.parquet")
    own = Reading(columns={"force": "observation/force", "actions": "action"})
    assert loading.load(tmp_path / "log.parquet", own).names == ("force", "actions")


@pytest.mark.parametrize("told_by", ["episode_id", "is_last", "is_first"])
def test_rlds_with_a_row_per_step(tmp_path: Path, told_by: str) -> None:
    rows = [{"episode_id": e, **step} for e, n in enumerate(LENGTHS) for step in steps_of(e, n)]
    for row in rows:
        if told_by != "episode_id":
            del row["episode_id"]
        if told_by == "is_first":
            del row["is_last"]
            row["is_terminal"] = False
    path = tmp_path / "log.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path)
    if told_by == "is_first":
        assert loading.load(path).lengths.tolist() == list(LENGTHS)
    else:
        check_rlds(path)


def test_what_is_wrong_with_steps_is_told(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    pq.write_table(pa.table({"steps": [steps_of(0, 3), []]}), path)
    with pytest.raises(DataError, match="log.parquet: the episode of row 1 has no steps"):
        loading.load(path)
    broken = steps_of(0, 3)
    broken[1]["action"] = [1.0]
    pq.write_table(pa.table({"steps": [broken]}), path)
    with pytest.raises(DataError, match="column 'action' has 1 numbers in row 1 and 3 in others"):
        loading.load(path)
    pq.write_table(pa.table({"steps": [[{"note": "x", "is_last": True}]]}), path)
    with pytest.raises(DataError, match="none of observation, action, reward holds numbers"):
        loading.load(path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        loading.load(path)
