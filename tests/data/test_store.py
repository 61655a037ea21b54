"""Stores: what goes in comes out, they open without reading, and damage is noticed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mtm.cli import main
from mtm.core.atomic_write import HOST
from mtm.core.config import TrainConfig
from mtm.core.errors import DataError
from mtm.core.reading import Reading
from mtm.data import loading
from mtm.data.formats.store import open_store, write_store
from mtm.data.modalities import Modality
from mtm.data.segments import Segments
from mtm.data.trajectories import Metadata, TrajectoryDataset
from mtm.training.train import train


@pytest.fixture
def with_gaps() -> TrajectoryDataset:
    rng = np.random.default_rng(0)
    return TrajectoryDataset.from_arrays(
        {
            "states": rng.normal(size=(20, 3)),
            "actions": rng.normal(size=(20, 2)),
            "phase": rng.integers(4, size=20),
        },
        [0, 4, 11, 20],
        present={"actions": np.arange(20) % 3 > 0},
        metadata=Metadata(source="log", env_id="Hopper-v5", horizon=9, notes={"by": "hand"}),
    )


@pytest.fixture
def store(with_gaps: TrajectoryDataset, tmp_path: Path) -> Path:
    write_store([with_gaps], tmp_path / "store", "log")
    return tmp_path / "store"


def test_what_goes_in_comes_out(with_gaps: TrajectoryDataset, store: Path) -> None:
    opened = loading.load(str(store))
    assert opened.fingerprint == with_gaps.fingerprint
    assert opened.modalities == with_gaps.modalities
    assert opened.metadata.to_json() == with_gaps.metadata.to_json()
    numbers = np.arange(5)
    ours, theirs = Segments(opened, 3).gather(numbers), Segments(with_gaps, 3).gather(numbers)
    assert np.array_equal(ours.present, theirs.present)
    for name, values in theirs.values.items():
        assert np.array_equal(ours.values[name], values)


def test_a_batch_is_read_in_one_piece(with_gaps: TrajectoryDataset, store: Path) -> None:
    """Also from a part of the episodes and of the modalities, with one of them in memory."""
    opened = open_store(store)
    view = opened.subset([2, 1]).select(["states", "phase"])
    batch = Segments(view, 4).gather(np.arange(3))
    assert batch.values["states"].base is batch.values["phase"].base is not None
    doubled = opened.with_modality(Modality("twice", (3,)), opened.arrays["states"] * 2)
    batch = Segments(doubled, 4).gather(np.arange(len(Segments(doubled, 4))))
    assert np.array_equal(batch.values["twice"], batch.values["states"] * 2)


def test_large_records_are_not_read_whole(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = {"states": rng.random((9, 2)), "images": rng.random((9, 40, 40))}
    write_store([TrajectoryDataset.from_arrays(arrays, [0, 5, 9])], tmp_path / "store", "log")
    states = Segments(open_store(tmp_path / "store").select(["states"]), 3)
    taken = states.gather(np.arange(len(states))).values["states"]
    assert np.array_equal(taken[3], arrays["states"][5:8].astype(np.float32))
    assert taken.base is None or taken.base.nbytes == taken.nbytes


@pytest.mark.parametrize("segment_length", [1, 3, 6])
def test_batches_are_those_of_memory(
    with_gaps: TrajectoryDataset, store: Path, segment_length: int
) -> None:
    """With whole segments, read in one piece, and with padded ones."""
    ours = Segments(open_store(store), segment_length)
    theirs = Segments(with_gaps, segment_length)
    numbers = np.random.default_rng(0).permutation(len(theirs))
    batch, expected = ours.gather(numbers), theirs.gather(numbers)
    assert np.array_equal(batch.present, expected.present)
    assert np.array_equal(ours.present(numbers), expected.present)
    for name, values in expected.values.items():
        assert batch.values[name].dtype == values.dtype
        assert np.array_equal(batch.values[name], values)


def test_parts_are_joined_as_a_directory_is(tmp_path: Path) -> None:
    """Also where a modality is there in some of the files only."""
    folder = tmp_path / "logs"
    folder.mkdir()
    ends = np.array([0, 0, 1, 0, 0, 1], np.float32)
    states = np.arange(12, dtype=np.float32).reshape(6, 2)
    np.savez(folder / "a.npz", states=states, terminals=ends)
    np.savez(folder / "b.npz", states=-states, actions=states[:, :1], terminals=ends)
    np.savez(folder / "c.npz", actions=states[:, :1], terminals=ends)
    joined = loading.load(str(folder))
    write_store(loading.load_parts(str(folder)), tmp_path / "store", "logs")
    opened = open_store(tmp_path / "store")
    for name in ("states", "actions"):
        known = joined.known(name)
        assert np.array_equal(opened.known(name), known)
        assert np.array_equal(opened.arrays[name][known], joined.arrays[name][known])
    assert np.array_equal(opened.ends, joined.ends)


def test_a_view_is_stored_without_the_rest(with_gaps: TrajectoryDataset, tmp_path: Path) -> None:
    write_store([with_gaps.subset([2, 0])], tmp_path / "store", "part")
    opened = open_store(tmp_path / "store")
    assert opened.lengths.tolist() == [9, 4]
    assert np.array_equal(opened.episode(1)["states"], with_gaps.episode(0)["states"])


def test_nothing_is_left_of_a_store_that_failed(
    with_gaps: TrajectoryDataset, tmp_path: Path
) -> None:
    other = TrajectoryDataset.from_arrays({"states": np.zeros((3, 7))}, [0, 3])
    with pytest.raises(DataError, match=r"memory: modality 'states' is .*\(7,\), but"):
        write_store([with_gaps, other], tmp_path / "store", "log")
    assert list(tmp_path.iterdir()) == []


def test_a_store_is_on_disk_before_it_has_its_name(
    with_gaps: TrajectoryDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after = set(), set()

    def fsync(descriptor: int) -> None:
        named = (tmp_path / "store").exists()
        (after if named else before).add(os.fstat(descriptor).st_ino)

    monkeypatch.setattr(os, "fsync", fsync)
    write_store([with_gaps], tmp_path / "store", "log")
    assert {file.stat().st_ino for file in (tmp_path / "store").iterdir()} <= before
    assert tmp_path.stat().st_ino in after


def test_two_processes_do_not_share_an_unfinished_store(
    with_gaps: TrajectoryDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second is faster; what the first has written is not mixed with it."""

    def interrupted() -> Iterator[TrajectoryDataset]:
        yield with_gaps
        with monkeypatch.context() as other:
            other.setattr(os, "getpid", os.getppid)
            write_store([with_gaps.subset([1])], tmp_path / "store", "other")

    with pytest.raises(DataError, match="exists already"):
        write_store(interrupted(), tmp_path / "store", "log")
    assert open_store(tmp_path / "store").metadata.source == "other"
    assert open_store(tmp_path / "store").lengths.tolist() == [7]
    assert [file.name for file in tmp_path.iterdir()] == ["store"]


