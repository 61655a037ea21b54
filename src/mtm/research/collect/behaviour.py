"""From an environment to D4RL's four files: train, choose, record, write."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from torch import Tensor

from mtm.control.environments import make
from mtm.core.atomic_write import writing_to
from mtm.core.errors import ConfigError, require
from mtm.research.collect.actor import Actor, read_policy
from mtm.research.collect.agents import EXTRA, Snapshot, Training, load_snapshot
from mtm.research.collect.d4rl_recipes import (
    RecordedRows,
    choose_expert,
    choose_medium,
    record_policy,
    summarize,
    write_hdf5,
)
from mtm.research.collect.folder import Folder, held_folder
from mtm.research.collect.recorder import Recording, Sizes, row_dtype, sizes

KINDS = ("expert", "medium", "medium-replay", "medium-expert")
FILES = (*(f"{kind}.hdf5" for kind in KINDS), "learning-curve.png")


@dataclass(frozen=True)
class CollectSettings:
    """What to collect; the same settings go on with the same collection.

    Attributes:
        env_id: As for `mtm.control.environments.make`.
        steps: Of the training.
        seed: Of everything random.
        record: Steps to record of the expert, and of the medium policy.
        policy: A `.zip` of Stable-Baselines3's SAC to record in place of training.
    """

    env_id: str
    steps: int
    seed: int
    record: int
    policy: str | None = None

    def __post_init__(self) -> None:
        for name in ("steps", "record"):
            if getattr(self, name) < 1:
                raise ConfigError(f"--{name} must be at least 1, got {getattr(self, name)}.")
        if self.seed < 0:
            raise ConfigError(f"--seed must not be negative, got {self.seed}.")


def collect(
    settings: CollectSettings, out: Path, console: Console, *, overwrite: bool = False
) -> Folder:
    """Collect, or go on with a collection that was interrupted.

    Returns:
        The finished folder, whose `results` hold the numbers of each file.

    Raises:
        ConfigError: The environment or the folder cannot be used.
        DataError: The policy cannot be used.
        MissingExtraError: Stable-Baselines3 or Matplotlib is not installed.
    """
    require("matplotlib", extra=EXTRA)
    env = make(settings.env_id)
    known = None if settings.policy is None else read_policy(Path(settings.policy))
    if known is None:
        require("stable_baselines3", extra=EXTRA)
    else:
        Actor(known, env)  # whether it fits is said before anything is written
    size, limit = sizes(env), env.spec.max_episode_steps  # type: ignore[union-attr]
    env.close()
    with writing_to(out), held_folder(out):
        folder = Folder(out, asdict(settings), FILES, overwrite=overwrite)
        if folder.results is None:
            job = _Job(settings, folder, size, int(limit or 0), console)
            folder.finish(job.from_policy(known) if known is not None else job.from_training())
        else:
            console.print(f"{out} is finished; --overwrite collects again.", soft_wrap=True)
    return folder


@dataclass(frozen=True)
class _Job:
    """One call of `collect`, after everything has been checked."""

    settings: CollectSettings
    folder: Folder
    size: Sizes
    limit: int
    console: Console

    def from_policy(self, weights: Mapping[str, Tensor]) -> dict[str, Any]:
        """Record a given policy: the expert's file only."""
        self.console.print(
            "A given policy has no training to take medium data from: only expert.hdf5 is written.",
            soft_wrap=True,
        )
        part = self._record("expert", weights, f"SAC, {Path(self.settings.policy or '').name}")
        return {"kinds": {"expert": summarize([part], self.settings.env_id)}}

    def from_training(self) -> dict[str, Any]:
        """Train, then write the four files and the picture."""
        from mtm.research.collect.pictures import learning_curve
        from mtm.research.figures import save

        began, s = time.monotonic(), self.settings
        training = Training(self.folder.work, s.env_id, s.steps, s.seed, self.size)
        trained = training.run(self.console)
        expert = choose_expert(trained.snapshots)
        medium = choose_medium(trained.snapshots, trained.random_return, expert)
        parts = self._write_kinds(trained.recording, expert, medium)
        figure = learning_curve(s.env_id, trained, expert, medium)
        save(figure, self.folder.path / "learning-curve.png", dpi=150)
        return {
            "kinds": {kind: summarize(parts[kind], s.env_id) for kind in KINDS},
            "random_return": trained.random_return,
            "expert": asdict(expert),
            "medium": asdict(medium),
            "snapshots": [asdict(snapshot) for snapshot in trained.snapshots],
            "seconds_of_last_sitting": time.monotonic() - began,
        }

    def _write_kinds(
        self, training: Recording, expert: Snapshot, medium: Snapshot
    ) -> dict[str, Sequence[RecordedRows]]:
        work, parts = self.folder.work, {}
        for kind, chosen in (("expert", expert), ("medium", medium)):
            text = f"SAC after {chosen.step} steps, with its own noise"
            parts[kind] = [self._record(kind, load_snapshot(work, chosen.step), text)]
        # A snapshot is taken where an episode ends, so its step is a whole number of episodes.
        parts["medium-replay"] = [RecordedRows(training, medium.step)]
        self._write("medium-replay", parts["medium-replay"], f"SAC's first {medium.step} steps")
        parts["medium-expert"] = [*parts["medium"], *parts["expert"]]
        self._write("medium-expert", parts["medium-expert"], "medium, then expert")
        return dict(parts)

    def _record(self, kind: str, weights: Mapping[str, Tensor], behaviour: str) -> RecordedRows:
        """Record a policy and write its file, unless an earlier sitting has done it."""
        s, rows = self.settings, self.folder.work / f"{kind}.rows"
        if (self.folder.path / f"{kind}.hdf5").exists() and rows.exists():
            count = rows.stat().st_size // row_dtype(self.size).itemsize
            recording = Recording(rows, self.size, count)
            return RecordedRows(recording, recording.rows)
        seed = s.seed + 1 + KINDS.index(kind)
        recording = record_policy(weights, s.env_id, rows, s.record, seed, self.console)
        part = RecordedRows(recording, recording.rows)
        self._write(kind, [part], behaviour)
        return part

    def _write(self, kind: str, parts: Sequence[RecordedRows], behaviour: str) -> None:
        attributes = {
            "env_id": self.settings.env_id,
            "behaviour": behaviour,
            "seed": np.int64(self.settings.seed),
            "max_episode_steps": np.int64(self.limit),
        }
        write_hdf5(self.folder.path / f"{kind}.hdf5", parts, attributes)
