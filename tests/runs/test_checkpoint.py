"""Checkpoints survive what can happen to a disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from mtm.core import atomic_write
from mtm.core.errors import RunError
from mtm.runs import checkpoint
from mtm.runs.checkpoint import State


def save(folder: Path, step: int, loss: float | None = None) -> None:
    validation = {} if loss is None else {"loss": loss}
    tensors = {"w": torch.full((1000,), float(step))}
    checkpoint.save(folder, State(step, 1.5, validation), tensors, {"0.step": torch.tensor(step)})


def test_there_and_back(tmp_path: Path) -> None:
    save(tmp_path, 7, loss=0.25)
    loaded = checkpoint.load(tmp_path)
    assert loaded.state == State(7, 1.5, {"loss": 0.25})
    assert torch.equal(loaded.model["w"], torch.full((1000,), 7.0))
    assert torch.equal(loaded.optimizer["0.step"], torch.tensor(7))


def test_last_is_by_number_and_best_by_held_out_loss(tmp_path: Path) -> None:
    for step, loss in [(5, 0.5), (90, 0.1), (1000, 0.3), (1_000_000_000, None)]:
        save(tmp_path, step, loss)
    assert checkpoint.load(tmp_path, "last").state.step == 1_000_000_000
    assert checkpoint.load(tmp_path, "best").state.step == 90
    assert checkpoint.load(tmp_path, 5).state.step == 5
    with pytest.raises(RunError, match="unknown checkpoint '6'"):
        checkpoint.load(tmp_path, 6)


@pytest.mark.parametrize("spoilt", [float("nan"), float("-inf")])
@pytest.mark.parametrize("first", [1, 3])
def test_a_loss_that_is_not_finite_is_never_the_best(tmp_path: Path, spoilt, first) -> None:
    for step, loss in [(first, spoilt), (2, 0.5), (4, 0.7)]:
        save(tmp_path, step, loss)
    assert checkpoint.load(tmp_path, "best").state.step == 2
    checkpoint.prune(tmp_path, keep=1)
    assert checkpoint.steps(tmp_path) == [2, 4]


def test_where_no_loss_is_finite_the_last_is_the_best(tmp_path: Path) -> None:
    for step in (1, 2):
        save(tmp_path, step, float("nan"))
    assert checkpoint.load(tmp_path, "best").state.step == 2


@pytest.mark.parametrize("damage", ["truncated", "missing"])
def test_the_model_alone_is_read_without_the_optimizer(tmp_path: Path, damage: str) -> None:
    save(tmp_path, 1)
    file = tmp_path / "step-000000001" / "optimizer.safetensors"
    file.unlink() if damage == "missing" else file.write_bytes(b"no")
    loaded = checkpoint.load(tmp_path, optimizer=False)
    assert loaded.model["w"][0] == 1
    assert loaded.optimizer == {}
    with pytest.raises(RunError, match=r"step-000000001 is damaged.*Sound: none"):
        checkpoint.load(tmp_path, 1)
    (file.parent / "model.safetensors").write_bytes(b"no")
    with pytest.raises(RunError, match="model.safetensors is not what was written"):
        checkpoint.load(tmp_path, 1, optimizer=False)


def test_pruning_keeps_the_newest_and_the_best(tmp_path: Path) -> None:
    for step, loss in [(1, 0.5), (2, 0.1), (3, 0.4), (4, 0.3), (5, 0.2)]:
        save(tmp_path, step, loss)
    checkpoint.prune(tmp_path, keep=2)
    assert checkpoint.steps(tmp_path) == [2, 4, 5]


def test_what_is_removed_while_it_is_read_is_not_called_damaged(
    tmp_path: Path, monkeypatch
) -> None:
    save(tmp_path, 1)
    read = checkpoint._read

    def too_late(directory: Path, optimizer: bool) -> checkpoint.Checkpoint:
        if directory.name == "step-000000001":
            save(tmp_path, 2)
            checkpoint.prune(tmp_path, keep=1)
        return read(directory, optimizer)

    monkeypatch.setattr(checkpoint, "_read", too_late)
    assert checkpoint.load(tmp_path).state.step == 2


def test_what_is_half_removed_does_not_look_like_a_checkpoint(tmp_path: Path, monkeypatch) -> None:
    for step in (1, 2, 3):
        save(tmp_path, step)

    def killed(path: Path, **_) -> None:
        if path.exists():
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            checkpoint.prune(tmp_path, keep=1)
    found = checkpoint.steps(tmp_path)
    assert len(found) == 2
    assert checkpoint.newest_sound(tmp_path) == 3
    checkpoint.prune(tmp_path, keep=1)
    assert not list(tmp_path.glob(".*"))


def test_pruning_removes_what_a_killed_process_left(tmp_path: Path) -> None:
    (tmp_path / ".step-000000003.tmp").mkdir()
    (tmp_path / ".step-000000003.tmp" / "model.safetensors").write_bytes(b"half")
    checkpoint.save(tmp_path, State(4, 1.0, {}), {"w": torch.zeros(2)}, {})
    checkpoint.prune(tmp_path, keep=1)
    assert [path.name for path in tmp_path.iterdir()] == ["step-000000004"]


@pytest.mark.parametrize("damage", ["truncated", "flipped", "missing"])
@pytest.mark.parametrize("file", ["model.safetensors", "optimizer.safetensors", "state.json"])
def test_a_damaged_checkpoint_falls_back_to_the_one_before(
    tmp_path: Path, file: str, damage: str
) -> None:
    save(tmp_path, 1)
    save(tmp_path, 2)
    path = tmp_path / "step-000000002" / file
    data = path.read_bytes()
    if damage == "missing":
        path.unlink()
    elif damage == "truncated":
        path.write_bytes(data[: len(data) // 2])
    else:
        place = data.index(b"sha256") if file == "state.json" else len(data) // 2
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
    with pytest.warns(UserWarning, match="step-000000002 is damaged and was passed over"):
        assert checkpoint.load(tmp_path).state.step == 1


def test_a_damaged_checkpoint_of_a_named_step_is_an_error(tmp_path: Path) -> None:
    for step in (1, 2, 3, 4):
        save(tmp_path, step)
    for step in (2, 3):
        (tmp_path / f"step-00000000{step}" / "model.safetensors").write_bytes(b"no")
    with pytest.raises(RunError, match=r"step-000000002 is damaged: .* Sound: 4, 1\."):
        checkpoint.load(tmp_path, 2)


def test_averages_of_other_parameters_are_refused() -> None:
    parameter = torch.nn.Parameter(torch.zeros(2, 3))
    adam = torch.optim.AdamW([parameter])
    tensors = {f"0.{key}": torch.zeros(3, 2) for key in ("exp_avg", "exp_avg_sq")}
    with pytest.raises(RunError, match=r"has shape \[3, 2\] where a parameter has \[2, 3\]"):
        checkpoint.restore_optimizers([adam], tensors | {"0.step": torch.tensor(1.0)})


def test_only_damaged_ones_left_is_an_error(tmp_path: Path) -> None:
    save(tmp_path, 1)
    (tmp_path / "step-000000001" / "model.safetensors").write_bytes(b"no")
    with (
        pytest.warns(UserWarning, match="damaged"),
        pytest.raises(RunError, match="no checkpoint in .* can be read"),
    ):
        checkpoint.load(tmp_path)


def test_no_checkpoint_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="holds no checkpoint"):
        checkpoint.load(tmp_path)


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
import torch
from mtm.core.atomic_write import write_atomically
from mtm.core import atomic_write
from mtm.core.errors import RunError
from mtm.runs import checkpoint
from mtm.runs.checkpoint import State

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))  # no file may grow beyond 2,000 bytes
try:
    {action}
except RunError as error:
    print(error)
"""


