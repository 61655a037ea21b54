"""Data of the paper's shape, made here: D4RL's four kinds of three walkers, in one folder.

    FOLDER/manifest.json                every set: its file, what recorded it, its fingerprint
    FOLDER/hopper-medium.hdf5 ...       the sets
    FOLDER/collections/hopper/ ...      the collections that they come from (see `mtm.cli.collect`)

They have D4RL's layout and its kinds of policies, and are not D4RL's data: SAC of this project
recorded them on the environments of today. What somebody else recorded, such as of Adroit's hand,
is listed under the name of its file, as what it says that it is.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from mtm.core.atomic_write import write_atomically
from mtm.core.errors import ConfigError, DataError, require, unknown
from mtm.core.system import available_cores
from mtm.core.versions import versions
from mtm.data import loading
from mtm.research.collect.agents import EXTRA, steps_done
from mtm.research.collect.behaviour import KINDS, CollectSettings, collect
from mtm.research.collect.folder import VERSIONS_OF

ENVIRONMENTS = {"hopper": "Hopper-v5", "walker2d": "Walker2d-v5", "halfcheetah": "HalfCheetah-v5"}
"""The paper's, as they are today."""

SEED = 0
MOST_THREADS = 2
"""The agents' networks are too small to share between many cores."""
TIMED_STEPS = 200
"""Steps of training that tell how long the rest will take."""
DEFAULT_FOLDER = Path("~/.cache/mtm/paper-sets")


@dataclass(frozen=True)
class Size:
    """Steps of each training, and steps to record of the expert and of the medium policy."""

    steps: int
    record: int


SIZES = {
    "smoke": Size(200, 60),
    "cpu": Size(300_000, 100_000),
    "paper": Size(1_000_000, 1_000_000),  # D4RL's
}
"""By scale."""


def default_folder() -> Path:
    """Where the sets are if nobody says otherwise: `MTM_PAPER_SETS`, else in the user's cache."""
    return Path(os.environ.get("MTM_PAPER_SETS") or DEFAULT_FOLDER).expanduser()


def make_sets(
    folder: Path, scale: str, console: Console, *, recordings: Sequence[str] = ()
) -> dict[str, Any]:
    """Make the sets that are not there yet; what was interrupted goes on.

    Args:
        folder: Where to.
        scale: `smoke`, `cpu` or `paper`: how long to train and to record.
        console: Told how long it will take, and how far it is.
        recordings: Files that the user has, to be listed beside those that are made.

    Returns:
        The manifest.

    Raises:
        ConfigError: There is no such scale, or the folder holds sets of another one.
        DataError: A recording cannot be read, or has the name of a set that is made.
        MissingExtraError: Stable-Baselines3 or a simulator is not installed.
    """
    if scale not in SIZES:
        raise ConfigError(unknown("scale", scale, SIZES))
    require("stable_baselines3", extra=EXTRA)
    import torch

    manifest = _opened(folder, scale)
    for file in recordings:
        name = Path(file).stem
        if name.partition("-")[0] in ENVIRONMENTS:
            raise DataError(f"{file}: a set of the name {name} is made here; rename the file.")
        manifest["sets"][name] = _entry(Path(file).resolve(), "recorded elsewhere")
    _write(folder, manifest)
    torch.set_num_threads(min(available_cores(), MOST_THREADS))
    missing = [env for env in ENVIRONMENTS if not _is_there(folder, manifest, env)]
    if any(_left(folder / "collections" / env, SIZES[scale]) for env in missing):
        console.print(_estimate(folder, SIZES[scale], missing), soft_wrap=True)
    for env in missing:
        for name, entry in _make(folder, scale, env, console).items():
            manifest["sets"][name] = entry
        _write(folder, manifest)
    return manifest


