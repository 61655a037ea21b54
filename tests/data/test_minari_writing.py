"""What is written into Minari's store is what Minari loads, and what we read there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mtm.cli import main
from mtm.core.errors import DataError
from mtm.data import loading
from mtm.data.formats import minari_write
from mtm.data.trajectories import Metadata, TrajectoryDataset
from mtm.data.writing import write

minari = pytest.importorskip("minari", reason="minari is not installed (extra minari)")


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    monkeypatch.setattr(minari_write, "EPISODES_TOGETHER", 2)
    return tmp_path / "minari"


def data(**more: np.ndarray) -> TrajectoryDataset:
    rng = np.random.default_rng(0)
    arrays = {"states": rng.random((9, 4)), "actions": rng.random((9, 2)), "rewards": rng.random(9)}
    return TrajectoryDataset.from_arrays(
        {**arrays, **more},
        [0, 4, 6, 9],
        metadata=Metadata("logs", "Hopper-v5", 1000, {"description": "three hops"}),
        terminated=[True, False, True],
    )


def test_minari_loads_what_is_written() -> None:
    made = data()
    write([(made, {"error": np.arange(9.0)})], "minari:robot/hops-v0", "logs")
    found = minari.load_dataset("robot/hops-v0")
    assert (found.total_episodes, found.total_steps) == (3, 9)
    assert found.env_spec.id == "Hopper-v5"
    assert found.storage.metadata["description"] == "three hops"
    episode = found[1]
    np.testing.assert_array_equal(episode.observations[:-1], made.episode(1)["states"])
    np.testing.assert_array_equal(episode.observations[-1], episode.observations[-2])
    np.testing.assert_array_equal(episode.actions, made.episode(1)["actions"])
    np.testing.assert_allclose(episode.rewards, made.episode(1)["rewards"])
    assert episode.truncations.tolist() == [False, True]
    assert found[0].terminations.tolist() == [False, False, False, True]
    assert episode.infos["error"].tolist() == [0, 4, 5]
    assert "robot/hops-v0" in minari.list_local_datasets()


def test_it_comes_back_as_it_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = data()
    write([(made, {})], tmp_path / "log.npz", "logs")
    assert main(["data", "convert", str(tmp_path / "log.npz"), "minari:hops-v1"]) == 0
    assert "minari:hops-v1: 3 episodes, 9 steps" in capsys.readouterr().out
    back = loading.load("minari:hops-v1")
    assert back.modalities == made.modalities
    for name in made.names:
        np.testing.assert_array_equal(back.arrays[name], made.arrays[name])
    assert back.terminated is not None
    assert back.terminated.tolist() == [True, False, True]
    assert (back.metadata.env_id, back.metadata.horizon) == ("Hopper-v5", 1000)


def test_several_states_are_a_dict_and_classes_are_discrete() -> None:
    made = data(force=np.arange(9.0), gear=np.arange(9) % 3)
    write([(made, {})], "minari:hops-v2", "logs")
    space = minari.load_dataset("hops-v2").observation_space
    assert sorted(space.spaces) == ["force", "gear", "states"]
    assert space["gear"].n == 3
    back = loading.load("minari:hops-v2").episode(0)["states"]  # by sorted keys, gear one-hot
    assert back.shape == (4, 1 + 3 + 4)
    np.testing.assert_array_equal(back[:, 0], [0, 1, 2, 3])
    np.testing.assert_array_equal(back[:, 4:], made.episode(0)["states"])


def test_what_minari_cannot_hold_is_told(store: Path) -> None:
    made = data()
    known = np.ones(9, bool)
    known[5] = False
    with pytest.raises(DataError, match="'actions', episode 1, step 1: absent, .* knows no gaps"):
        write([(made.with_present({"actions": known}), {})], "minari:hops-v0", "logs")
    with pytest.raises(DataError, match="no modality of role 'action' among states"):
        write([(made.select(["states"]), {})], "minari:hops-v0", "logs")
    with pytest.raises(DataError, match="does not allow this name"):
        write([(made, {})], "minari:../hops", "logs")
    assert not [p for p in store.rglob("*") if p.is_file()]
    write([(made, {})], "minari:hops-v0", "logs")
    with pytest.raises(DataError, match="exists already"):
        write([(made, {})], "minari:hops-v0", "logs")
