"""The methods that fill gaps: each is trained once on a set, then asked about every pattern."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mtm.core.config import DeviceConfig, TrainConfig
from mtm.data import loading
from mtm.research.experiments.execute import read, write
from mtm.research.experiments.methods import Stopped
from mtm.research.experiments.spec import RunSpec
from mtm.research.imputation import gaps
from mtm.research.imputation.classical import KalmanSmoother, interpolate
from mtm.research.imputation.corrected import lessons, train_corrector
from mtm.research.imputation.own_model import OwnModel
from mtm.research.imputation.samples import Floats, Logs
from mtm.research.imputation.score import Filler, measure
from mtm.research.imputation.specialists import Specialist, train_for, train_to_the_end
from mtm.runs import checkpoint
from mtm.runs.run import Run
from mtm.training.train import train

SECONDS = "seconds.json"


@dataclass(frozen=True)
class Lesson:
    """What a training comes to: who fills, how long it took, and over how many passes."""

    filler: Filler
    seconds: float
    epochs: int | None = None


def run(spec: RunSpec, folder: Path, needs: Sequence[Path]) -> dict[str, Any]:
    """Train a method on the sensors of a set, and fill gaps in its test episodes.

    Returns:
        `seconds` of the training; `epochs` of a specialist; `patterns`: name -> `error`, `values`,
        `coverage_50`, `coverage_90` and `seconds` to fill all windows; `windows`, how many.

    Raises:
        Stopped: A signal ended our training early.
        DataError: The data do not allow it.
        MissingExtraError: PyPOTS is needed, and is not installed.
    """
    asked = spec.settings["gaps"]
    config = TrainConfig.from_json(spec.settings["train"])
    logs = Logs.of(loading.load(spec.data), asked["sensors"], config)
    folder.mkdir(parents=True, exist_ok=True)
    lesson = _learn(spec, logs, config, folder, needs)
    assert logs.parts.test is not None
    truth = logs.windows(logs.parts.test, asked["window"], asked["windows"], spec.seed)
    patterns = {
        name: _fill(lesson.filler, name, logs, truth, spec.seed) for name in asked["patterns"]
    }
    passes = {} if lesson.epochs is None else {"epochs": lesson.epochs}
    return {"seconds": lesson.seconds, **passes, "windows": len(truth), "patterns": patterns}


def _learn(
    spec: RunSpec, logs: Logs, config: TrainConfig, folder: Path, needs: Sequence[Path]
) -> Lesson:
    if spec.method == "interpolation":
        return Lesson(interpolate, 0.0)
    if spec.method == "kalman":
        began = time.monotonic()
        smoother = KalmanSmoother.fit(logs)
        return Lesson(smoother, time.monotonic() - began)
    if spec.method in ("mtm-acts", "mtm-gaps"):
        return _our_model(spec, logs, config, folder)
    if spec.method == "mtm-smoothed":
        return _corrector(spec, logs, folder)
    trained = _specialist(spec, logs, needs)
    return Lesson(trained, trained.seconds, trained.epochs)


def _our_model(spec: RunSpec, logs: Logs, config: TrainConfig, folder: Path) -> Lesson:
    device = DeviceConfig(threads=spec.threads)
    trained = train(logs.data, config, folder / "run", device=device, resume=True, silent=True)
    seconds = _seconds(trained, config)
    write(folder / SECONDS, {"seconds": seconds})  # the budget of the specialists
    return Lesson(OwnModel(trained), seconds)


def _corrector(spec: RunSpec, logs: Logs, folder: Path) -> Lesson:
    """The smoother's own training and its work on the windows count, too."""
    asked, config = spec.settings["gaps"], TrainConfig.from_json(spec.settings["corrector"])
    began = time.monotonic()
    smoother = KalmanSmoother.fit(logs)
    data = lessons(logs, smoother, asked["patterns"], spec.settings["lessons"], config)
    prepared = time.monotonic() - began
    trained = train_corrector(smoother, data, config, folder / "run", spec.threads)
    return Lesson(trained, prepared + _seconds(trained.run, config))


def _seconds(trained: Run, config: TrainConfig) -> float:
    """Of a training that has come to its end."""
    if trained.step < config.steps:
        raise Stopped
    return checkpoint.load(trained.path / "checkpoints", optimizer=False).state.seconds


def _specialist(spec: RunSpec, logs: Logs, needs: Sequence[Path]) -> Specialist:
    """One that needs our run has its seconds; any other ends by its own rule."""
    settings, name = spec.settings["specialist"], spec.method.removesuffix("-own")
    if needs:
        budget = float(read(needs[0] / SECONDS)["seconds"])
        return train_for(name, logs, settings, spec.seed, budget)
    return train_to_the_end(name, logs, settings, spec.seed)


def _fill(filler: Filler, pattern: str, logs: Logs, truth: Floats, seed: int) -> dict[str, Any]:
    """All windows with the gaps of one pattern; what is lost is not handed over."""
    N, W, _ = truth.shape
    hidden = logs.hidden_columns(gaps.draw(pattern, N, W, len(logs.widths), seed))
    began = time.monotonic()
    filled = filler(np.where(hidden, np.float32(0), truth), hidden)
    seconds = time.monotonic() - began
    return {**measure(filled, truth, hidden), "seconds": seconds}
