"""LeRobot's data sets, format v3: read as LeRobot writes them, and written so that it reads them.

Where `MTM_LEROBOT_PYTHON` names a Python that has LeRobot, it does the other half itself.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mtm
from hub_server import Hub, Repository, reachable_hub
from mtm.cli import main
from mtm.core.errors import DataError
from mtm.core.reading import Reading
from mtm.data import loading
from mtm.data.formats import lerobot_write
from mtm.data.trajectories import Metadata, TrajectoryDataset
from mtm.data.writing import write

LENGTHS = (3, 2, 4)
FEATURES = {
    "observation.state": ("float32", (2,)),
    "observation.environment_state": ("float32", (3,)),
    "observation.tactile": ("float64", (2, 2)),
    "observation.image": ("image", (4, 4, 3)),
    "observation.wrist": ("video", (4, 4, 3)),
    "action": ("float32", (1,)),
    "next.reward": ("float32", (1,)),
    "next.done": ("bool", (1,)),
    "next.success": ("bool", (1,)),
    "gear": ("int64", (1,)),
    "timestamp": ("float32", (1,)),
    "frame_index": ("int64", (1,)),
    "episode_index": ("int64", (1,)),
    "index": ("int64", (1,)),
    "task_index": ("int64", (1,)),
}


def lerobot_folder(root: Path, **changes: object) -> Path:
    """A data set as LeRobot 0.4 writes it: three episodes in two files."""
    (root / "meta/episodes/chunk-000").mkdir(parents=True)
    (root / "data/chunk-000").mkdir(parents=True)
    info = {
        "codebase_version": "v3.0",
        "robot_type": "arm",
        "total_episodes": 3,
        "total_frames": sum(LENGTHS),
        "total_tasks": 1,
        "fps": 20,
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "video_path": "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
        "features": {
            name: {"dtype": dtype, "shape": list(shape), "names": None}
            for name, (dtype, shape) in FEATURES.items()
        },
    }
    (root / "meta/info.json").write_text(json.dumps(info | changes))
    rows = {
        "episode_index": [0, 1, 2],
        "tasks": [["push"]] * 3,
        "length": list(LENGTHS),
        "data/chunk_index": [0, 0, 0],
        "data/file_index": [0, 0, 1],
    }
    pq.write_table(pa.table(rows), root / "meta/episodes/chunk-000/file-000.parquet")
    pq.write_table(frames((0, 1)), root / "data/chunk-000/file-000.parquet")
    pq.write_table(frames((2,)), root / "data/chunk-000/file-001.parquet")
    return root


def frames(episodes: tuple[int, ...]) -> pa.Table:
    label = np.concatenate([np.full(LENGTHS[e], e) for e in episodes])
    time = np.concatenate([np.arange(LENGTHS[e]) for e in episodes])
    count = len(label)
    state = np.stack([label, time], 1).astype(np.float32)
    return pa.table(
        {
            "observation.state": pa.FixedSizeListArray.from_arrays(state.reshape(-1), 2),
            "observation.environment_state": pa.array([[1.0, 2.0, 3.0]] * count),
            "observation.tactile": pa.array([[[1.0, 2.0], [3.0, 4.0]]] * count),
            "observation.image": pa.array([{"bytes": b"png", "path": "x.png"}] * count),
            "action": pa.array(time / 10, pa.float32()),
            "next.reward": pa.array(np.ones(count), pa.float32()),
            "next.done": pa.array([False] * count),
            "next.success": pa.array([False] * count),
            "gear": pa.array(time % 3),
            "timestamp": pa.array(time / 20, pa.float32()),
            "frame_index": pa.array(time),
            "episode_index": pa.array(label),
            "index": pa.array(np.arange(count)),
            "task_index": pa.array(label % 2),
        }
    )


def own_data() -> TrajectoryDataset:
    """Episodes of several modalities with gaps, of which it is known how they ended."""
    rng = np.random.default_rng(0)
    known = np.ones(20, bool)
    known[3] = False
    return TrajectoryDataset.from_arrays(
        {
            "states": rng.random((20, 2), np.float32),
            "force": rng.random(20, np.float32),
            "tactile": rng.random((20, 2, 3), np.float32),
            "gear": rng.integers(3, size=20),
            "actions": rng.random((20, 1), np.float32),
            "rewards": rng.random(20, np.float32),
        },
        [0, 4, 12, 13, 20],
        present={"actions": known, "gear": known},
        metadata=Metadata("logs", "Toy-v0", 8, {"fps": "12.5", "task": "push it"}),
        terminated=[True, False, False, True],
    )


def assert_same(found: TrajectoryDataset, expected: TrajectoryDataset) -> None:
    assert found.modalities == expected.modalities
    assert np.array_equal(found.ends, expected.ends)
    for index in range(expected.num_episodes):
        one, other = found.episode(index), expected.episode(index)
        for name in expected.names:
            np.testing.assert_array_equal(one[name], other[name])


def test_what_lerobot_writes_is_read(tmp_path: Path) -> None:
    folder = lerobot_folder(tmp_path / "set")
    with pytest.warns(UserWarning, match="observation.image, observation.wrist left out"):
        data = loading.load(f"lerobot:{folder}")
    shapes = {m.name: (m.shape, m.role) for m in data.modalities}
    assert shapes == {
        "states": ((2,), "state"),
        "environment_state": ((3,), "state"),
        "tactile": ((2, 2), "state"),
        "gear": ((), "state"),
        "actions": ((1,), "action"),
        "rewards": ((), "reward"),
    }
    assert data.modality("gear").classes == 3
    assert data.lengths.tolist() == list(LENGTHS)
    assert data.episode(2)["states"].tolist() == [[2, 0], [2, 1], [2, 2], [2, 3]]
    assert data.metadata.notes == {"fps": "20", "robot_type": "arm"}
    assert data.terminated is None  # next.done does not say why


def test_features_are_chosen_and_joined(tmp_path: Path) -> None:
    folder = lerobot_folder(tmp_path / "set")
    own = Reading(
        columns={
            "states": ("observation.state", "observation.environment_state"),
            "torque": "action",
            "task": "task_index",
            "won": "next.success",
        },
        roles={"won": "state"},
    )
    data = loading.load(folder, own)  # a folder is recognised without the prefix
    assert {m.name: m.role for m in data.modalities} == {
        "states": "state",
        "task": "state",
        "won": "state",
        "torque": "action",
    }
    assert data.modality("states").shape == (5,)
    assert (data.modality("task").kind, data.modality("task").classes) == ("discrete", 2)


def test_success_is_the_reward_where_there_is_no_other(tmp_path: Path) -> None:
    features = {n: f for n, f in FEATURES.items() if n != "next.reward" and f[0] != "video"}
    plain = {n: {"dtype": d, "shape": list(s)} for n, (d, s) in features.items() if d != "image"}
    data = loading.load(lerobot_folder(tmp_path / "set", features=plain))
    assert data.modality("rewards").role == "reward"
    assert not data.episode(0)["rewards"].any()


def test_what_is_written_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lerobot_write, "FILE_BYTES", 1 << 10)  # several files
    monkeypatch.setattr(lerobot_write, "CHUNK_FILES", 2)
    monkeypatch.setattr(lerobot_write, "EPISODES_TOGETHER", 3)
    data, folder = own_data(), tmp_path / "set"
    error = np.arange(20, dtype=np.float32)
    notes = {"actions_expected_error": error, "actions_predicted": data.arrays["actions"]}
    write([(data.subset([0, 1]), {}), (data.subset([2, 3]), {})], f"lerobot:{tmp_path / 'a'}", "l")
    write([(data, notes)], f"lerobot:{folder}", "logs")
    files = sorted(str(f.relative_to(folder)) for f in folder.rglob("*") if f.is_file())
    assert "data/chunk-001/file-000.parquet" in files
    assert not any("store" in name for name in files)
    found = loading.load(f"lerobot:{folder}")
    assert_same(found, data)
    assert_same(loading.load(f"lerobot:{tmp_path / 'a'}"), data)
    assert found.terminated is not None
    assert found.terminated.tolist() == [True, False, False, True]
    assert (found.metadata.env_id, found.metadata.horizon) == ("Toy-v0", 8)
    named = Reading(columns={"label": "predicted.action", "error": "expected_error.action"})
    beside = loading.load(f"lerobot:{folder}", named)
    assert np.array_equal(beside.arrays["error"].reshape(-1), error)
    stats = json.loads((folder / "meta/stats.json").read_text())
    known = data.arrays["actions"][data.known("actions")]
    assert stats["action"]["count"] == [19]
    for key in ("mean", "std", "min", "max"):
        assert stats["action"][key] == pytest.approx([getattr(np, key)(known)], rel=1e-5)


def test_writing_needs_the_rate_and_a_free_place(tmp_path: Path) -> None:
    bare = own_data().with_metadata(notes={})
    with pytest.raises(DataError, match="how many steps a second has.*--fps 50"):
        write([(bare, {})], f"lerobot:{tmp_path / 'set'}", "logs")
    assert not list(tmp_path.iterdir())
    (tmp_path / "set").mkdir()
    with pytest.raises(DataError, match="exists already"):
        write([(own_data(), {})], f"lerobot:{tmp_path / 'set'}", "logs")


def test_convert_to_lerobot_and_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    there, back = f"lerobot:{tmp_path / 'set'}", str(tmp_path / "store")
    assert main(["data", "convert", "builtin:point-mass", there]) == 2
    assert "--fps 50" in capsys.readouterr().err
    assert main(["data", "convert", "builtin:point-mass", there, "--fps", "10"]) == 0
    data = loading.load("builtin:point-mass")
    assert f"{data.num_episodes:,} episodes, {data.num_steps:,} steps" in capsys.readouterr().out
    assert main(["data", "convert", there, back]) == 0
    assert_same(loading.load(back), data)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("runs") / "run")
    words = ["--preset", "tiny", "--steps", "3", "--drop", "actions=0.5", "--out", path]
    assert main(["train", "--data", "builtin:point-mass", *words]) == 0
    return path


def test_relabelling_writes_beside_the_originals(run: str, tmp_path: Path) -> None:
    out = tmp_path / "set"
    words = ["relabel", run, "--want", "actions", "--fps", "10", "--out"]
    assert main([*words, f"lerobot:{out}"]) == 0
    found = loading.load(f"lerobot:{out}")
    assert 0 < found.count_present("actions") < found.num_steps  # the originals lack what they did
    every = {"was": "action", "label": "predicted.action", "error": "expected_error.action"}
    beside = loading.load(f"lerobot:{out}", Reading(columns=every, nan_is_absent=True))
    given = beside.known("was")
    error = beside.arrays["error"].reshape(-1)
    assert (error[given] == 0).all()
    assert (error[~given] > 0).all()
    assert np.array_equal(beside.arrays["label"][given], beside.arrays["was"][given])
    assert np.isfinite(beside.arrays["label"]).all()
    assert main([*words, f"lerobot:{tmp_path / 'full'}", "--replace"]) == 0
    full = loading.load(f"lerobot:{tmp_path / 'full'}")
    assert full.count_present("actions") == full.num_steps
    assert np.array_equal(full.arrays["actions"], beside.arrays["label"])


def test_relabelling_where_there_is_no_action_at_all(run: str, tmp_path: Path) -> None:
    states = loading.load("builtin:point-mass").subset(range(3)).select(["states"])
    log, out = tmp_path / "log.npz", tmp_path / "set"
    episodes = [states.episode(i) for i in range(3)]
    write([(TrajectoryDataset.from_episodes(episodes), {})], log, "log")
    words = ["relabel", run, "--data", str(log), "--want", "actions", "--fps", "10"]
    assert main([*words, "--out", f"lerobot:{out}"]) == 0
    assert loading.load(f"lerobot:{out}").names == ("states",)
    named = Reading(columns={"states": "observation.state", "actions": "predicted.action"})
    assert loading.load(f"lerobot:{out}", named).modality("actions").role == "action"


def test_replacing_is_for_lerobot(
    run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["relabel", run, "--want", "actions", "--out", str(tmp_path / "x.npz"), "--replace"]
    assert main(words) == 2
    assert "--replace is for lerobot:DIR" in capsys.readouterr().err


# What is wrong is told with its place.


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"codebase_version": "v2.1"}, "codebase_version is 'v2.1', v3.0 is read. Convert it"),
        ({"fps": 0}, "fps must be a number above 0, got 0"),
        ({"fps": float("nan")}, "fps must be a number above 0, got nan"),
        (
            {"total_episodes": 10**18},
            r"lists 3 episodes, .* says 1,000,000,000,000,000,000, ep.* 3",
        ),
        ({"total_episodes": -1}, "total_episodes must be a whole number of at least 1, got -1"),
        ({"total_frames": 10**15}, "episodes have 9 frames, meta/info.json says 1,000,000"),
        ({"total_frames": 1e400}, "total_frames must be a whole number"),
        ({"data_path": "../../x-{chunk_index}.parquet"}, "must name .parquet files within"),
        ({"data_path": "/etc/passwd.parquet"}, "must name .parquet files within"),
        ({"data_path": "data/{chunk_index:03d}"}, "must name .parquet files within"),
        ({"data_path": "d/{chunk_index.__class__}.parquet"}, "it may hold {chunk_index}"),
        ({"data_path": "d/{chunk_index:99999999d}.parquet"}, "it may hold {chunk_index}"),
        ({"data_path": "d/{0}.parquet"}, "it may hold {chunk_index}"),
        ({"data_path": "d/{.parquet"}, "info.json is damaged"),
        ({"data_path": "elsewhere/{file_index}.parquet"}, "elsewhere/0.parquet is missing"),
        ({"features": {"action": {"dtype": "float32", "shape": [10**12]}}}, "positive numbers"),
        ({"features": {"action": {"dtype": "float32", "shape": [2]}}}, "says \\(2,\\)"),
        ({"features": {"torque": {"dtype": "float32", "shape": [2]}}}, "unknown column 'torque'"),
        ({"features": []}, "info.json is damaged"),
        ({"features": {"action": "float32"}}, "info.json is damaged"),
    ],
)
def test_an_absurd_info_is_told(tmp_path: Path, changes: dict, message: str) -> None:
    folder = lerobot_folder(tmp_path / "set", **changes)
    with pytest.raises(DataError, match=message) as told:
        list(loading.load_parts(f"lerobot:{folder}", Reading(columns={"actions": "action"})))
    assert str(folder) in str(told.value)


def episodes_table(folder: Path) -> Path:
    return folder / "meta/episodes/chunk-000/file-000.parquet"


def test_missing_and_doubled_episodes_are_told(tmp_path: Path) -> None:
    chosen = Reading(columns={"actions": "action"})
    folder = lerobot_folder(tmp_path / "set")
    whole = pq.read_table(episodes_table(folder))
    for rows, message in (
        ([0, 2], "lists 2 episodes, meta/info.json says 3, episode 1 is missing"),
        ([0, 1, 1, 2], "episode 1 is listed 2 times"),
    ):
        pq.write_table(whole.take(rows), episodes_table(folder))
        with pytest.raises(DataError, match=message):
            loading.load(folder, chosen)
    pq.write_table(whole, episodes_table(folder))
    pq.write_table(frames((0,)), folder / "data/chunk-000/file-000.parquet")
    with pytest.raises(DataError, match="file-000.parquet: episode 1 has 0 frames, .* says 2"):
        loading.load(folder, chosen)
    pq.write_table(frames((1, 0)), folder / "data/chunk-000/file-000.parquet")
    with pytest.raises(DataError, match="not in one piece each and in order"):
        loading.load(folder, chosen)


@pytest.mark.parametrize(
    "name",
    ["meta/episodes/chunk-000/file-000.parquet", "data/chunk-000/file-001.parquet"],
)
def test_truncated_files_are_told(tmp_path: Path, name: str) -> None:
    folder = lerobot_folder(tmp_path / "set")
    file = folder / name
    file.write_bytes(file.read_bytes()[:-40])
    with pytest.raises(DataError, match=f"{name} cannot be read as Parquet"):
        loading.load(folder, Reading(columns={"actions": "action"}))
    file.unlink()
    with pytest.raises(DataError, match="holds no Parquet files|is missing"):
        loading.load(folder, Reading(columns={"actions": "action"}))


def test_a_folder_that_is_none_of_lerobot_s(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no meta/info.json"):
        loading.load(f"lerobot:{tmp_path}")
    with pytest.raises(DataError, match="OWNER/NAME"):
        loading.load(f"lerobot:{tmp_path / 'nowhere' / 'at' / 'all'}")


# On a hub.


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    pytest.importorskip("huggingface_hub", reason="the extra hub is not installed")
    with reachable_hub(tmp_path, monkeypatch) as found:
        yield found


def test_a_data_set_is_fetched_from_a_hub(hub: Hub, tmp_path: Path) -> None:
    write([(own_data(), {})], f"lerobot:{tmp_path / 'set'}", "logs")
    files = {
        str(file.relative_to(tmp_path / "set")): file.read_bytes()
        for file in (tmp_path / "set").rglob("*")
        if file.is_file()
    }
    hub.repositories["me/push"] = Repository(private=False)
    commit = hub.repositories["me/push"].commit({**files, "videos/big.mp4": b"0" * 1000})
    found = mtm.load_dataset("lerobot:me/push")
    assert_same(found, own_data())
    assert found.metadata.origin is not None
    assert found.metadata.origin.spec == "lerobot:me/push"
    assert not any("big.mp4" in request for request in hub.requests)
    assert_same(mtm.load_dataset(f"lerobot:me/push@{commit}"), own_data())
    with pytest.raises(DataError, match="neither a folder 'me/pull' nor a data set"):
        mtm.load_dataset("lerobot:me/pull")
    hub.broken = 500
    with pytest.raises(DataError, match="me/other"):
        mtm.load_dataset("lerobot:me/other")


# With LeRobot itself.

LEROBOT_WRITES = """
import sys
import numpy as np
from lerobot.datasets.lerobot_dataset import LeRobotDataset
features = {
    "observation.state": {"dtype": "float32", "shape": (3,), "names": ["a", "b", "c"]},
    "observation.tactile": {"dtype": "float32", "shape": (2, 2), "names": None},
    "observation.image": {"dtype": "image", "shape": (8, 8, 3),
                          "names": ["height", "width", "channels"]},
    "action": {"dtype": "float32", "shape": (2,), "names": None},
    "next.reward": {"dtype": "float32", "shape": (1,), "names": None},
    "gear": {"dtype": "int64", "shape": (1,), "names": None},
}
made = LeRobotDataset.create("me/toy", fps=20, features=features, root=sys.argv[1],
                             use_videos=False, robot_type="arm")