@pytest.mark.skipif(os.name != "posix", reason="processes are not looked for elsewhere")
def test_what_a_killed_process_left_is_removed(
    with_gaps: TrajectoryDataset, tmp_path: Path
) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    for process in (ended.pid, os.getppid()):
        (tmp_path / f".store.tmp-{HOST}-{process}").mkdir()
    (tmp_path / f".store.tmp-elsewhere-{ended.pid}").mkdir()  # of another machine
    write_store([with_gaps], tmp_path / "store", "log")
    left = {file.name for file in tmp_path.iterdir()}
    others = {f".store.tmp-{HOST}-{os.getppid()}", f".store.tmp-elsewhere-{ended.pid}"}
    assert left == {"store", *others}


def test_a_place_that_is_taken_is_left_alone(store: Path, with_gaps: TrajectoryDataset) -> None:
    with pytest.raises(DataError, match="exists already"):
        write_store([with_gaps], store, "log")
    assert open_store(store).num_steps == 20


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            lambda p: (p / "steps.bin").write_bytes(b"123"),
            r"steps.bin has 3 bytes; .*20 x 32 bytes",
        ),
        (lambda p: (p / "steps.bin").unlink(), "steps.bin is missing"),
        (lambda p: _change(p, "gaps", ["states", "actions", "phase"]), "is damaged: .* fields"),
        (lambda p: _change(p, "version", 1), "has version 1, .* Convert again"),
        (lambda p: (p / "manifest.json").write_text("{"), "manifest.json cannot be read as JSON"),
        (lambda p: _change(p, "version", 99), "has version 99"),
        (lambda p: _change(p, "format", "other"), "is no manifest of a store"),
        (lambda p: _change(p, "steps", "many"), "manifest.json is damaged: ValueError"),
        (lambda p: _change(p, "modalities", [{"name": "states"}]), "is damaged: KeyError"),
        (
            lambda p: _change(p, "modalities", [{"name": "states", "shape": [], "role": "zeward"}]),
            "manifest.json: unknown role of modality 'states': 'zeward'",
        ),
        (lambda p: _change(p, "episodes", 2), "offsets.bin has 32 bytes"),
        (
            lambda p: (p / "offsets.bin").write_bytes(np.array([0, 9, 5, 20], "<i8").tobytes()),
            "offsets.bin does not cut 20 steps into 3 episodes",
        ),
    ],
)
def test_a_damaged_store_is_refused(store: Path, damage, message: str) -> None:
    damage(store)
    with pytest.raises(DataError, match=message):
        loading.load(str(store))


