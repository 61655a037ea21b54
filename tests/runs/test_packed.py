"""A run in one file: the same answers, the same bytes, and nothing that is not as it should be."""

from __future__ import annotations

import io
import json
import shutil
import stat
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mtm
from mtm.core.config import TrainConfig
from mtm.core.errors import ConfigError, DataError, RunError
from mtm.data.trajectories import TrajectoryDataset
from mtm.deploy.sharing import pack
from mtm.runs import checkpoint
from mtm.runs.bundle import CONFIG, MANIFEST, Files, seal
from mtm.runs.packed import REGULAR_FILE, WRITTEN, read_packed, write_packed
from mtm.runs.run import Run

WEIGHTS = "checkpoints/step-000000020/model.safetensors"
STATE = "checkpoints/step-000000020/state.json"
STATES = np.linspace(-1, 1, 20, dtype=np.float32).reshape(5, 4)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, point_mass: TrajectoryDataset) -> Run:
    config = TrainConfig.from_json(
        {"steps": 20, "batch_size": 16, "validate_every": 10, "checkpoint_every": 10}
        | {"validation_segments": 64, "model": {"width": 16, "encoder_layers": 1, "heads": 2}}
    )
    return mtm.train(point_mass, config, tmp_path_factory.mktemp("runs") / "run", silent=True)


@pytest.fixture
def file(run: Run, tmp_path: Path) -> Path:
    pack(run.path, tmp_path / "run.mtm", licence="mit")
    return tmp_path / "run.mtm"


def zipped(members: list[tuple[zipfile.ZipInfo, bytes]], how: int = zipfile.ZIP_STORED) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", how) as archive:
        for member, content in members:
            archive.writestr(member, content, how)
    return data.getvalue()


def member(name: str, **attributes: Any) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, WRITTEN)
    info.create_system, info.external_attr = 3, REGULAR_FILE
    for key, value in attributes.items():
        setattr(info, key, value)
    return info


def members_of(file: Path) -> list[tuple[zipfile.ZipInfo, bytes]]:
    return [(member(name), content) for name, content in read_packed(file).items()]


def test_a_packed_run_answers_as_the_run(run: Run, file: Path) -> None:
    loaded = mtm.load_run(file)
    assert np.array_equal(mtm.inverse_dynamics(loaded, STATES), mtm.inverse_dynamics(run, STATES))
    assert loaded.path == file
    assert loaded.state == run.state
    assert mtm.load_run(str(file), 20).step == mtm.load_run(file, "best").step == 20
    with pytest.raises(RunError, match="with the checkpoint of step 20 alone, not 10"):
        mtm.load_run(file, 10)


def test_the_same_run_gives_the_same_bytes(run: Run, file: Path, tmp_path: Path) -> None:
    pack(run.path, tmp_path / "again.mtm", licence="mit")
    assert (tmp_path / "again.mtm").read_bytes() == file.read_bytes()


def test_what_is_in_it(run: Run, file: Path) -> None:
    files = read_packed(file)
    assert list(files) == [MANIFEST, "README.md", WEIGHTS, STATE, CONFIG]
    assert b"license: mit" in files["README.md"]
    assert run.description.data["fingerprint"].encode() in files["README.md"]
    assert json.loads(files[STATE])["sha256"].keys() == {"model.safetensors"}


def test_the_best_checkpoint(run: Run, tmp_path: Path) -> None:
    place = tmp_path / "run"
    shutil.copytree(run.path, place)
    state = place / "checkpoints" / "step-000000010" / "state.json"
    plain = json.loads(state.read_text())
    plain["validation"]["loss"] = -100.0
    del plain["state_sha256"]  # as earlier versions wrote it
    state.write_text(json.dumps(plain))
    pack(place, tmp_path / "best.mtm", "best")
    assert mtm.load_run(tmp_path / "best.mtm").step == 10
    pack(place, tmp_path / "last.mtm")
    assert mtm.load_run(tmp_path / "last.mtm", "best").step == 20  # the only one that there is


def test_paths_of_the_machine_stay_at_home(run: Run, tmp_path: Path) -> None:
    data = tmp_path / "private" / "log.npz"
    data.parent.mkdir()
    np.savez(data, states=np.zeros((40, 2)), actions=np.ones((40, 1)), offsets=[0, 20, 40])
    config = replace(mtm.preset("tiny"), steps=2)
    made = mtm.train(str(data), config, tmp_path / "private" / "run", silent=True)
    result = mtm.evaluate(made, mtm.EvalConfig(tasks=("id",)), say=lambda text: None)
    (made.path / "evaluation.json").write_text(json.dumps(result))
    files = pack(made.path, tmp_path / "run.mtm")
    assert json.loads(files["evaluation.json"])["tasks"]["id"] is not None
    assert b"inverse dynamics" in files["README.md"]
    assert b"log.npz" in files["README.md"]
    for content in files.values():
        assert b"private" not in content


