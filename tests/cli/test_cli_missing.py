"""`mtm train --drop` and `mtm relabel`, as a user types them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mtm
from mtm.cli import main

TRAIN = ["train", "--data", "builtin:point-mass", "--preset", "tiny", "--steps", "4"]
MISSING = ["--drop", "actions=0.9", "--gaps", "states=0.05", "--complete-share", "0.5"]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> str:
    path = str(tmp_path_factory.mktemp("cli") / "run")
    assert main([*TRAIN, *MISSING, "--out", path]) == 0
    return path


def test_a_run_remembers_what_it_took_away(run: str, capsys) -> None:
    settings = json.loads((Path(run) / "config.json").read_text())["train"]
    assert (settings["drop"], settings["gaps"]) == ({"actions": 0.9}, {"states": 0.05})
    assert settings["complete_share"] == 0.5
    assert main(["eval", run, "--tasks", "fd", "id"]) == 0
    assert "inverse dynamics" in capsys.readouterr().out
    assert main(["train", "--out", run, "--resume", "--drop", "actions=0.8"]) == 2
    assert "drop.actions: 0.9 -> 0.8" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--drop", "actions"], "'actions' is not of the form NAME=NUMBER"),
        (["--drop", "actions=most"], "'actions=most' is not of the form NAME=NUMBER"),
        (["--drop", "actions=0.1", "actions=0.2"], "'actions=0.2' names actions a second time"),
        (["--drop", "actions=1.2"], "drop of 'actions' must be in [0, 1], got 1.2"),
        (["--gaps", "states=nan"], "gaps of 'states' must be finite and in [0, 1], got nan"),
        (["--mask-weights", "actions=inf"], "mask_weights of 'actions' must be finite"),
        (["--reading.columns", "states="], "'states=' is not of the form NAME=VALUE,VALUE"),
        (["--reading.roles", "u=agent"], "unknown role in reading.roles: 'agent'"),
        (["--gaps", "action=0.1"], "Did you mean 'actions'"),
        (["--drop", "rewards=0.5"], "name returns"),
        (["--drop", "actions=1"], "'actions' is absent in every step of the training split"),
        (["--complete-share", "2"], "complete_share must be in [0, 1]"),
    ],
)
def test_faults_are_told_before_anything_is_written(words, message, tmp_path, capsys) -> None:
    out = tmp_path / "run"
    assert main([*TRAIN, *words, "--out", str(out)]) == 2
    assert message in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize("name", ["full.hdf5", "full.npz", "full"])
def test_relabel_what_was_taken_away(run: str, tmp_path: Path, name: str, capsys) -> None:
    out = tmp_path / name
    words = ["relabel", run, "--want", "actions,states", "--out", str(out)]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert all(len(line) <= 80 for line in printed.splitlines() if "full" not in line)
    assert "surest" in printed
    assert "380 episodes, 19,000 steps; filled: 17,100 actions" in printed.replace("\n", " ")
    found = mtm.load_dataset(str(out))
    assert found.names == ("states", "actions", "rewards")
    assert found.present == {}
    assert main([*words]) == 2
    assert "exists already" in capsys.readouterr().err


def test_relabel_logs_with_nan(run: str, tmp_path: Path, capsys) -> None:
    whole = mtm.load_dataset("builtin:point-mass").subset(np.arange(3))
    actions = whole.arrays["actions"][:150].copy()
    actions[10:20] = np.nan
    np.savez(
        tmp_path / "log.npz",
        joints=whole.arrays["states"][:150],
        actions=actions,
        offsets=[0, 50, 150],
    )
    words = ["relabel", run, "--data", str(tmp_path / "log.npz"), "--want", "actions"]
    words += ["--reading.columns", "states=joints", "actions=actions"]
    assert main([*words, "--out", str(tmp_path / "full.npz")]) == 0
    assert "filled: 10 actions" in capsys.readouterr().out
    full = mtm.load_dataset(str(tmp_path / "full.npz"))
    known = ~np.isnan(actions).any(axis=1)
    assert np.array_equal(full.arrays["actions"][known], actions[known])
    with np.load(tmp_path / "full.npz") as file:
        assert np.array_equal(file["infos/actions_expected_error"] == 0, known)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--want", "torque"], "unknown modality 'torque'"),
        (["--want", "returns", "--data", "builtin:point-mass"], "nothing to fill"),
        (["--want", "actions", "--data", "builtin:hopper"], "this model was trained on values of"),
        (["--want", "actions", "--data", "nowhere.npz"], "no data set at 'nowhere.npz'"),
    ],
)
def test_what_cannot_be_relabelled(run: str, tmp_path: Path, words, message, capsys) -> None:
    assert main(["relabel", run, *words, "--out", str(tmp_path / "full.npz")]) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def own_run(tmp_path_factory) -> str:
    """A run whose data have columns of their own names; every fourth trial has no torque."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "logs").mkdir()
    rng = np.random.default_rng(0)
    for trial in range(8):
        rows = {"trial": np.full(12, trial), "x": rng.random(12), "v": rng.random(12)}
        if trial % 4:
            rows["u"] = rng.random(12)
        np.savez(folder / "logs" / f"{trial}.npz", **rows)
    words = ["train", "--data", str(folder / "logs"), "--preset", "tiny", "--steps", "2"]
    words += ["--reading.columns", "states=x,v", "torque=u", "--reading.roles", "torque=action"]
    assert main([*words, "--reading.episode", "trial", "--out", str(folder / "run")]) == 0
    return str(folder / "run")


@pytest.fixture
def log(tmp_path: Path) -> str:
    """A log without torque."""
    rng = np.random.default_rng(1)
    rows = {"trial": np.arange(20) // 10, "x": rng.random(20), "v": rng.random(20)}
    pq.write_table(pa.table(rows), tmp_path / "log.parquet")
    return str(tmp_path / "log.parquet")


def test_relabel_a_file_that_lacks_what_the_run_s_reading_names(
    own_run: str, log: str, tmp_path: Path, capsys
) -> None:
    words = ["relabel", own_run, "--data", log, "--want", "torque"]
    assert main([*words, "--out", str(tmp_path / "full.npz")]) == 0
    assert "filled: 20 torque" in capsys.readouterr().out
    assert mtm.load_dataset(str(tmp_path / "full.npz")).names == ("states", "torque")
    own = ["--reading.columns", "states=x,v", "torque=uu", "--reading.episode", "trial"]
    assert main([*words, *own, "--out", str(tmp_path / "other.npz")]) == 2
    assert "unknown column 'uu'" in capsys.readouterr().err


def test_predict_from_a_file_that_lacks_what_the_run_s_reading_names(
    own_run: str, log: str, tmp_path: Path, capsys
) -> None:
    out = tmp_path / "torque.npz"
    words = ["predict", own_run, "--input", log, "--want", "torque", "--output", str(out)]
    assert main([*words, "--given", "states"]) == 0
    assert mtm.load_dataset(str(out)).lengths.tolist() == [10, 10]
    out.unlink()
    assert main([*words, "--given", "states,torque"]) == 2
    assert "unknown modality 'torque'" in capsys.readouterr().err
