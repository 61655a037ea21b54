"""Runs and what is made of them: plain data, checkpoints, packed runs, exports, results."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from mtm.cli import main as mtm
from mtm.core.config import TrainConfig
from mtm.core.plain_data import SEAL
from mtm.deploy.exported_policy import ExportedPolicy
from mtm.deploy.policy_file import read_policy_file
from mtm.evaluation.report import page
from mtm.inference.queries import predict
from mtm.research.experiments.execute import read
from mtm.runs.run import load_run
from torture.fuzz_data import Case
from torture.mutations import mutated, spoiled
from torture.verbs import train_words


def make_runs(base: Path) -> None:
    """A run, and what is made of it; the data are there."""
    assert mtm(train_words(base / "a.npz", base / "run", 2)) == 0
    assert mtm(["pack", str(base / "run"), str(base / "run.mtm")]) == 0
    words = ["export", str(base / "run"), "--out", str(base / "export"), "--capability", "bc"]
    assert mtm(words) == 0


def json_case(name: str, use: Callable[[Path], Any]) -> Callable[[Path, Path], Case]:
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

        use(copy)
        return case

    return kind


def asked(path: Path) -> str:
    """Load a run and ask it something."""
    run = load_run(path)
    states = next(m for m in run.modalities if m.role == "state")
    predict(run, {states.name: np.zeros((2, *states.shape), np.float32)}, "actions")
    return "taken"


def checkpoint_case(base: Path, folder: Path) -> Case:
    """Files of a checkpoint: no other weights than were saved."""
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


def bytes_case(name: str, use: Callable[[Path], Any]) -> Callable[[Path, Path], Case]:
    """What is one file, or described by one."""

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

        use(place)
        return case

    return kind


def used_export(path: Path) -> str:
    """Load an export and act by it."""
    described = read_policy_file(path)
    for name in described.acting:
        policy = ExportedPolicy(described, name)
        policy.reset(2)
        policy.act(np.zeros((2, *described.modalities.only("state").shape), np.float32))
    return "taken"


def evaluation_case(base: Path, folder: Path) -> Case:
    """What `mtm eval` measured, drawn by `mtm report`."""
    run = load_run(shutil.copytree(base / "run", folder / "run"))
    one = {"mean": 1.0, "std": 0.0}
    roll = {"target": 1.0, "return": one, "score": one, "length": one, "episodes": 1}
    sweep = {"auto": roll, "fixed": roll, "sweep": {"0.9": roll}, "best": roll}
    errors = {"normalized": 0.25, "raw": 0.5, "copy_last": 0.75}
    sound = {"step": 2, "seed": 0, "tasks": {"rcbc": sweep, "fd": errors, "bc": roll}}

    def case(rng: random.Random) -> Any:
        return drawn(mutated(sound, rng))

    def drawn(plain: Any) -> str:
        (run.path / "evaluation.json").write_text(json.dumps(plain))
        page._acting(run, lambda _: None)
        return "taken"

    drawn(sound)
    return case


def result_case(base: Path, folder: Path) -> Case:
    """A result of `mtm reproduce`."""
    sound = json.dumps({"result": {"mean": 1.0}, "provenance": {"commit": "x"}}).encode()

    def case(rng: random.Random) -> Any:
        (folder / "result.json").write_bytes(spoiled(sound, rng))
        read(folder / "result.json")
        return "taken"

    return case


def settings_case(base: Path, folder: Path) -> Case:
    """Settings of a training."""
    sound = TrainConfig().to_json()
    return lambda rng: TrainConfig.from_json(mutated(sound, rng)) and "taken"
