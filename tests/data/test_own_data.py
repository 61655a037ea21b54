"""Data of the user's own: columns, roles, gaps, Parquet, and what validation tells of them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtm.cli import main
from mtm.core.config import Reading, TrainConfig
from mtm.core.errors import ConfigError, DataError
from mtm.data import loading
from mtm.inference.run_data import reported_episodes
from mtm.training.train import train

ROWS = {
    "trial": [3, 3, 3, 7, 7],
    "x": [0.0, 0.1, 0.2, 0.3, 0.4],
    "y": [1.0, 1.1, 1.2, 1.3, 1.4],
    "pose": [[0.0, 1.0], [0.5, 1.5], None, [1.0, 2.0], [1.5, 2.5]],
    "torque": [0.5, None, 0.7, 0.8, 0.9],
    "note": ["a", "b", "c", "d", "e"],
}
OWN = Reading(
    columns={"states": ("x", "y"), "pose": "pose", "torque": "torque"},
    roles={"torque": "action"},
    episode="trial",
)


def write_parquet(path: Path, rows: dict) -> str:
    pq.write_table(pa.table(rows), path)
    return str(path)


def test_parquet_with_own_columns_roles_and_gaps(tmp_path: Path) -> None:
    data = loading.load(write_parquet(tmp_path / "log.parquet", ROWS), OWN)
    assert data.names == ("states", "pose", "torque")
    assert [m.role for m in data.modalities] == ["state", "state", "action"]
    assert data.lengths.tolist() == [3, 2]
    assert data.arrays["states"].tolist() == pytest.approx(np.stack([ROWS["x"], ROWS["y"]], 1))
    assert data.known("pose").tolist() == [True, True, False, True, True]
    assert data.known("torque").tolist() == [True, False, True, True, True]
    assert data.arrays["pose"][3].tolist() == [1.0, 2.0]


def test_parquet_as_lerobot_writes_it(tmp_path: Path) -> None:
    rows = {
        "observation.state": [[0.0, 1.0]] * 4,
        "action": [[0.5]] * 4,
        "next.reward": [0.0, 1.0, 0.0, 1.0],
        "episode_index": [0, 0, 1, 1],
        "frame_index": [0, 1, 0, 1],
        "timestamp": [0.0, 0.1, 0.0, 0.1],
    }
    folder = tmp_path / "data" / "chunk-000"
    folder.mkdir(parents=True)
    write_parquet(folder / "file-000.parquet", rows)
    data = loading.load(str(tmp_path))
    assert data.names == ("states", "actions", "rewards")
    assert data.lengths.tolist() == [2, 2]


@pytest.mark.parametrize(
    ("change", "reading", "message"),
    [
        ({}, Reading(episode="trial"), "column 'note' holds string"),
        ({}, Reading(columns={"states": "z"}, episode="trial"), "unknown column 'z'"),
        ({}, Reading(columns={"states": "x"}, episode="run"), "unknown column 'run'"),
        (
            {},
            Reading(columns={"states": "x"}),
            r"nothing says where episodes end.*--reading\.episode on the command line, Reading\(ep",
        ),
        ({"trial": [3, 3, None, 7, 7]}, OWN, "'trial' tells episodes apart, but is null in row 2"),
        ({"trial": [3, 7, 3, 7, 7]}, OWN, r"episode 3 .* two places \(rows 0 and 2\)"),
        ({"pose": [[0.0], [0.5], [1, 2], [1.0], [2.0]]}, OWN, "1 numbers in row 0 and 2 in others"),
        (
            {},
            Reading(columns={"states": "x"}, roles={"torque": "action"}, episode="trial"),
            "unknown modality in reading.roles: 'torque'",
        ),
    ],
)
def test_bad_parquet(tmp_path: Path, change: dict, reading: Reading, message: str) -> None:
    path = write_parquet(tmp_path / "log.parquet", ROWS | change)
    with pytest.raises(DataError, match=message):
        loading.load(path, reading)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_mutated_parquet_file_loads_or_is_refused(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("parquet") / "log.parquet"
    write_parquet(path, ROWS)
    content = bytearray(path.read_bytes())
    if data.draw(st.booleans()):
        content = content[: data.draw(st.integers(0, len(content)))]
    for _ in range(data.draw(st.integers(0, 3))):
        if content:
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    with suppress(DataError):
        loading.load(str(path), OWN)


def test_columns_and_an_episode_column_in_npz_and_hdf5(tmp_path: Path) -> None:
    arrays = {
        "q": np.ones((4, 2)),
        "dq": np.zeros((4, 2)),
        "u": np.arange(4.0),
        "run": [1, 1, 2, 2],
    }
    np.savez(tmp_path / "log.npz", **arrays)
    with h5py.File(tmp_path / "log.h5", "w") as file:
        for name, values in arrays.items():
            file[name] = values
        file["deep/other"] = np.full(4, 5.0)
    reading = Reading(columns={"states": ("q", "dq"), "actions": "u"}, episode="run")
    for file in ("log.npz", "log.h5"):
        data = loading.load(str(tmp_path / file), reading)
        assert data.names == ("states", "actions")
        assert data.arrays["states"].shape == (4, 4)
        assert data.lengths.tolist() == [2, 2]
    deep = Reading(columns={"states": "deep/other"}, episode="run")
    assert loading.load(str(tmp_path / "log.h5"), deep).arrays["states"].tolist() == [5.0] * 4


@pytest.mark.parametrize("name", ["log.npz", "log.h5", "log.parquet"])
def test_marks_and_ends_come_with_the_columns_that_are_named(tmp_path: Path, name: str) -> None:
    arrays = {
        "q": np.arange(4.0),
        "q_present": np.array([True, False, True, True]),
        "u": np.ones(4),
        "episode": np.array([1, 1, 2, 2]),
        "terminals": np.array([0, 0, 0, 1]),
    }
    if name.endswith("npz"):
        np.savez(tmp_path / name, **arrays)
    elif name.endswith("h5"):
        with h5py.File(tmp_path / name, "w") as file:
            for key, values in arrays.items():
                file[key] = values
    else:
        write_parquet(tmp_path / name, arrays)
    data = loading.load(str(tmp_path / name), Reading(columns={"states": "q"}))
    assert data.names == ("states",)
    assert data.known("states").tolist() == [True, False, True, True]
    assert data.lengths.tolist() == [2, 2]
    assert data.terminated.tolist() == [False, True]


def test_a_null_leaves_integers_what_they_are(tmp_path: Path) -> None:
    rows = {
        "episode": [0, 0, 1, 1],
        "gear": pa.array([2, None, 1, 0], pa.int8()),
        "closed": [True, False, None, True],
        "speed": [0.5, None, 0.5, 0.5],
        "speed_present": [True, True, None, True],
    }
    data = loading.load(write_parquet(tmp_path / "log.parquet", rows))
    assert data.names == ("gear", "closed", "speed")
    assert (data.modality("gear").kind, data.modality("gear").classes) == ("discrete", 3)
    assert data.arrays["gear"][[0, 2, 3]].tolist() == [2, 1, 0]
    assert data.known("gear").tolist() == [True, False, True, True]
    assert data.known("closed").tolist() == [True, True, False, True]
    assert data.known("speed").tolist() == [True, False, False, True]


@pytest.mark.parametrize("name", ["log.npz", "log.hdf5", "log.parquet"])
def test_time_stamps_are_no_classes_and_are_told_with_the_file(tmp_path: Path, name: str) -> None:
    arrays = {"q": np.zeros(4), "stamp": 1_700_000_000 + np.arange(4), "terminals": np.eye(4)[3]}
    file = tmp_path / name
    if name == "log.npz":
        np.savez(file, **arrays)
    elif name == "log.hdf5":
        with h5py.File(file, "w") as opened:
            for key, values in arrays.items():
                opened[key] = values
    else:
        write_parquet(file, arrays)
    with pytest.raises(DataError, match=f"{name}: modality 'stamp' holds the integer 1700000003"):
        loading.load(str(file))
    assert loading.load(str(file), Reading(columns={"states": "q"})).names == ("states",)


def test_a_list_of_integers_with_a_null_in_it_is_a_fault(tmp_path: Path) -> None:
    rows = {"episode": [0, 0], "pose": [[1, 2], [None, 4]]}
    with pytest.raises(DataError, match="step 1: feature 0 is nan"):
        loading.load(write_parquet(tmp_path / "log.parquet", rows))


@pytest.mark.parametrize(
    "names", [("observations", "states"), ("action", "actions"), ("reward", "next.reward")]
)
def test_two_columns_are_not_taken_for_one_modality(tmp_path: Path, names: tuple) -> None:
    rows = {"episode": [0, 0], "pose": [0.0, 1.0]} | {name: [0.0, 1.0] for name in names}
    path = write_parquet(tmp_path / "log.parquet", rows)
    message = f"'{names[0]}' and '{names[1]}' are both taken for .*--reading.columns"
    with pytest.raises(DataError, match=message):
        loading.load(path)
    reading = Reading(columns={f"own_{i}": name for i, name in enumerate(names)})
    assert loading.load(path, reading).names == ("own_0", "own_1")


LOG = {"trial": [0, 0, 1], "x": [0.0, 1.0, 2.0], "y": [3.0, 4.0, 5.0], "u": [0.1, 0.2, 0.3]}
TORQUE = Reading(
    columns={"states": ("x", "y"), "torque": "u"}, roles={"torque": "action"}, episode="trial"
)


def without(rows: dict, *names: str) -> dict:
    return {name: values for name, values in rows.items() if name not in names}


def write_logs(folder: Path, *files: dict) -> str:
    folder.mkdir()
    for i, rows in enumerate(files):
        if i == 0:
            write_parquet(folder / "a.parquet", rows)
        elif i == 1:
            np.savez(folder / "b.npz", **rows)
        else:
            with h5py.File(folder / "c.h5", "w") as file:
                for name, values in rows.items():
                    file[name] = values
    return str(folder)


@pytest.mark.parametrize("lacking", [0, 1, 2])
def test_a_file_of_a_directory_may_lack_a_modality_that_is_named(
    tmp_path: Path, lacking: int
) -> None:
    files = [without(LOG, "u") if i == lacking else LOG for i in range(3)]
    logs = write_logs(tmp_path / "logs", *files)
    data = loading.load(logs, TORQUE)
    assert data.names == ("states", "torque")
    assert data.modality("torque").role == "action"
    assert data.known("torque").tolist() == [i // 3 != lacking for i in range(9)]
    by_name = Reading(roles={"u": "action"}, episode="trial")
    assert loading.load(logs, by_name).known("u").sum() == 6
    words = ["--reading.columns", "states=x,y", "torque=u", "--reading.roles", "torque=action"]
    assert main(["data", "info", logs, *words, "--reading.episode", "trial"]) == 0


def test_what_a_directory_may_not_lack(tmp_path: Path) -> None:
    logs = write_logs(tmp_path / "part", LOG, without(LOG, "y"))
    with pytest.raises(DataError, match=r"b\.npz: unknown column 'y'"):
        loading.load(logs, TORQUE)
    logs = write_logs(tmp_path / "all", *[without(LOG, "u")] * 3)
    with pytest.raises(DataError, match=r"a\.parquet: unknown column 'u'.*Allowed: .*x"):
        loading.load(logs, TORQUE)
    logs = write_logs(tmp_path / "nothing", LOG, {"trial": [0, 0], "z": [1.0, 2.0]})
    with pytest.raises(DataError, match=r"b\.npz: unknown column 'x'"):
        loading.load(logs, TORQUE)
    with pytest.raises(DataError, match=r"a\.parquet: unknown modality in reading.roles: 'w'"):
        loading.load(str(tmp_path / "all"), Reading(roles={"w": "action"}, episode="trial"))


def test_loading_what_is_there(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "log.parquet", without(LOG, "u"))
    with pytest.raises(DataError, match="unknown column 'u'"):
        loading.load(path, TORQUE)
    assert loading.load_available(path, TORQUE).names == ("states",)
    logs = write_logs(tmp_path / "logs", *[without(LOG, "u")] * 3)
    assert loading.load_available(logs, TORQUE).num_steps == 9
    for gone in (("y",), ("x", "y", "u")):
        path = write_parquet(tmp_path / "log.parquet", without(LOG, *gone))
        with pytest.raises(DataError, match="unknown column"):
            loading.load_available(path, TORQUE)


def test_named_data_sets_can_be_regrouped() -> None:
    data = loading.load("builtin:point-mass", Reading(columns={"states": ("states", "actions")}))
    assert data.names == ("states",)
    assert data.modality("states").shape == (6,)
    assert data.num_episodes == 400


def test_malformed_readings_are_told_with_the_other_settings() -> None:
    plain = {"steps": 0, "reading": {"columns": {"x": ""}, "roles": {"y": "agent"}}}
    with pytest.raises(
        ConfigError, match=r"3 fault\(s\)[^$]*'x' needs names of[^$]*'agent'[^$]*steps"
    ):
        TrainConfig.from_json(plain)


def test_a_run_remembers_how_its_data_are_read(tmp_path: Path, tiny: TrainConfig) -> None:
    rows = {"trial": np.repeat(np.arange(8), 6), "x": np.arange(48.0), "u": np.arange(48.0) % 5}
    path = write_parquet(tmp_path / "log.parquet", rows)
    reading = Reading(
        columns={"states": "x", "push": "u"}, roles={"push": "action"}, episode="trial"
    )
    config = replace(tiny, steps=2, reading=reading)
    run = train(path, config, tmp_path / "run", silent=True)
    assert run.description.train.reading == reading
    assert reported_episodes(run).names == ("states", "push")


def test_validation_tells_every_fault_and_where(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    states, actions = np.zeros((9, 2)), np.zeros((9, 1))
    states[1, 1] = states[2, 0] = states[7, 0] = np.nan
    actions[4] = np.inf
    ends = np.array([0, 0, 1] * 3)
    (tmp_path / "logs").mkdir()
    np.savez(tmp_path / "logs" / "a.npz", states=states, actions=actions, terminals=ends)
    np.savez(tmp_path / "logs" / "b.npz", states=states[:, :1], terminals=ends[:4])
    assert main(["data", "validate", str(tmp_path / "logs")]) == 2
    shown = capsys.readouterr()
    told = " ".join(shown.out.replace("│", " ").split())
    assert "modality 'states', episode 0, step 1: feature 1 is nan" in told
    assert "--reading.nan-is-absent on the command line, nan_is_absent=True in Python" in told
    assert "modality 'states', episode 2, step 1: feature 0 is nan" in told
    assert "modality 'actions', episode 1, step 1: feature 0 is inf" in told
    assert "all arrays need one row per step, but have: states 9, terminals 4" in told
    assert "4 fault(s)" in shown.err


def test_validation_tells_what_is_odd(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    states = rng.normal(size=(6, 11))
    states[:, 3] = 2.0
    with h5py.File(tmp_path / "odd.hdf5", "w") as file:
        file["observations"], file["actions"] = states, np.full((6, 3), 1.5)
        file["terminals"] = np.zeros(6)
        file.attrs["env_id"], file.attrs["max_episode_steps"] = "Hopper-v5", 5
    assert main(["data", "validate", str(tmp_path / "odd.hdf5")]) == 0
    told = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "terminals never fire in 6 steps" in told
    assert "episode 0 has 6 steps, the environment stops at 5" in told
    assert "modality 'states': feature(s) 3 never change" in told
    assert "episode 0, step 0: [1.5 1.5 1.5] is outside the bounds of Hopper-v5" in told


def test_several_states_and_no_action_are_odd(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_parquet(tmp_path / "log.parquet", LOG)
    words = ["data", "validate", path, "--reading.episode", "trial"]
    assert main(words) == 0
    told = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "no modality of role action; 3 of role state (x, y, u): join columns with --rea" in told
    words += ["--reading.columns", "states=x,y", "torque=u", "--reading.roles", "torque=action"]
    assert main(words) == 0
    assert "of role action" not in capsys.readouterr().out


def test_a_data_file_does_not_say_which_module_to_import(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "imported_by_a_file.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    with h5py.File(tmp_path / "log.hdf5", "w") as file:
        file["observations"], file["actions"] = np.zeros((4, 2)), np.arange(4.0)[:, None]
        file["terminals"] = [0, 0, 0, 1]
        file.attrs["env_id"] = "imported_by_a_file:Robot-v0"
    assert main(["data", "validate", str(tmp_path / "log.hdf5")]) == 0
    told = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "imported_by_a_file:Robot-v0 names a module, which is not imported" in told
