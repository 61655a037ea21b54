"""Data sets are written so that every loader reads them, whole or not at all."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

import mtm
from mtm.core.errors import DataError
from mtm.core.reading import Reading
from mtm.data.loading import load
from mtm.data.modalities import Modality, Role
from mtm.data.trajectories import Metadata, TrajectoryDataset
from mtm.data.writing import write

NAMES = ("data.hdf5", "data.h5", "data.npz", "store")
NOTE = "actions_expected_error"


@pytest.fixture
def data() -> TrajectoryDataset:
    """Four episodes, one of them as long as the horizon; states have a gap, actions have none."""
    rng = np.random.default_rng(0)
    known = np.ones(20, bool)
    known[3] = False
    return TrajectoryDataset.from_arrays(
        {
            "states": rng.random((20, 2)),
            "actions": rng.random((20, 1)),
            "rewards": rng.random(20),
            "gear": rng.integers(3, size=20),
        },
        [0, 4, 12, 13, 20],
        present={"states": known},
        metadata=Metadata("logs", "Toy-v0", 8, {"robot": "arm"}),
    )


def parts(data: TrajectoryDataset):
    """Two episodes at a time; the marks of presence of all modalities with gaps in each."""
    for first in (0, 2):
        view = data.subset([first, first + 1])
        steps = slice(int(view.starts[0]), int(view.ends[-1]))
        piece = TrajectoryDataset(
            view.modalities,
            {name: array[steps] for name, array in view.arrays.items()},
            view.starts - steps.start,
            view.ends - steps.start,
            {name: data.known(name)[steps] for name in ("states", "actions")},
            view.metadata,
            view.terminated,
        )
        yield piece, {NOTE: np.arange(steps.start, steps.stop, dtype=np.float32)}


@pytest.mark.parametrize("name", NAMES)
def test_roles_that_names_do_not_tell_are_kept(data, tmp_path: Path, name: str) -> None:
    roles: dict[str, Role] = {"torque": "action", "was_present": "state", "score": "return"}
    for key, role in roles.items():
        data = data.with_modality(Modality(key, (), "continuous", 0, role), np.ones(20, np.float32))
    write(parts(data), tmp_path / name, "logs")
    found = load(str(tmp_path / name))
    assert {m.name: m.role for m in found.modalities} == {m.name: m.role for m in data.modalities}
    assert found.metadata.notes == {"robot": "arm"}
    said = load(str(tmp_path / name), Reading(roles={"torque": "state"}))
    assert said.modality("torque").role == "state"
    assert said.modality("score").role == "return"


@pytest.mark.parametrize("name", NAMES)
def test_what_is_written_is_read(data, tmp_path: Path, name: str) -> None:
    path = tmp_path / "new" / name
    write(parts(data), path, "logs")
    found = load(str(path))
    assert found.names == data.names
    assert np.array_equal(found.ends, data.ends)
    for key in data.names:
        known = data.known(key)
        assert np.array_equal(found.known(key), known)
        assert np.array_equal(found.arrays[key][known], data.arrays[key][known])
    assert set(found.present) == {"states"}
    assert found.modality("gear") == data.modality("gear")
    assert (found.metadata.env_id, found.metadata.horizon) == ("Toy-v0", 8)
    assert found.metadata.notes == {"robot": "arm"}
    assert [p.name for p in path.parent.iterdir()] == [name]


def test_notes_are_kept_beside(data, tmp_path: Path) -> None:
    for name in NAMES:
        write(parts(data), tmp_path / name, "logs")
    with h5py.File(tmp_path / "data.hdf5") as file:
        assert file[f"infos/{NOTE}"][()].tolist() == list(range(20))
    assert np.load(tmp_path / "store" / "infos" / f"{NOTE}.npy").tolist() == list(range(20))
    reading = Reading(columns={"states": "states", "doubt": f"infos/{NOTE}"})
    assert load(str(tmp_path / "data.npz"), reading).arrays["doubt"].tolist() == list(range(20))
    reading = Reading(columns={"states": "observations", "doubt": f"infos/{NOTE}"})
    assert load(str(tmp_path / "data.hdf5"), reading).names == ("states", "doubt")


@pytest.mark.parametrize("name", NAMES)
def test_a_note_does_not_replace_an_array_of_its_name(data, tmp_path: Path, name: str) -> None:
    notes = dict.fromkeys(("rewards", "offsets", "terminals", "states_present"), "as stored")
    noted = data.with_metadata(notes=notes | {"robot": "arm"})
    noted.terminated = np.array([True, False, True, False])
    write(parts(noted), tmp_path / name, "logs")
    found = load(str(tmp_path / name))
    assert np.array_equal(found.arrays["rewards"], data.arrays["rewards"])
    assert np.array_equal(found.ends, data.ends)
    assert found.terminated.tolist() == [True, False, True, False]
    assert found.known("states").tolist() == data.known("states").tolist()
    assert found.metadata.notes["robot"] == "arm"


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("data.hdf5", "terminals"),
        ("data.hdf5", "observations"),
        ("data.npz", "states_present"),
        ("data.npz", "offsets"),
    ],
)
def test_a_modality_with_a_name_of_the_layout(data, tmp_path: Path, file: str, name: str) -> None:
    named = data.with_modality(mtm.Modality(name), np.zeros(20, np.float32))
    with pytest.raises(DataError, match=f"two arrays of the file would be called '{name}'"):
        write([(named, {})], tmp_path / file, "logs")
    assert list(tmp_path.iterdir()) == []
    write([(named, {})], tmp_path / "store", "logs")
    assert name in load(str(tmp_path / "store")).names


def test_the_ends_of_episodes_in_hdf5(data, tmp_path: Path) -> None:
    write(parts(data), tmp_path / "data.hdf5", "logs")
    with h5py.File(tmp_path / "data.hdf5") as file:
        assert np.flatnonzero(file["terminals"]).tolist() == [3, 12, 19]
        assert np.flatnonzero(file["timeouts"]).tolist() == [11]
        assert "actions_present" not in file
    write(parts(data.with_metadata(horizon=None)), tmp_path / "open.hdf5", "logs")
    with h5py.File(tmp_path / "open.hdf5") as file:
        assert not file["terminals"][()].any()


@pytest.mark.parametrize("name", NAMES)
def test_endings_that_are_known_are_kept(data, tmp_path: Path, name: str) -> None:
    """They are not guessed from the horizon, by which the second alone would have timed out."""
    data.terminated = np.array([True, True, False, False])
    write(parts(data), tmp_path / name, "logs")
    assert load(str(tmp_path / name)).terminated.tolist() == [True, True, False, False]


def test_adroit_rewards_are_read_as_they_were(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    data = TrajectoryDataset.from_arrays(
        {"states": rng.random((6, 39)), "rewards": np.array([0.0, 1, 1, 0, 1, 0])},
        [0, 3, 6],
        metadata=Metadata("door", "AdroitHandDoor-v1", 200),
    )
    write([(data, {})], tmp_path / "door.hdf5", "door")
    assert load(str(tmp_path / "door.hdf5")).arrays["rewards"].tolist() == [0, 1, 1, 0, 1, 0]


@pytest.mark.parametrize("name", NAMES)
def test_a_place_that_is_taken_is_refused(data, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(DataError, match="exists already"):
        write(parts(data), tmp_path / name, "logs")
    assert (tmp_path / name).read_text() == "mine"


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_left_when_writing_fails(data, tmp_path: Path, name: str) -> None:
    def failing():
        yield next(parts(data))
        raise DataError("the model is gone")

    with pytest.raises(DataError, match="the model is gone"):
        write(failing(), tmp_path / name, "logs")
    assert list(tmp_path.iterdir()) == []


def test_kinds_that_are_not_written(data, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"\.parquet is not written. Choose .*\.hdf5, \.h5, \.npz"):
        write(parts(data), tmp_path / "data.parquet", "logs")


def test_a_folder_that_cannot_be_made(data, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="could not write"):
        write(parts(data), tmp_path / "file" / "data.npz", "logs")


def test_single_values_of_an_npz(tmp_path: Path) -> None:
    arrays = {"states": np.zeros((4, 2)), "offsets": [0, 4]}
    np.savez(tmp_path / "a.npz", **arrays, max_episode_steps=-3)
    with pytest.raises(DataError, match="max_episode_steps is -3"):
        mtm.load_dataset(str(tmp_path / "a.npz"))
    np.savez(tmp_path / "b.npz", **arrays, speed=3.0)
    with pytest.raises(DataError, match="'speed' is a single number"):
        mtm.load_dataset(str(tmp_path / "b.npz"))
