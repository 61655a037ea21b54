"""Seeded mutations of every kind of file that is read: nothing but errors of ours, and soon.

`CASES` of each kind; the seed of a case is in its message, so it can be made again.
"""

from __future__ import annotations

import copy
import json
import pickle
import random
import shutil
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from mtm.core.config import ModelConfig, OptimizerConfig, TrainConfig
from mtm.core.errors import MTMError
from mtm.data import loading
from mtm.data.formats import builtin
from mtm.data.formats.store import write_store
from mtm.data.segments import Segments
from mtm.data.verification import stored_faults
from mtm.evaluation.report import page
from mtm.runs.run import Run, load_run
from mtm.training.train import train

CASES = 60
SECONDS = 10.0
"""For one case; most take milliseconds."""

FOREIGN = (
    *(None, True, -1, 0, 3, 10**24, 1e308, float("inf"), float("-inf"), float("nan"), 0.5),
    *("", "x", "NaN", [], {}, [None], {"a": None}, [[1]], [float("nan")]),
)

pytestmark = pytest.mark.usefixtures("_one_thread")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of one step, with numbers to report."""
    config = TrainConfig(
        steps=1,
        batch_size=4,
        model=ModelConfig(width=8, encoder_layers=1, heads=1),
        optimizer=OptimizerConfig(warmup_steps=0),
    )
    data = builtin.point_mass(episodes=6, length=8)
    return train(data, config, tmp_path_factory.mktemp("mutated") / "run", silent=True)


def mutated(plain: Any, rng: random.Random) -> Any:
    """Plain data with one to three values replaced, removed or added."""
    plain = copy.deepcopy(plain)
    for _ in range(rng.randint(1, 3)):
        place: Any = plain
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            if not keys:
                break
            key = rng.choice(keys)
            if isinstance(place[key], dict | list) and place[key] and rng.random() < 0.8:
                place = place[key]
                continue
            action = rng.random()
            if action < 0.7:
                place[key] = rng.choice(FOREIGN)
            elif action < 0.85:
                del place[key]
            elif isinstance(place, dict):
                place[rng.choice(["foreign", "name", "width"])] = rng.choice(FOREIGN)
            break
    return plain


def spoiled(content: bytes, rng: random.Random) -> bytes:
    """Bytes with some changed, cut off, or repeated."""
    data = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(data))
        action = rng.random()
        if action < 0.7:
            data[place] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
        elif action < 0.85:
            data[place : place + rng.randint(1, 16)] = bytes(rng.randrange(256) for _ in range(8))
        else:
            del data[place:]
            data += b"\0"
    return bytes(data)


def only_our_errors(cases: Callable[[random.Random], None]) -> None:
    """Run the cases of a kind of file; any other error than ours tells which."""
    refused = 0
    for seed in range(CASES):
        began = time.monotonic()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                cases(random.Random(seed))
        except MTMError:
            refused += 1
        except Exception as error:
            raise AssertionError(f"case {seed}: {type(error).__name__}: {error}") from error
        assert time.monotonic() - began < SECONDS, f"case {seed}"
    assert refused > CASES // 4  # they do harm


def test_config_json(run: Run, tmp_path: Path) -> None:
    folder = shutil.copytree(run.path, tmp_path / "run")
    sound = json.loads((folder / "config.json").read_text())

    def case(rng: random.Random) -> None:
        (folder / "config.json").write_text(json.dumps(mutated(sound, rng)))
        loaded = load_run(folder)
        assert loaded.description.metadata.source

    only_our_errors(case)


def test_state_json(run: Run, tmp_path: Path) -> None:
    folder = shutil.copytree(run.path, tmp_path / "run")
    file = next(folder.glob("checkpoints/*/state.json"))
    sound = json.loads(file.read_text())
    plain = {key: value for key, value in sound.items() if key != "state_sha256"}

    def case(rng: random.Random) -> None:
        old = rng.random() < 0.5  # as earlier versions wrote it
        file.write_text(json.dumps(mutated(plain if old else sound, rng)))
        assert load_run(folder).step == 1

    only_our_errors(case)


def test_manifest_json(tmp_path: Path) -> None:
    write_store([builtin.sinusoids(4, 8)], tmp_path / "store", "log")
    file = tmp_path / "store" / "manifest.json"
    sound = json.loads(file.read_text())

    def case(rng: random.Random) -> None:
        file.write_text(json.dumps(mutated(sound, rng)))
        opened = loading.load(tmp_path / "store")
        Segments(opened, 3).gather(np.arange(4))
        list(stored_faults(opened))

    only_our_errors(case)


def test_evaluation_json(run: Run) -> None:
    roll = {
        "target": 1.0,
        "return": {"mean": 1.0, "std": 0.0},
        "score": None,
        "episodes": 1,
    }
    rcbc = {"auto": roll, "fixed": roll, "sweep": {"0.9": roll}, "best": roll}
    errors = {"normalized": 0.25, "raw": 0.5, "copy_last": 0.75}
    sound = {"step": 2, "seed": 0, "tasks": {"rcbc": rcbc, "fd": errors, "bc": roll}}

    def case(rng: random.Random) -> None:
        (run.path / "evaluation.json").write_text(json.dumps(mutated(sound, rng)))
        page._acting(run, lambda _: None)

    only_our_errors(case)


ARRAYS = {
    "observations": np.random.default_rng(0).normal(size=(12, 3)),
    "actions": np.random.default_rng(1).normal(size=(12, 2)).astype(np.float32),
    "rewards": np.arange(12.0),
    "terminals": np.arange(12) % 4 == 3,
}


def as_npz(path: Path) -> None:
    np.savez(path, **ARRAYS)


def as_parquet(path: Path) -> None:
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed (extra parquet)")
    from pyarrow import parquet

    columns = {"episode": np.arange(12) // 4, "x": ARRAYS["rewards"], "u": ARRAYS["rewards"]}
    parquet.write_table(pa.table(columns), path)


def as_pickle(path: Path) -> None:
    path.write_bytes(pickle.dumps([{k: ARRAYS[k] for k in ("observations", "actions")}] * 2))


def as_hdf5(path: Path) -> None:
    with h5py.File(path, "w") as file:
        for name, values in ARRAYS.items():
            file[name] = values


@pytest.mark.parametrize(
    ("name", "write"),
    [("a.npz", as_npz), ("a.parquet", as_parquet), ("a.pkl", as_pickle), ("a.hdf5", as_hdf5)],
)
def test_data_files(tmp_path: Path, name: str, write: Callable[[Path], None]) -> None:
    write(tmp_path / name)
    sound = (tmp_path / name).read_bytes()

    def case(rng: random.Random) -> None:
        (tmp_path / name).write_bytes(spoiled(sound, rng))
        loading.load(tmp_path / name)

    only_our_errors(case)