for episode in range(3):
    for time in range(5 + episode):
        made.add_frame({
            "observation.state": np.array([episode, time, 0.5], np.float32),
            "observation.tactile": np.full((2, 2), time, np.float32),
            "observation.image": np.zeros((8, 8, 3), np.uint8),
            "action": np.array([time, -time], np.float32),
            "next.reward": np.array([time / 10], np.float32),
            "gear": np.array([time % 3]),
            "task": ["push", "pull"][episode % 2],
        })
    made.save_episode()
made.finalize()
"""

LEROBOT_READS = """
import json
import sys
from lerobot.datasets.lerobot_dataset import LeRobotDataset
data = LeRobotDataset("me/toy", root=sys.argv[1])
item = data[3]
window = LeRobotDataset("me/toy", root=sys.argv[1], episodes=[1],
                        delta_timestamps={"action": [0, 1 / data.fps]})
print(json.dumps({
    "frames": len(data), "episodes": data.num_episodes, "fps": data.fps, "task": item["task"],
    "items": {key: value.tolist() for key, value in item.items() if hasattr(value, "tolist")},
    "ahead": window[0]["action"].tolist(),
    "mean": data.meta.stats["observation.state"]["mean"].tolist(),
}))
"""


@pytest.fixture
def lerobot() -> str:
    python = os.environ.get("MTM_LEROBOT_PYTHON")
    if not python:
        pytest.skip("MTM_LEROBOT_PYTHON does not name a Python that has LeRobot")
    return python


def by_lerobot(python: str, code: str, folder: Path) -> str:
    """Let LeRobot do something in its own environment, without a network."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [python, "-c", code, str(folder)],
        capture_output=True,
        text=True,
        check=False,
        env={**kept, "HF_HUB_OFFLINE": "1", "HF_HOME": str(folder.parent / "hf")},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_lerobot_s_own_writing_is_read(lerobot: str, tmp_path: Path) -> None:
    by_lerobot(lerobot, LEROBOT_WRITES, tmp_path / "set")
    with pytest.warns(UserWarning, match="observation.image left out"):
        data = loading.load(f"lerobot:{tmp_path / 'set'}")
    assert data.lengths.tolist() == [5, 6, 7]
    episode = data.episode(2)
    time = np.arange(7)
    assert episode["states"].tolist() == [[2, t, 0.5] for t in time]
    assert np.array_equal(episode["tactile"], np.broadcast_to(time[:, None, None], (7, 2, 2)))
    assert np.array_equal(episode["actions"], np.stack([time, -time], 1))
    assert np.allclose(episode["rewards"], time / 10)
    assert episode["gear"].tolist() == (time % 3).tolist()


def test_lerobot_loads_what_is_written(lerobot: str, tmp_path: Path) -> None:
    data = own_data()
    notes = {
        "actions_expected_error": np.arange(20, dtype=np.float32),
        "actions_predicted": data.arrays["actions"],
    }
    write([(data, notes)], f"lerobot:{tmp_path / 'set'}", "logs")
    told = json.loads(by_lerobot(lerobot, LEROBOT_READS, tmp_path / "set").splitlines()[-1])
    assert (told["frames"], told["episodes"], told["fps"]) == (20, 4, 12.5)
    assert told["task"] == "push it"
    items = told["items"]
    assert np.isnan(items["action"])
    assert items["predicted.action"] == pytest.approx(data.arrays["actions"][3, 0])
    assert items["expected_error.action"] == 3
    assert items["observation.tactile"] == data.arrays["tactile"][3].tolist()
    assert items["timestamp"] == pytest.approx(3 / 12.5)
    assert told["ahead"] == pytest.approx(data.arrays["actions"][4:6, 0].tolist())
    assert told["mean"] == pytest.approx(data.arrays["states"].mean(0).tolist(), rel=1e-5)
