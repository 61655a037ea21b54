"""D4RL's kinds of data: which policies they come from, and the files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from mtm.control.environments import make
from mtm.control.scores import score
from mtm.core.atomic_write import flush_directory
from mtm.core.errors import RunError
from mtm.core.progress import StepProgress
from mtm.data.hdf5_output import hdf5_output
from mtm.research.collect.actor import Actor
from mtm.research.collect.agents import Snapshot, play
from mtm.research.collect.recorder import Recording, recording_wrapper, sizes

MEDIUM_FRACTION = 1 / 3
"""Where medium lies on the way from random to expert."""

CONVERGED_FRACTION = 0.2
"""The last part of the training, in which the expert is looked for."""

COLUMNS = ("observations", "actions", "rewards", "terminals", "timeouts")


@dataclass(frozen=True)
class RecordedRows:
    """The first `rows` rows of a recording."""

    recording: Recording
    rows: int


def choose_expert(snapshots: Sequence[Snapshot]) -> Snapshot:
    """The best of the last part of the training: a policy that has converged, not a passing dip."""
    late = snapshots[-1].step * (1 - CONVERGED_FRACTION)
    return max((s for s in snapshots if s.step >= late), key=lambda s: s.mean_return)


def choose_medium(
    snapshots: Sequence[Snapshot], random_return: float, expert: Snapshot
) -> Snapshot:
    """The snapshot nearest to a third of the way from random to expert; the earlier of two."""
    wanted = random_return + MEDIUM_FRACTION * (expert.mean_return - random_return)
    candidates = [s for s in snapshots if s.step <= expert.step]
    return min(candidates, key=lambda s: (abs(s.mean_return - wanted), s.step))


def record_policy(
    weights: Mapping[str, Any], env_id: str, file: Path, steps: int, seed: int, console: Console
) -> Recording:
    """Let a policy act with its own noise until `steps` are recorded; whole episodes."""
    env = make(env_id)
    recording = Recording(file, sizes(env))
    env = recording_wrapper()(env, recording)
    actor, rng = Actor(weights, env), np.random.default_rng(seed)
    with StepProgress(f"recording {file.stem}", steps, 0, console) as progress:
        while recording.rows < steps:
            play(env, actor, rng)
            progress.at(recording.rows)
    env.close()
    return recording


def write_hdf5(path: Path, parts: Sequence[RecordedRows], attributes: Mapping[str, Any]) -> None:
    """Write recordings one after the other in D4RL's layout, a bounded piece at a time.

    Raises:
        RunError: The file could not be written; an earlier one is intact.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    total = sum(part.rows for part in parts)
    try:
        with hdf5_output(temporary) as file:
            file.attrs.update(attributes)
            dtype = parts[0].recording.dtype
            for name in COLUMNS:
                file.create_dataset(name, (total, *dtype[name].shape), dtype[name].base)
            at = 0
            for part in parts:
                for chunk in part.recording.chunks(part.rows):
                    for name in COLUMNS:
                        file[name][at : at + len(chunk)] = chunk[name]
                    at += len(chunk)
        temporary.replace(path)
        flush_directory(path.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise RunError(f"could not write {path}: {error}. Make room and go on.") from error


def summarize(parts: Sequence[RecordedRows], env_id: str) -> dict[str, Any]:
    """Episodes, steps and returns of a file."""
    returns = np.concatenate([part.recording.returns(part.rows) for part in parts])
    scores = score(env_id, returns)
    return {
        "episodes": len(returns),
        "steps": sum(part.rows for part in parts),
        "mean_return": float(returns.mean()),
        "best_return": float(returns.max()),
        "mean_score": None if scores is None else float(scores.mean()),
    }