def test_an_evaluation_of_other_weights_is_left_out(run: Run, tmp_path: Path) -> None:
    place = tmp_path / "run"
    shutil.copytree(run.path, place)
    (place / "evaluation.json").write_text(json.dumps({"weights": "0", "data": "x"}))
    with pytest.warns(UserWarning, match="is of other weights"):
        files = pack(place, tmp_path / "run.mtm")
    assert "evaluation.json" not in files


def test_unpacked_it_is_a_run_directory_that_cannot_be_trained(file: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(file) as archive:
        archive.extractall(tmp_path / "run")
    loaded = mtm.load_run(tmp_path / "run")
    assert loaded.step == 20
    with pytest.raises(RunError, match="was shared without the optimizer's averages"):
        checkpoint.load(tmp_path / "run" / "checkpoints")


def test_nothing_is_replaced(run: Run, file: Path, tmp_path: Path) -> None:
    before = file.read_bytes()
    with pytest.raises(DataError, match="exists already"):
        pack(run.path, file)
    assert file.read_bytes() == before
    with pytest.raises(ConfigError, match="is shared already"):
        pack(file, tmp_path / "another.mtm")
    with pytest.raises(RunError, match="there is no directory"):
        pack(tmp_path / "nothing", tmp_path / "another.mtm")
    with pytest.raises(ConfigError, match="must be an identifier such as mit"):
        pack(run.path, tmp_path / "another.mtm", licence="mit\nprivate: no")
    assert {p.name for p in tmp_path.iterdir()} == {"run.mtm"}


def test_a_file_that_is_no_packed_run(tmp_path: Path) -> None:
    for content in (b"", b"no", b"PK\5\6" + bytes(18), bytes(1000)):
        (tmp_path / "x").write_bytes(content)
        with pytest.raises(RunError, match="packed run"):
            mtm.load_run(tmp_path / "x")
    with pytest.raises(RunError, match="there is no directory"):
        mtm.load_run(tmp_path / "nothing.mtm")


BAD_NAMES = ("../config.json", "/etc/passwd", "checkpoints/../config.json", "C:\\x", "config.json/")
BAD_NAMES += ("model.pkl", "checkpoints/step-1/state.json", "checkpoints\\x")


@pytest.mark.parametrize("name", BAD_NAMES)
def test_names_that_are_refused(file: Path, name: str) -> None:
    file.write_bytes(zipped([*members_of(file), (member(name), b"x")]))
    with pytest.raises(RunError, match="which is no part of a packed run"):
        read_packed(file)


def test_a_name_with_more_behind_its_end(file: Path) -> None:
    file.write_bytes(file.read_bytes().replace(b"README.md", b"README\0md"))
    with pytest.raises(RunError, match="which is no part of a packed run"):
        read_packed(file)


def bad_members(members: list[tuple[zipfile.ZipInfo, bytes]]) -> dict[str, bytes]:
    """What somebody might try, and the error that it gives."""
    first, *rest = members
    link = member(CONFIG, external_attr=(stat.S_IFLNK | 0o777) << 16)
    others = [m for m in members if m[0].filename != CONFIG]
    with_extra = (member(MANIFEST, extra=b"\x01\x00\x04\x00abcd"), first[1])
    whole = zipped(members)
    return {
        "is compressed": zipped(members, zipfile.ZIP_DEFLATED),
        "is a link": zipped([*others, (link, b"/etc/passwd")]),
        "attributes of its own": zipped([with_extra, *rest]),
        "does not account for|bytes before": b"#!/bin/sh\n" + whole,
        "does not end as a plain zip": whole + b"more",
        "lacks": zipped(members[:-1]),
        "has no manifest": zipped(rest),
        "claims 7 members": zipped([*members, (member("a"), b""), (member("b"), b"")]),
    }


def test_zips_that_are_refused(file: Path) -> None:
    for reason, content in bad_members(members_of(file)).items():
        file.write_bytes(content)
        with pytest.raises(RunError, match=reason):
            read_packed(file)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_twice(file: Path) -> None:
    members = members_of(file)
    file.write_bytes(zipped([*members, (member(CONFIG), members[-1][1])]))
    with pytest.raises(RunError, match="holds config.json twice"):
        read_packed(file)


def test_a_comment_is_refused(file: Path) -> None:
    with zipfile.ZipFile(file, "a") as archive:
        archive.comment = b"hello"
    with pytest.raises(RunError, match="does not end as a plain zip"):
        read_packed(file)


def test_a_size_that_is_claimed_is_not_believed(file: Path) -> None:
    """4 GB of a text, claimed in both headers: refused before anything is read."""
    data = bytearray(file.read_bytes())
    central = data.index(b"PK\1\2")
    for place in (central + 20, central + 24):
        data[place : place + 4] = (0xFFFFFFF0).to_bytes(4, "little")
    file.write_bytes(data)
    with pytest.raises(RunError, match=r"manifest.json has 4,294,967,280 bytes; allowed are"):
        read_packed(file)


def altered(file: Path, name: str, alter: Callable[[dict[str, Any]], None]) -> None:
    """Pack again what has other content, with a manifest that fits."""
    files = read_packed(file)
    plain = json.loads(files[name])
    alter(plain)
    changed = files | {name: json.dumps(plain).encode()}
    file.unlink()
    if name == MANIFEST:
        write_packed(file, changed)
    else:
        write_packed(file, seal({n: c for n, c in changed.items() if n != MANIFEST}))


ALTERED: dict[str, tuple[str, Callable[[dict[str, Any]], None], str]] = {
    "newer": (MANIFEST, lambda p: p.update(format=99), "reads up to 1; upgrade mtm"),
    "no table": (MANIFEST, lambda p: p.update(files=[]), "is damaged"),
    "no number": (MANIFEST, lambda p: p["files"][CONFIG].update(bytes="x"), "is damaged"),
    "another digest": (MANIFEST, lambda p: p["files"][CONFIG].update(sha256="0"), "not what was"),
    "another size": (MANIFEST, lambda p: p["files"][CONFIG].update(bytes=1), "not what was"),
    "too large": (MANIFEST, lambda p: p["files"][CONFIG].update(bytes=1 << 40), "allowed are up"),
    "no config": (MANIFEST, lambda p: p["files"].pop(CONFIG), "it is no run"),
    "no modalities": (CONFIG, lambda p: p.pop("modalities"), "config.json is damaged: KeyError"),
    "words": (CONFIG, lambda p: p.update(normalizer={"states": {"mean": "x"}}), "is damaged"),
    "no data": (CONFIG, lambda p: p.update(data=3), "is damaged"),
    "another width": (CONFIG, lambda p: p["train"]["model"].update(width=32), "do not fit"),
    "giant": (CONFIG, lambda p: p["train"]["model"].update(width=65_536), "do not fit"),
    "giants": (
        CONFIG,
        lambda p: p["train"]["model"].update(encoder_layers=1024, members=256),
        "do not fit",
    ),
    "shape": (CONFIG, lambda p: p["modalities"][0].update(shape=[10**7]), "is damaged"),
    "state": (STATE, lambda p: p.pop("step"), "cannot be read"),
    "weights": (STATE, lambda p: p["sha256"].update({"model.safetensors": "0"}), "cannot be read"),
}


@pytest.mark.parametrize("case", ALTERED)
def test_content_of_strangers(file: Path, case: str) -> None:
    name, alter, reason = ALTERED[case]
    altered(file, name, alter)
    with pytest.raises(RunError, match=reason):
        mtm.load_run(file)


def test_nesting_without_end(file: Path) -> None:
    files = read_packed(file)
    for name in (CONFIG, STATE):
        deep: Files = {**files, name: b"[" * 200_000}
        deep.pop(MANIFEST)
        file.unlink()
        write_packed(file, seal(deep))
        with pytest.raises(RunError, match="damaged|cannot be read"):
            mtm.load_run(file)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7), cut=st.booleans())
def test_damage_never_changes_an_answer(file: Path, place: float, bit: int, cut: bool) -> None:
    """A flipped bit or a cut: an error of ours, or (of dates, say) the same content."""
    whole = read_packed(file)
    data = bytearray(file.read_bytes())
    at = int(place * len(data))
    if cut:
        del data[at:]
    else:
        data[at] ^= 1 << bit
    damaged = file.with_name("damaged.mtm")
    damaged.write_bytes(data)
    try:
        found = read_packed(damaged)
    except RunError:
        return
    assert found == whole


def test_weights_are_never_unpickled(file: Path, tmp_path: Path) -> None:
    files = read_packed(file)
    torch.save({"x": torch.zeros(2)}, tmp_path / "x.pt")
    files[WEIGHTS] = (tmp_path / "x.pt").read_bytes()
    files.pop(MANIFEST)
    file.unlink()
    write_packed(file, seal(files))
    with pytest.raises(RunError, match="cannot be read"):
        mtm.load_run(file)
