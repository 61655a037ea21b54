"""Data sets that are folders: a file of one of them changed, its plain data or its bytes."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from mtm.core.errors import require
from mtm.core.reading import AS_IT_IS
from mtm.data import loading
from mtm.data.alignment import align
from mtm.data.formats import builtin, lerobot_write
from mtm.data.formats.stamped_tables import read_streams
from mtm.data.formats.store import open_store, write_store
from mtm.data.trajectories import TrajectoryDataset
from mtm.data.verification import stored_faults
from torture.fuzz_data import Case, taken
from torture.mutations import mutated, spoiled, spoiled_zip

TABLE = "timestamp,x,y\n" + "".join(f"{t / 10},{t},{t * t}\n" for t in range(12))


def make_folders(base: Path) -> None:
    """Sound data sets."""
    data = builtin.point_mass(episodes=6, length=8).with_metadata(notes={lerobot_write.FPS: "10"})
    write_store([data], base / "store", "log")
    lerobot_write.write_folder(data, {}, base / "lerobot")
    (base / "exorl").mkdir()
    for number in range(2):
        rng = np.random.default_rng(number)
        widths = {"observation": 24, "action": 6, "reward": 1, "discount": 1, "physics": 18}
        episode = {name: rng.normal(size=(6, n)).astype("f4") for name, n in widths.items()}
        np.savez(base / "exorl" / f"episode_{number:06}_5.npz", **episode)
    (base / "streams").mkdir()
    (base / "streams" / "arm.csv").write_text(TABLE)
    table = require("pyarrow", extra="parquet").table(
        {"timestamp": np.arange(20) / 20, "force": np.arange(20.0)}
    )
    require("pyarrow.parquet", extra="parquet").write_table(
        table, base / "streams" / "hand.parquet"
    )
    _make_minari(base)


def minari_case(base: Path, folder: Path) -> Case:
    """Minari's, read by its name."""
    os.environ["MINARI_DATASETS_PATH"] = str(folder)
    return _folder_case(base / "toy", folder / "toy", lambda _: "minari:toy/box-v0")


def lerobot_case(base: Path, folder: Path) -> Case:
    """LeRobot's."""
    return _folder_case(base / "lerobot", folder / "lerobot", str)


def exorl_case(base: Path, folder: Path) -> Case:
    """ExORL's."""
    return _folder_case(base / "exorl", folder / "exorl", str)


def streams_case(base: Path, folder: Path) -> Case:
    """Tables with time stamps, as `mtm data align` reads them."""
    copy = shutil.copytree(base / "streams", folder / "streams")
    files = sorted(copy.iterdir())
    sound = {file: file.read_bytes() for file in files}

    def case(rng: random.Random) -> Any:
        _spoil(sound, rng)
        return aligned()

    def aligned() -> str:
        streams = read_streams(files, AS_IT_IS)
        return taken(align(streams, 10.0, reading=AS_IT_IS, source="x"))

    aligned()
    return case


def store_case(base: Path, folder: Path) -> Case:
    """A store: no other values than were written."""
    copy = shutil.copytree(base / "store", folder / "store")
    sound = {file: file.read_bytes() for file in copy.iterdir()}
    written = _values(open_store(copy))

    def case(rng: random.Random) -> Any:
        by_hand = _spoil(sound, rng)
        dataset = open_store(copy)
        if list(stored_faults(dataset)):
            return "faults told"
        # A manifest that somebody edits says what the data are, and no digest is of it.
        assert by_hand or _values(dataset) == written, "other values, unnoticed"
        return "taken"

    return case


def _folder_case(sound: Path, copy: Path, spec_of: Callable[[Path], str]) -> Case:
    shutil.copytree(sound, copy)
    contents = {file: file.read_bytes() for file in copy.rglob("*") if file.is_file()}
    contents = {file: c for file, c in contents.items() if file.name != "namespace.json"}
    spec = spec_of(copy)

    def case(rng: random.Random, read: bool = True) -> Any:
        _spoil(contents, rng)
        return taken(loading.load(spec)) if read else spec

    taken(loading.load(spec))
    return case


def _spoil(sound: dict[Path, bytes], rng: random.Random) -> bool:
    """All files as they were, but for one; gives whether that was changed as by an editor."""
    for file, content in sound.items():
        file.write_bytes(content)
    file = rng.choice(list(sound))
    if file.suffix == ".json" and rng.random() < 0.7:
        file.write_text(json.dumps(mutated(json.loads(sound[file]), rng)))
        return True
    if file.suffix == ".npz" and rng.random() < 0.5:
        file.write_bytes(spoiled_zip(sound[file], rng))
    else:
        file.write_bytes(spoiled(sound[file], rng))
    return False


def _values(dataset: TrajectoryDataset) -> list[bytes]:
    return [np.asarray(dataset.arrays[name]).tobytes() for name in dataset.names]


def _make_minari(base: Path) -> None:
    """A data set of Minari's below a folder."""
    import warnings

    import minari
    from gymnasium.spaces import Box
    from minari.data_collector import EpisodeBuffer

    os.environ["MINARI_DATASETS_PATH"] = str(base)
    buffers = [
        EpisodeBuffer(
            id=i,
            observations=np.zeros((n + 1, 3), np.float32),
            actions=np.zeros((n, 2), np.float32),
            rewards=[0.0] * n,
            terminations=[False] * n,
            truncations=[False] * (n - 1) + [True],
            infos={},
        )
        for i, n in enumerate((5, 3))
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        minari.create_dataset_from_buffers(
            "toy/box-v0",
            buffers,
            observation_space=Box(-np.inf, np.inf, (3,), np.float32),
            action_space=Box(-1, 1, (2,), np.float32),
            algorithm_name="none",
        )
