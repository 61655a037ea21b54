"""Data files with bytes changed, or with odd arrays in them."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from mtm.core.errors import require
from mtm.data import loading
from mtm.data.trajectories import TrajectoryDataset
from torture.mutations import odd_arrays, spoiled, spoiled_zip

Case = Callable[..., Any]
"""Of a random generator; makes a bad input and has it read."""

ARRAYS = {
    "observations": np.random.default_rng(0).normal(size=(12, 3)),
    "actions": np.random.default_rng(1).normal(size=(12, 2)).astype(np.float32),
    "rewards": np.arange(12.0),
    "terminals": np.arange(12) % 4 == 3,
}


def make_files(base: Path) -> None:
    """Sound files of every format."""
    np.savez(base / "a.npz", **ARRAYS)
    with h5py.File(base / "a.hdf5", "w") as file:
        for name, values in ARRAYS.items():
            file[name] = values
    pieces = [{k: ARRAYS[k] for k in ("observations", "actions")}] * 2
    (base / "a.pkl").write_bytes(pickle.dumps(pieces))
    _write_parquet(base / "a.parquet", {"episode": np.arange(12) // 4, "x": ARRAYS["rewards"]})
    _write_parquet(base / "rlds.parquet", {"steps": [_rlds_steps(4), _rlds_steps(3)]})
    with h5py.File(base / "robomimic.hdf5", "w") as file:
        group = file.create_group("data")
        group.attrs["env_args"] = json.dumps({"env_name": "Lift", "env_kwargs": {}})
        for number in range(2):
            demo = group.create_group(f"demo_{number}")
            demo.attrs["num_samples"] = 4
            for name, values in (("actions", "actions"), ("obs/hand", "observations")):
                demo[name] = ARRAYS[values][:4]


def file_case(name: str) -> Callable[[Path, Path], Case]:
    """Bytes of a file changed."""

    def kind(base: Path, folder: Path) -> Case:
        sound, path = (base / name).read_bytes(), folder / name

        def case(rng: random.Random, read: bool = True) -> Any:
            if path.suffix == ".npz" and rng.random() < 0.3:
                path.write_bytes(spoiled_zip(sound, rng))
            else:
                path.write_bytes(spoiled(sound, rng))
            return taken(loading.load(path)) if read else path

        path.write_bytes(sound)
        taken(loading.load(path))
        return case

    return kind


def odd_case(suffix: str) -> Callable[[Path, Path], Case]:
    """Odd arrays in a sound file."""

    def kind(base: Path, folder: Path) -> Case:
        path = folder / f"odd{suffix}"

        def case(rng: random.Random, read: bool = True) -> Any:
            arrays = odd_arrays(rng)
            if suffix == ".npz":
                np.savez(path, **arrays)
            elif suffix == ".pkl":
                path.write_bytes(pickle.dumps([arrays] * rng.randint(0, 2)))
            elif suffix == ".parquet":
                flat = {k: v for k, v in arrays.items() if v.ndim == 1 and v.dtype.kind in "fiub"}
                long = max(map(len, flat.values()), default=0)
                _write_parquet(path, {k: np.resize(v, long) for k, v in flat.items() if len(v)})
            else:
                with h5py.File(path, "w") as file:
                    for name, values in arrays.items():
                        if values.dtype.kind not in "UM":
                            file[name] = values
            return taken(loading.load(path)) if read else path

        return case

    return kind


def _rlds_steps(length: int) -> list[dict[str, Any]]:
    return [
        {
            "observation": {"state": [float(t), 0.5]},
            "action": [float(t)],
            "reward": 1.0,
            "is_first": t == 0,
            "is_last": t == length - 1,
            "is_terminal": False,
        }
        for t in range(length)
    ]


def taken(dataset: TrajectoryDataset) -> str:
    """A data set that was taken must be one."""
    assert dataset.num_episodes > 0, "no episodes"
    assert (dataset.lengths > 0).all(), "an empty episode"
    for m in dataset.modalities:
        values = dataset.arrays[m.name][dataset.known(m.name)]
        assert values.dtype in (np.float32, np.int64), f"{m.name} is {values.dtype}"
        assert np.isfinite(values).all(), f"{m.name} is not finite"
        if m.kind == "discrete":
            assert ((values >= 0) & (values < m.classes)).all(), f"{m.name} has no such class"
    return "taken"


def _write_parquet(path: Path, columns: dict[str, Any]) -> None:
    table = require("pyarrow", extra="parquet").table(columns)
    require("pyarrow.parquet", extra="parquet").write_table(table, path)