def _change(store: Path, key: str, value: object) -> None:
    manifest = json.loads((store / "manifest.json").read_text())
    (store / "manifest.json").write_text(json.dumps(manifest | {key: value}))


@pytest.fixture(scope="module")
def small_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mutated") / "store"
    dataset = TrajectoryDataset.from_arrays({"states": np.ones((6, 2))}, [0, 2, 6])
    write_store([dataset], folder, "log")
    (folder / "manifest.json").rename(folder / "sound.json")
    return folder


@pytest.mark.filterwarnings("ignore:.* without digests")
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_mutated_manifest_opens_or_is_refused(small_store: Path, data: st.DataObject) -> None:
    folder = small_store
    manifest = json.loads((folder / "sound.json").read_text())
    key = data.draw(st.sampled_from(sorted(manifest)))
    scalars = st.none() | st.booleans() | st.integers(-3, 10**12) | st.text(max_size=3)
    manifest[key] = data.draw(scalars | st.lists(scalars, max_size=2))
    (folder / "manifest.json").write_text(json.dumps(manifest))
    try:
        opened = loading.load(str(folder))
    except DataError:
        return
    assert opened.num_steps == 6


def test_convert_and_info_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", "convert", "builtin:sinusoids", str(tmp_path / "waves")]) == 0
    assert "400 episodes, 20,000 steps" in capsys.readouterr().out
    assert main(["data", "info", str(tmp_path / "waves")]) == 0
    out = capsys.readouterr().out
    assert loading.load("builtin:sinusoids").fingerprint in out


def test_training_on_a_store_is_training_in_memory(
    point_mass: TrajectoryDataset, tiny: TrainConfig, tmp_path: Path
) -> None:
    write_store([point_mass], tmp_path / "store", point_mass.metadata.source)
    stored = train(str(tmp_path / "store"), tiny, tmp_path / "a", silent=True)
    in_memory = train(point_mass, tiny, tmp_path / "b", silent=True)
    ours, theirs = stored.model.state_dict(), in_memory.model.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def _spoil(store: Path, field: str, step: int, value: object) -> None:
    """Change a value of a store behind its back."""
    records = np.memmap(store / "steps.bin", _records(store), mode="r+")
    records[field][step] = value
    records.flush()


def _records(store: Path) -> np.dtype:
    opened = open_store(store)
    return opened.arrays[opened.names[0]].base.dtype