def on_a_full_disk(action: str, folder: Path) -> str:
    """Do something in a process whose writes fail for real; returns the error's message.

    A process of its own, because the limit would also hit whatever the tests' output goes to.
    """
    command = [sys.executable, "-c", FULL_DISK.format(action=action), str(folder)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


def test_a_full_disk_leaves_the_previous_checkpoint(tmp_path: Path) -> None:
    save(tmp_path, 1)
    message = on_a_full_disk(
        "checkpoint.save(Path(sys.argv[1]), State(2, 0.0, {}), {'w': torch.zeros(1000)}, {})",
        tmp_path,
    )
    assert "could not save the checkpoint of step 2" in message
    assert "the checkpoint of step 1 is intact" in message
    assert [p.name for p in tmp_path.iterdir()] == ["step-000000001"]
    assert checkpoint.load(tmp_path).state.step == 1


def test_an_unfinished_write_is_not_a_checkpoint(tmp_path: Path) -> None:
    save(tmp_path, 1)
    leftover = tmp_path / ".step-000000002.tmp"
    leftover.mkdir()
    (leftover / "model.safetensors").write_bytes(b"half")
    assert checkpoint.steps(tmp_path) == [1]
    save(tmp_path, 2)
    assert checkpoint.load(tmp_path).state.step == 2
    assert not leftover.exists()


def test_writing_atomically_keeps_the_old_content(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    atomic_write.write_atomically(path, b"old")
    action = "write_atomically(Path(sys.argv[1]) / 'config.json', b'n' * 5000)"
    assert "could not write" in on_a_full_disk(action, tmp_path)
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["config.json"]


def test_two_processes_may_write_the_same_file(tmp_path: Path, monkeypatch) -> None:
    path, write = tmp_path / "config.json", atomic_write.write_flushed

    def interrupted(temporary: Path, data: bytes) -> None:
        with temporary.open("wb") as file:
            file.write(data[:2])
            file.flush()
            with monkeypatch.context() as other:
                other.setattr(atomic_write, "write_flushed", write)
                other.setattr(os, "getpid", lambda: -1)
                atomic_write.write_atomically(path, b"theirs")
            file.write(data[2:])
        assert path.read_bytes() == b"theirs"

    monkeypatch.setattr(atomic_write, "write_flushed", interrupted)
    atomic_write.write_atomically(path, b"ours, a little longer")
    assert path.read_bytes() == b"ours, a little longer"
    assert [p.name for p in tmp_path.iterdir()] == ["config.json"]


def test_an_edited_step_is_noticed(tmp_path: Path) -> None:
    """Also in a checkpoint of an earlier version, which has no digest of its state."""
    for step in (7, 9):
        save(tmp_path, step, loss=0.25)
    file = tmp_path / "step-000000009" / "state.json"
    sound = json.loads(file.read_text())
    for edited in (sound | {"seconds": 1.0}, sound | {"validation": {"loss": 0.1}}):
        file.write_text(json.dumps(edited))
        with pytest.warns(UserWarning, match="state.json is not what was written"):
            assert checkpoint.load(tmp_path).state.step == 7
    old = {key: value for key, value in sound.items() if key != "state_sha256"}
    file.write_text(json.dumps(old))
    assert checkpoint.load(tmp_path).state.step == 9
    file.write_text(json.dumps(old | {"step": 90}))
    with pytest.warns(UserWarning, match="state.json speaks of step 90"):
        assert checkpoint.load(tmp_path).state.step == 7
