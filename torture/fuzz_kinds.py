"""Everything that reads, each as a function that makes one bad input and has it read."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import pickle
import random
import shutil
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from mtm.cli import VERBS
from mtm.cli import main as mtm
from mtm.core.config import TrainConfig
from mtm.core.errors import require
from mtm.core.plain_data import SEAL
from mtm.data import loading
from mtm.data.formats import builtin
from mtm.data.formats.store import open_store, write_store
from mtm.data.trajectories import TrajectoryDataset
from mtm.data.verification import stored_faults
from mtm.deploy.exported_policy import ExportedPolicy
from mtm.deploy.policy_file import read_policy_file
from mtm.evaluation.report import page
from mtm.inference.queries import predict
from mtm.research.experiments.execute import read
from mtm.runs.run import Run, load_run
from torture.mutations import FOREIGN, mutated, odd_arrays, spoiled, spoiled_zip
from torture.requests import serve_case, studio_case
from torture.verbs import train_words

Case = Callable[..., Any]
"""Of a random generator; makes a bad input and has it read."""

ARRAYS = {
    "observations": np.random.default_rng(0).normal(size=(12, 3)),
    "actions": np.random.default_rng(1).normal(size=(12, 2)).astype(np.float32),
    "rewards": np.arange(12.0),
    "terminals": np.arange(12) % 4 == 3,
}


def prepare(base: Path) -> None:
    """Make sound files of every kind."""
    np.savez(base / "a.npz", **ARRAYS)
    with h5py.File(base / "a.hdf5", "w") as file:
        for name, values in ARRAYS.items():
            file[name] = values
    pieces = [{k: ARRAYS[k] for k in ("observations", "actions")}] * 2
    (base / "a.pkl").write_bytes(pickle.dumps(pieces))
    _write_parquet(base / "a.parquet", {"episode": np.arange(12) // 4, "x": ARRAYS["rewards"]})
    data = builtin.point_mass(episodes=6, length=8)
    write_store([data], base / "store", "log")
    assert mtm(train_words(base / "a.npz", base / "run", 2)) == 0
    assert mtm(["pack", str(base / "run"), str(base / "run.mtm")]) == 0
    assert (
        mtm(["export", str(base / "run"), "--out", str(base / "export"), "--capability", "bc"]) == 0
    )
    with contextlib.suppress(ImportError):
        _make_minari(base)


def _data_file(name: str) -> Callable[[Path, Path], Case]:
    """Bytes of a file changed, or odd arrays in it."""

    def kind(base: Path, folder: Path) -> Case:
        sound, path = (base / name).read_bytes(), folder / name

        def case(rng: random.Random, read: bool = True) -> Any:
            if path.suffix == ".npz" and rng.random() < 0.3:
                path.write_bytes(spoiled_zip(sound, rng))
            else:
                path.write_bytes(spoiled(sound, rng))
            return _loaded(loading.load(path)) if read else path

        return case

    return kind


def _odd(suffix: str) -> Callable[[Path, Path], Case]:
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
            return _loaded(loading.load(path)) if read else path

        return case

    return kind


def _minari(base: Path, folder: Path) -> Case:
    require("minari", extra="minari")
    os.environ["MINARI_DATASETS_PATH"] = str(folder)
    if not (base / "toy").exists():
        return lambda rng, read=True: "minari is not installed"
    shutil.copytree(base / "toy", folder / "toy")
    files = [f for f in (folder / "toy").rglob("*") if f.is_file() and f.name != "namespace.json"]
    sound = {file: file.read_bytes() for file in files}

    def case(rng: random.Random, read: bool = True) -> Any:
        for file, content in sound.items():
            file.write_bytes(content)
        file = rng.choice(files)
        if file.suffix == ".json" and rng.random() < 0.7:
            file.write_text(json.dumps(mutated(json.loads(sound[file]), rng)))
        else:
            file.write_bytes(spoiled(sound[file], rng))
        return _loaded(loading.load("minari:toy/box-v0")) if read else "minari:toy/box-v0"

    return case


def _store(base: Path, folder: Path) -> Case:
    copy = shutil.copytree(base / "store", folder / "store")
    sound = {file: file.read_bytes() for file in copy.iterdir()}
    written = _values(open_store(copy))

    def case(rng: random.Random) -> Any:
        for file, content in sound.items():
            file.write_bytes(content)
        file = rng.choice(list(sound))
        if file.suffix == ".json" and rng.random() < 0.7:
            file.write_text(json.dumps(mutated(json.loads(sound[file]), rng)))
        else:
            file.write_bytes(spoiled(sound[file], rng))
        dataset = open_store(copy)
        if list(stored_faults(dataset)):
            return "faults told"
        assert file.suffix == ".json" or _values(dataset) == written, "other values, unnoticed"
        return "taken"

    return case


def _json_of_run(name: str, use: Callable[[Path], Any]) -> Callable[[Path, Path], Case]:
    """Plain data of a run, without their digest: as if somebody had edited them."""

    def kind(base: Path, folder: Path) -> Case:
        copy = shutil.copytree(base / "run", folder / "run")
        file = next(copy.glob(name))
        sound = {k: v for k, v in json.loads(file.read_text()).items() if "sha256" not in k}
        kept = {"sha256": json.loads(file.read_text()).get(SEAL)} if "state" in name else {}

        def case(rng: random.Random) -> Any:
            changed = mutated(sound, rng)
            file.write_text(
                json.dumps({**changed, **kept} if isinstance(changed, dict) else changed)
            )
            return use(copy)

        return case

    return kind


def _asked(path: Path) -> str:
    """Load a run and ask it something."""
    run = load_run(path)
    states = next(m for m in run.modalities if m.role == "state")
    predict(run, {states.name: np.zeros((2, *states.shape), np.float32)}, "actions")
    return "taken"


def _checkpoint(base: Path, folder: Path) -> Case:
    copy = shutil.copytree(base / "run", folder / "run")
    files = [file for file in copy.glob("checkpoints/*/*") if file.is_file()]
    sound = {file: file.read_bytes() for file in files}
    run = load_run(copy)
    weights = {k: v.clone() for k, v in run.model.state_dict().items()}

    def case(rng: random.Random) -> Any:
        for file, content in sound.items():
            file.write_bytes(content)
        file = rng.choice(files)
        file.write_bytes(spoiled(sound[file], rng))
        now = load_run(copy).model.state_dict()
        assert all((now[k] == v).all() for k, v in weights.items()), "other weights, unnoticed"
        return "no effect"

    return case


def _bytes_of(name: str, use: Callable[[Path], Any]) -> Callable[[Path, Path], Case]:
    def kind(base: Path, folder: Path) -> Case:
        if (base / name).is_dir():
            shutil.copytree(base / name, folder / name)
        else:
            shutil.copy(base / name, folder / name)
        place = folder / name
        file = place / "policy.json" if place.is_dir() else place
        sound = file.read_bytes()

        def case(rng: random.Random) -> Any:
            if place.is_dir() and rng.random() < 0.8:
                plain = {k: v for k, v in json.loads(sound).items() if k != SEAL}
                file.write_text(json.dumps(mutated(plain, rng)))
            else:
                file.write_bytes(spoiled(sound, rng))
            return use(place)

        return case

    return kind


def _use_export(path: Path) -> str:
    described = read_policy_file(path)
    for name in described.acting:
        policy = ExportedPolicy(described, name)
        policy.reset(2)
        policy.act(np.zeros((2, *described.modalities.only("state").shape), np.float32))
    return "taken"


def _evaluation(base: Path, folder: Path) -> Case:
    run = load_run(shutil.copytree(base / "run", folder / "run"))
    roll = {"target": 1.0, "return": {"mean": 1.0, "std": 0.0}, "score": None, "episodes": 1}
    sweep = {"auto": roll, "fixed": roll, "sweep": {"0.9": roll}, "best": roll}
    errors = {"normalized": 0.25, "raw": 0.5, "copy_last": 0.75}
    sound = {"step": 2, "seed": 0, "tasks": {"rcbc": sweep, "fd": errors, "bc": roll}}

    def case(rng: random.Random) -> Any:
        (run.path / "evaluation.json").write_text(json.dumps(mutated(sound, rng)))
        page._acting(run, lambda _: None)
        return "taken"

    return case


def _result(base: Path, folder: Path) -> Case:
    sound = json.dumps({"result": {"mean": 1.0}, "provenance": {"commit": "x"}}).encode()

    def case(rng: random.Random) -> Any:
        (folder / "result.json").write_bytes(spoiled(sound, rng))
        read(folder / "result.json")
        return "taken"

    return case


def _settings(base: Path, folder: Path) -> Case:
    sound = TrainConfig().to_json()
    return lambda rng: TrainConfig.from_json(mutated(sound, rng)) and "taken"


def _predict(base: Path, folder: Path) -> Case:
    run: Run = load_run(base / "run")
    names = [m.name for m in run.modalities]

    def case(rng: random.Random) -> Any:
        drawn = list(odd_arrays(rng).values()) or [np.zeros(3)]
        chosen = rng.sample(names, rng.randint(0, len(names)))
        given = {name: rng.choice(drawn) for name in chosen}
        for name in chosen[: rng.randint(0, 2)]:
            shape = next(m.shape for m in run.modalities if m.name == name)
            given[name] = np.zeros((rng.choice([1, 4]), rng.choice([0, 1, 3, 9]), *shape))
        want = rng.choice([*names, "foreign", "", names, [], 7])
        answer = predict(run, given, want)  # type: ignore[arg-type]
        assert all(np.isfinite(np.asarray(v, float)).all() for v in answer.values()), "not finite"
        return "answered"

    return case


def _command_line(base: Path, folder: Path) -> Case:
    """Words of every verb, in the wrong place; no run and no environment is there to be used."""
    os.chdir(folder)
    flags = {}
    for verb, (module, _) in VERBS.items():
        arguments = getattr(importlib.import_module(module), "Arguments", None)
        names = [f.name for f in fields(arguments)] if arguments is not None else []
        flags[verb] = [f"--{name.replace('_', '-')}" for name in names] + ["--help", "--x", "-v"]
    values = [
        *(str(v) for v in FOREIGN),
        "no/run",
        "builtin:nothing",
        str(base / "a.npz"),
        "=",
        "a=b",
    ]
    values += [
        "--",
        "-1",
        "\x1b[31m",
        "\u202e",
        "x" * 5000,
        str(base / "store"),
        "hub:",
        "d4rl:",
        ":",
    ]
    verbs = [v for v in VERBS if v not in ("demo", "reproduce", "train", "baseline", "collect")]

    def case(rng: random.Random) -> Any:
        if rng.random() < 0.3:
            words = train_words(base / "a.npz", folder / "no" / "run", 1)
            words[rng.randrange(1, len(words))] = rng.choice(values)
            words += [rng.choice(flags["train"]), rng.choice(values), "--stop-at", "0"]
        else:
            verb = rng.choice(verbs)
            words = verb.split() if rng.random() < 0.95 else [rng.choice(values)]
            for _ in range(rng.randint(0, 4)):
                words.append(rng.choice(flags[verb] if rng.random() < 0.5 else values))
            if verb in ("serve", "studio"):
                words.insert(len(verb.split()), "no/run")
        said = io.StringIO()
        try:
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                code = mtm(words)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 99
        text = said.getvalue()
        assert code in (0, 2), f"exit code {code} of {words}"
        assert "Traceback" not in text, f"{words}: {text[-300:]}"
        assert "\x1b[31m\x1b" not in text, f"{words} steers the terminal"
        return "done" if code == 0 else "refused"

    return case


def _loaded(dataset: TrajectoryDataset) -> str:
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


def _values(dataset: TrajectoryDataset) -> list[bytes]:
    return [np.asarray(dataset.arrays[name]).tobytes() for name in dataset.names]


def _write_parquet(path: Path, columns: dict[str, Any]) -> None:
    table = require("pyarrow", extra="parquet").table(columns)
    require("pyarrow.parquet", extra="parquet").write_table(table, path)


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


KINDS: dict[str, Callable[[Path, Path], Case]] = {
    ".npz": _data_file("a.npz"),
    ".npz, odd arrays": _odd(".npz"),
    "HDF5": _data_file("a.hdf5"),
    "HDF5, odd arrays": _odd(".hdf5"),
    "Parquet": _data_file("a.parquet"),
    "Parquet, odd columns": _odd(".parquet"),
    "pickle": _data_file("a.pkl"),
    "pickle, odd arrays": _odd(".pkl"),
    "Minari": _minari,
    "store": _store,
    "settings": _settings,
    "config.json": _json_of_run("config.json", _asked),
    "state.json": _json_of_run("checkpoints/*/state.json", _asked),
    "checkpoint": _checkpoint,
    "evaluation.json": _evaluation,
    "result.json": _result,
    "packed run": _bytes_of("run.mtm", _asked),
    "policy.json": _bytes_of("export", _use_export),
    "command line": _command_line,
    "predict": _predict,
    "serve": serve_case,
    "studio": studio_case,
}
"""Name -> a function of the sound files' folder and one to work in, which gives the case."""

DATA_FILES = (".npz", "HDF5", "HDF5, odd arrays", "Parquet", "Minari")
"""Kinds that libraries in C read."""
