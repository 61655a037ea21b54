"""Checkpoints: complete, atomic, safe.

    RUN/checkpoints/step-000004000/
        model.safetensors       the weights that a run answers with
        optimizer.safetensors   what else training goes on with: the optimizers' averages, and the
                                latest weights where the model's are a mean of several steps
        state.json              step, validation, digests of the two files and of itself

A checkpoint is written under a temporary name, flushed to disk and renamed, so a directory with a
final name is whole; the digests find later damage. Nothing is ever unpickled.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import safetensors.torch
import torch
from torch import Tensor, nn

from mtm.core.atomic_write import flush_directory, write_flushed
from mtm.core.errors import RunError, unknown
from mtm.core.plain_data import MALFORMED, digest_of, parse_object, read_object, whole

Which = Literal["last", "best"]
MODEL_FILE, OPTIMIZER_FILE = "model.safetensors", "optimizer.safetensors"
STATE_FILE = "state.json"
BESIDE = "average/"
"""What names begin with, beside the optimizers' averages, that belong to an average of weights."""

DAMAGE = (OSError, *MALFORMED, safetensors.SafetensorError)
"""What reading a damaged checkpoint raises."""


@dataclass(frozen=True)
class State:
    """What a checkpoint says of itself.

    Attributes:
        step: Optimizer steps taken.
        seconds: Training time so far.
        validation: Held-out metrics measured at this step; empty if none were.
    """

    step: int
    seconds: float
    validation: dict[str, float]


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint read back: the state and the tensors.

    Attributes:
        state: What it says of itself.
        model: The weights.
        optimizer: The optimizers' averages; empty if nobody asked for them.
    """

    state: State
    model: dict[str, Tensor]
    optimizer: dict[str, Tensor]


def save(
    folder: Path, state: State, model: Mapping[str, Tensor], optimizer: Mapping[str, Tensor]
) -> Path:
    """Write a checkpoint under `folder` (a run's `checkpoints`) and return its directory.

    Raises:
        RunError: It could not be written (a full disk, say). Earlier checkpoints are untouched.
    """
    final = _directory(folder, state.step)
    temporary = folder / f".{final.name}.tmp"
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        digests = {}
        for name, tensors in ((MODEL_FILE, model), (OPTIMIZER_FILE, optimizer)):
            data = safetensors.torch.save({k: v.contiguous() for k, v in tensors.items()})
            digests[name] = hashlib.sha256(data).hexdigest()
            write_flushed(temporary / name, data)
        plain = {**vars(state), "sha256": digests}
        plain["state_sha256"] = digest_of(plain)
        write_flushed(temporary / STATE_FILE, json.dumps(plain, indent=2).encode())
        flush_directory(temporary)
        if final.exists():
            _remove(final)
        temporary.rename(final)
        flush_directory(folder)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        kept = steps(folder)
        still = f"the checkpoint of step {kept[-1]} is intact" if kept else "none was saved before"
        raise RunError(
            f"could not save the checkpoint of step {state.step} in {folder}: {error}; {still}. "
            "Make room, then continue with --resume."
        ) from error
    return final


def load(folder: Path, which: Which | int = "last", *, optimizer: bool = True) -> Checkpoint:
    """Read a checkpoint; if the last or the best is damaged, warn and take the newest sound one.

    Args:
        folder: A run's `checkpoints`.
        which: `last`, `best` (lowest held-out loss) or a step.
        optimizer: Read its averages too, which only training needs; they are twice as large as the
            weights.

    Raises:
        RunError: There is no sound checkpoint, or that of the named step is not sound.
    """
    candidates = steps(folder)
    if not candidates:
        raise RunError(f"{folder} holds no checkpoint; the run was stopped before its first one.")
    wanted = _resolve(folder, which, candidates)
    others = [step for step in reversed(candidates) if step != wanted]
    for step in [wanted, *others]:
        directory = _directory(folder, step)
        try:
            return _read(directory, optimizer)
        except DAMAGE as error:
            if not isinstance(which, int) and not os.path.lexists(directory):
                # A training that is under way has removed it, and has newer ones.
                return load(folder, which, optimizer=optimizer)
            if isinstance(which, int):  # another step is not what was asked for
                sound = ", ".join(
                    str(other) for other in others if _is_sound(folder, other, optimizer)
                )
                raise RunError(
                    f"checkpoint {directory} is damaged: {error}. Sound: {sound or 'none'}."
                ) from error
            warnings.warn(
                f"checkpoint {directory} is damaged and was passed over: {error}", stacklevel=2
            )
    raise RunError(f"no checkpoint in {folder} can be read; train again with --overwrite.")


def encode(checkpoint: Checkpoint) -> dict[str, bytes]:
    """A checkpoint as files, to be shared: without the optimizers' averages."""
    data = safetensors.torch.save({k: v.contiguous() for k, v in checkpoint.model.items()})
    plain = {**vars(checkpoint.state), "sha256": {MODEL_FILE: hashlib.sha256(data).hexdigest()}}
    plain["state_sha256"] = digest_of(plain)
    return {MODEL_FILE: data, STATE_FILE: json.dumps(plain, indent=2).encode()}


def decode(files: Mapping[str, bytes]) -> Checkpoint:
    """The inverse of `encode`; raises one of `DAMAGE` where that cannot be."""
    plain = _checked(parse_object(files[STATE_FILE]))
    model = _tensors(files[MODEL_FILE], MODEL_FILE, plain["sha256"])
    return Checkpoint(_state(plain), model, {})


def restore(folder: Path, network: nn.Module, *optimizers: torch.optim.Optimizer) -> Checkpoint:
    """Fill a network and its optimizers from the last checkpoint of which all is sound."""
    saved = load(folder)
    network.load_state_dict(saved.model)
    restore_optimizers(optimizers, saved.optimizer)
    return saved


def steps(folder: Path) -> list[int]:
    """Steps of the checkpoints in a folder, in numerical order."""
    names = (path.name for path in folder.glob("step-*"))
    return sorted(int(n.removeprefix("step-")) for n in names if n[5:].isdigit())


def newest_sound(folder: Path) -> int | None:
    """The newest step whose checkpoint is what was written; None if there is none."""
    return next((step for step in reversed(steps(folder)) if _is_sound(folder, step, True)), None)


def prune(folder: Path, keep: int) -> None:
    """Delete all but the `keep` newest checkpoints and the best one, and leftovers."""
    remove_leftovers(folder)
    present = steps(folder)
    kept = {*present[-keep:], best_step(folder, present)}
    for step in present:
        if step not in kept:
            _remove(_directory(folder, step))


def remove_leftovers(folder: Path) -> None:
    """Remove what a process that was killed has half written or half deleted."""
    for left in folder.glob(".step-*.tmp"):
        shutil.rmtree(left)


def best_step(folder: Path, candidates: list[int]) -> int:
    """The step with the lowest held-out loss; the last one where no finite loss was measured."""
    losses = {}
    for step in candidates:
        try:
            loss = float(_read_state(_directory(folder, step)).validation["loss"])
        except MALFORMED:
            continue  # none was measured; a damaged state is reported when it is loaded
        if math.isfinite(loss):
            losses[step] = loss
    return min(losses, key=losses.__getitem__) if losses else candidates[-1]


def optimizer_tensors(*optimizers: torch.optim.Optimizer) -> dict[str, Tensor]:
    """What optimizers have averaged, as `PARAMETER.KEY`; numbers count on from one to the next."""
    tensors: dict[str, Tensor] = {}
    first = 0
    for optimizer in optimizers:
        for i, entry in optimizer.state_dict()["state"].items():
            tensors |= {f"{first + i}.{key}": tensor for key, tensor in entry.items()}
        first += _parameters(optimizer)
    return tensors


def restore_optimizers(
    optimizers: Sequence[torch.optim.Optimizer], tensors: Mapping[str, Tensor]
) -> None:
    """The inverse of `optimizer_tensors`.

    Raises:
        RunError: They belong to other parameters.
    """
    entries: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        if not name.startswith(BESIDE):
            number, key = name.split(".")
            entries.setdefault(int(number), {})[key] = tensor
    first = 0
    for optimizer in optimizers:
        mine = range(first, first + _parameters(optimizer))
        state = {number - first: entries[number] for number in mine if number in entries}
        _check_shapes(optimizer, state)
        groups = optimizer.state_dict()["param_groups"]
        optimizer.load_state_dict({"state": state, "param_groups": groups})
        first = mine.stop


def _check_shapes(
    optimizer: torch.optim.Optimizer, state: Mapping[int, Mapping[str, Tensor]]
) -> None:
    """Raise a `RunError` unless each average has the shape of its parameter."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for i, entry in state.items():
        for key, tensor in entry.items():
            if tensor.ndim and tensor.shape != parameters[i].shape:
                raise RunError(
                    f"the optimizer's {key} has shape {list(tensor.shape)} where a parameter has "
                    f"{list(parameters[i].shape)}: an earlier version of mtm shared the parameters "
                    "out among optimizers otherwise. The run still answers; to train it, start "
                    "again with --overwrite."
                )


def _parameters(optimizer: torch.optim.Optimizer) -> int:
    return sum(len(group["params"]) for group in optimizer.param_groups)


def _resolve(folder: Path, which: Which | int, candidates: list[int]) -> int:
    if which == "last":
        return candidates[-1]
    if which == "best":
        return best_step(folder, candidates)
    if which not in candidates:
        allowed = ("last", "best", *map(str, candidates))
        raise RunError(f"{folder}: {unknown('checkpoint', str(which), allowed)}")
    return int(which)


def _directory(folder: Path, step: int) -> Path:
    return folder / f"step-{step:09d}"


def _remove(directory: Path) -> None:
    """Remove a checkpoint; what is half removed must not look like one."""
    gone = directory.with_name(f".{directory.name}.gone.tmp")
    shutil.rmtree(gone, ignore_errors=True)
    directory.rename(gone)
    shutil.rmtree(gone)


def _is_sound(folder: Path, step: int, optimizer: bool) -> bool:
    try:
        _read(_directory(folder, step), optimizer)
    except DAMAGE:
        return False
    return True


def _read(directory: Path, optimizer: bool) -> Checkpoint:
    plain = _checked(read_object(directory / STATE_FILE))
    digests = plain["sha256"]
    if optimizer and OPTIMIZER_FILE not in digests and not (directory / OPTIMIZER_FILE).exists():
        raise RunError(
            f"{directory} was shared without the optimizer's averages: it answers, and cannot be "
            "trained on. Train another run, from the data."
        )
    names = (MODEL_FILE, OPTIMIZER_FILE) if optimizer else (MODEL_FILE,)
    parts = [_tensors((directory / name).read_bytes(), name, digests) for name in names]
    return Checkpoint(_state_in(directory, plain), parts[0], parts[1] if optimizer else {})


def _tensors(data: bytes, name: str, digests: Mapping[str, str]) -> dict[str, Tensor]:
    if hashlib.sha256(data).hexdigest() != digests[name]:
        raise ValueError(f"{name} is not what was written")
    return safetensors.torch.load(data)


def _read_state(directory: Path) -> State:
    """What a checkpoint says of itself, after a look whether it is what was written.

    Raises:
        ValueError: It is not, or it speaks of another step than the directory's name does.
    """
    return _state_in(directory, _checked(read_object(directory / STATE_FILE)))


def _state_in(directory: Path, plain: dict[str, Any]) -> State:
    """The state that a directory holds, which its name tells the step of."""
    state = _state(plain)
    if _directory(directory.parent, state.step) != directory:
        raise ValueError(f"{STATE_FILE} speaks of step {state.step}")
    return state


def _checked(plain: dict[str, Any]) -> dict[str, Any]:
    """The content of a state's file, if it is what was written."""
    # Earlier versions wrote no digest of this file.
    if "state_sha256" in plain and plain.pop("state_sha256") != digest_of(plain):
        raise ValueError(f"{STATE_FILE} is not what was written")
    return plain


def _state(plain: dict[str, Any]) -> State:
    step, seconds, validation = whole(plain, "step"), plain["seconds"], plain["validation"]
    if not _is_number(seconds) or not 0 <= seconds < math.inf:
        raise ValueError(f"seconds must be a number of at least 0, got {seconds!r}")
    if not isinstance(validation, dict) or not all(map(_is_number, validation.values())):
        raise ValueError(f"validation must be a table of numbers, got {validation!r}")
    return State(step, float(seconds), validation)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