def _without_digests(store: Path) -> None:
    """As earlier versions wrote it."""
    manifest = json.loads((store / "manifest.json").read_text())
    del manifest["sha256"]
    (store / "manifest.json").write_text(json.dumps(manifest))
    (store / "digests.bin").unlink()


@pytest.fixture
def many(tmp_path: Path) -> Path:
    """A store of several blocks, 100 episodes of 50 steps."""
    rng = np.random.default_rng(0)
    data = {"states": rng.normal(size=(5000, 6)), "phase": rng.integers(4, size=5000)}
    dataset = TrajectoryDataset.from_arrays(data, np.arange(0, 5001, 50))
    write_store([dataset], tmp_path / "many", "log")
    return tmp_path / "many"


DAMAGED = r"steps.bin: bytes 131,072 to 147,455 are not what was written \(steps 4,096 to 4,607, "


def test_a_block_is_compared_when_it_is_first_read(many: Path) -> None:
    _spoil(many, "states", 4200, np.nan)
    opened = open_store(many)
    segments = Segments(opened, 4)
    segments.gather(np.arange(40))
    assert np.isfinite(opened.episode(3)["states"]).all()
    with pytest.raises(DataError, match=DAMAGED + "of episodes 81 to 92"):
        segments.gather(np.array([4200 // 50 * 47]))
    with pytest.raises(DataError, match=DAMAGED):
        opened.episode(84)
    with pytest.raises(DataError, match=DAMAGED):
        list(opened.subset([84]).chunks("states"))
    with pytest.raises(DataError, match=DAMAGED):
        loading.load(str(many), Reading(columns={"x": "states"}))


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("states", np.nan, "modality 'states', episode 84, step 0: feature 0 is nan"),
        ("phase", 4, "modality 'phase', episode 84, step 0: class 4 is outside 0 to 3"),
        ("states", 1.5, "have the fingerprint"),
    ],
)
@pytest.mark.filterwarnings("ignore:.* without digests")
def test_validation_reads_all_of_a_store(
    many: Path, field: str, value: float, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", "validate", str(many)]) == 0
    _spoil(many, field, 4200, value)
    assert main(["data", "validate", str(many)]) == 2
    assert "are not what was written" in _line(capsys)
    _without_digests(many)
    assert main(["data", "validate", str(many)]) == 2
    assert message in _line(capsys)


def _line(capsys: pytest.CaptureFixture[str]) -> str:
    """What was printed, without the breaks and borders of a table."""
    return " ".join(capsys.readouterr().out.replace("│", " ").split())


def test_a_store_without_digests_opens_with_a_notice(many: Path) -> None:
    _without_digests(many)
    with pytest.warns(UserWarning, match="without digests.*Convert again"):
        assert open_store(many).num_steps == 5000


@pytest.mark.parametrize("name", ["offsets", "digests"])
def test_small_files_are_compared_when_a_store_is_opened(many: Path, name: str) -> None:
    file = many / f"{name}.bin"
    content = bytearray(file.read_bytes())
    content[8] ^= 1
    file.write_bytes(content)
    with pytest.raises(DataError, match=f"{name}.bin is not what was written"):
        open_store(many)


@pytest.mark.usefixtures("_one_thread")
@pytest.mark.filterwarnings("ignore:.* without digests")
@pytest.mark.parametrize("digests", [True, False])
def test_training_does_not_go_on_with_other_contents(
    many: Path, tiny: TrainConfig, tmp_path: Path, digests: bool
) -> None:
    if not digests:
        _without_digests(many)
    train(str(many), tiny, tmp_path / "run", stop_at=1, silent=True)
    _spoil(many, "states", slice(None), 0.5)
    with pytest.raises(DataError, match="not what was written" if digests else "fingerprint"):
        train(str(many), tiny, tmp_path / "run", resume=True, silent=True)
    _spoil(many, "phase", 3, 99)
    with pytest.raises(DataError, match="not what was written" if digests else "class 99"):
        train(str(many), tiny, tmp_path / "new", silent=True)