def read_manifest(folder: Path) -> dict[str, Any]:
    """What `make_sets` has written.

    Raises:
        DataError: There is nothing, or nothing that can be read.
    """
    file = folder / "manifest.json"
    if not file.exists():
        raise DataError(
            f"there are no sets in {folder}: make them with `mtm reproduce data`, or name their "
            "folder with made:FOLDER."
        )
    try:
        manifest: dict[str, Any] = json.loads(file.read_text())
        _ = manifest["scale"], [(e["file"], e["fingerprint"]) for e in manifest["sets"].values()]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"{file} is not what `mtm reproduce data` writes ({error!r}). Remove it; the sets are "
            "listed again, not made again."
        ) from error
    return manifest


def _opened(folder: Path, scale: str) -> dict[str, Any]:
    if not (folder / "manifest.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        return {"scale": scale, "versions": versions(VERSIONS_OF), "sets": {}}
    manifest = read_manifest(folder)
    if manifest["scale"] != scale:
        raise ConfigError(
            f"{folder} holds sets of the scale {manifest['scale']}, not {scale}. Give another "
            "--out, or that scale."
        )
    return manifest


def _is_there(folder: Path, manifest: dict[str, Any], env: str) -> bool:
    entries = [manifest["sets"].get(f"{env}-{kind}") for kind in KINDS]
    return all(entry is not None and (folder / entry["file"]).exists() for entry in entries)


def _make(folder: Path, scale: str, env: str, console: Console) -> dict[str, Any]:
    """Collect in one environment, and put its files beside the others under their names."""
    size, collection = SIZES[scale], folder / "collections" / env
    collection.parent.mkdir(exist_ok=True)
    console.print(f"{env}: SAC on {ENVIRONMENTS[env]}, {size.steps:,} steps")
    settings = CollectSettings(ENVIRONMENTS[env], size.steps, SEED, size.record)
    collect(settings, collection, console)
    made = {}
    for kind in KINDS:
        name = f"{env}-{kind}"
        file = folder / f"{name}.hdf5"
        file.unlink(missing_ok=True)
        try:
            os.link(collection / f"{kind}.hdf5", file)
        except OSError:  # a file system without links
            shutil.copyfile(collection / f"{kind}.hdf5", file)
        made[name] = {**_entry(file, "made here"), "file": file.name}
    return made


def _entry(file: Path, origin: str) -> dict[str, Any]:
    data = loading.load(str(file))
    return {
        "file": str(file),
        "fingerprint": data.fingerprint,
        "origin": origin,
        "behaviour": str(data.metadata.notes.get("behaviour", "not said")),
        "environment": data.metadata.env_id,
        "steps": data.num_steps,
        "episodes": data.num_episodes,
    }


def _write(folder: Path, manifest: dict[str, Any]) -> None:
    write_atomically(folder / "manifest.json", json.dumps(manifest, indent=2).encode())


def _estimate(folder: Path, size: Size, missing: Sequence[str]) -> str:
    """How long the rest will take, from some steps of the first training that is missing."""
    second = _seconds_per_step(ENVIRONMENTS[missing[0]])
    left = sum(
        size.steps - min(steps_done(folder / "collections" / e), size.steps) for e in missing
    )
    hours = left * second / 3600
    return (
        f"{left:,} steps of SAC to do, at {second * 1e3:.0f} ms each: about "
        f"{hours:.1f} hours here, and somewhat more for recording. After Ctrl-C, the same command "
        "goes on."
    )


def _left(collection: Path, size: Size) -> int:
    """Steps of training that a collection still needs."""
    work = collection / "under-way"
    is_finished = collection.exists() and not work.exists()
    return 0 if is_finished else max(size.steps - steps_done(work), 0)


def _seconds_per_step(env_id: str) -> float:
    """Of SAC's training, once it has begun to learn."""
    from stable_baselines3 import SAC

    from mtm.control.environments import make

    env = make(env_id)
    agent = SAC("MlpPolicy", env, learning_starts=TIMED_STEPS // 4, seed=SEED, device="cpu")
    agent.learn(TIMED_STEPS // 2)
    began = time.perf_counter()
    agent.learn(TIMED_STEPS // 2, reset_num_timesteps=False)
    env.close()
    return (time.perf_counter() - began) / (TIMED_STEPS // 2)
