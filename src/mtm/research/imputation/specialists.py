"""SAITS, BRITS and CSDI with the real PyPOTS, trained for so many seconds or by their own rule.

All three are handed windows of the training episodes. Half of the windows of SAITS and BRITS bear
gaps of the kinds that they will be asked about; both learn from the rest by their own rules. CSDI
has complete windows, and hides by such patterns and by a rule of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from mtm.core.errors import require
from mtm.core.randomness import Purpose, generator
from mtm.data.modalities import BoolArray
from mtm.research.imputation import gaps
from mtm.research.imputation.samples import Floats, Logs
from mtm.research.imputation.score import Filled

SAMPLES = 10
"""How often CSDI answers; the mean is taken. Its quantiles would promise too much of so few."""

STUDENT = {50: 0.702722, 90: 1.833113}
"""Half the width of an interval in standard deviations of so many samples (Student's t)."""


@dataclass(frozen=True)
class Specialist:
    """A specialist after its training.

    Attributes:
        name: Of `SPECIALISTS`.
        model: PyPOTS's own object.
        seconds: Of the training, validation included.
        epochs: Passes over the windows that it was handed.
    """

    name: str
    model: Any
    seconds: float
    epochs: int

    def __call__(self, windows: Floats, hidden: BoolArray) -> Filled:
        """Fill windows, (N, W, D)."""
        test = {"X": np.where(hidden, np.nan, windows).astype(np.float32)}
        if self.name != "csdi":
            return Filled(np.asarray(self.model.impute(test), np.float32))
        drawn = np.asarray(self.model.impute(test, n_sampling_times=SAMPLES))  # (N, n, W, D)
        middle = drawn.mean(axis=1)
        spread = drawn.std(axis=1, ddof=1) * np.sqrt(1 + 1 / SAMPLES)
        ends = {level: (middle - t * spread, middle + t * spread) for level, t in STUDENT.items()}
        return Filled(middle, ends)


class Windows:
    """The windows that a specialist learns from, and those by which it chooses its weights."""

    def __init__(self, name: str, logs: Logs, settings: Mapping[str, Any], seed: int) -> None:
        self.name, self.logs, self.seed = name, logs, seed
        self.length, self.patterns = settings["window"], settings["patterns"]
        self._validation = settings["validation_windows"]

    def training(self, count: int, part: int) -> dict[str, Floats]:
        """Drawn anew for every part."""
        rng = generator(self.seed, Purpose.GAPS, part)
        seed = self.seed + (part << 16)
        X = self.logs.windows(self.logs.parts.training, self.length, count, seed, dense=True)
        lost = self._lost(len(X), rng)
        if self.name == "csdi":
            return {"X": X, "for_pattern_mask": (~lost).astype(np.float32)}
        lost[rng.random(len(X)) < 0.5] = False
        return {"X": np.where(lost, np.float32(np.nan), X)}

    def validation(self) -> dict[str, Floats]:
        """Always the same."""
        assert self.logs.parts.validation is not None
        episodes, rng = self.logs.parts.validation, generator(self.seed, Purpose.VALIDATION)
        X = self.logs.windows(episodes, self.length, self._validation, self.seed)
        return {"X": np.where(self._lost(len(X), rng), np.float32(np.nan), X), "X_ori": X}

    def _lost(self, count: int, rng: np.random.Generator) -> BoolArray:
        drawn = gaps.draw_mixed(self.patterns, count, self.length, len(self.logs.widths), rng)
        return self.logs.hidden_columns(drawn)


def train_for(
    name: str,
    logs: Logs,
    settings: Mapping[str, Any],
    seed: int,
    seconds: float,
    clock: Callable[[], float] = time.monotonic,
) -> Specialist:
    """Train a specialist for so many seconds at most; its weights are those of the best part.

    A part is an epoch of PyPOTS's over windows that are drawn anew. No part is begun that would
    probably end too late, but the first.

    Args:
        name: Of `SPECIALISTS`.
        logs: To learn from.
        settings: Of `specialist_settings`.
        seed: Of weights, windows and gaps.
        seconds: The budget.
        clock: Tells the time in seconds.
    """
    model, windows = _made(name, logs, settings, seed)
    began, longest = clock(), 0.0
    learner = _Learner(model, windows, settings["batch_size"] * settings["batches"])
    while learner.parts == 0 or clock() - began + longest < seconds:
        at = clock()
        learner.learn()
        longest = max(longest, clock() - at)
    learner.take_best()
    return Specialist(name, model, clock() - began, learner.parts)


def train_to_the_end(name: str, logs: Logs, settings: Mapping[str, Any], seed: int) -> Specialist:
    """Train as PyPOTS recommends: so many epochs, or until so many bring nothing.

    The windows of an epoch are as many as fit side by side into the training episodes.
    """
    model, windows = _made(name, logs, settings, seed)
    began = time.monotonic()
    count = max(logs.steps // settings["window"], settings["batch_size"])
    learner = _Learner(model, windows, count)
    while learner.parts < settings["epochs"] and learner.idle < settings["patience"]:
        learner.learn()
    learner.take_best()
    return Specialist(name, model, time.monotonic() - began, learner.parts)


class _Learner:
    """Fits a model part by part, and keeps the weights of the best part.

    A part is a call of PyPOTS's `fit` for one epoch, over windows that are drawn anew. With more
    epochs, `fit` would take an interruption or an error after the first for its end; so it raises.
    """

    def __init__(self, model: Any, windows: Windows, count: int) -> None:
        self.parts, self.idle = 0, 0  # all of them, and those since the best one
        self._model, self._windows, self._count = model, windows, count
        self._validation = windows.validation()
        self._best, self._weights = float("inf"), None

    def learn(self) -> None:
        """One part more."""
        self._model.fit(self._windows.training(self._count, self.parts), self._validation)
        self.parts, self.idle = self.parts + 1, self.idle + 1
        if self._model.best_loss < self._best:
            self._best, self.idle = self._model.best_loss, 0
            self._weights = deepcopy(self._model.model.state_dict())

    def take_best(self) -> None:
        """Give the model the weights of the best part."""
        self._model.model.load_state_dict(self._weights)


def _made(name: str, logs: Logs, settings: Mapping[str, Any], seed: int) -> tuple[Any, Windows]:
    imputation = require("pypots.imputation", extra="imputation")
    require("pypots.utils.random", extra="imputation").set_random_seed(seed)
    build: Callable[..., Any] = getattr(imputation, name.upper())
    model = build(
        n_steps=settings["window"],
        n_features=logs.columns,
        batch_size=settings["batch_size"],
        epochs=1,  # of a part
        patience=None,
        device=torch.device("cpu"),
        verbose=False,
        **settings["network"],
    )
    return model, Windows(name, logs, settings, seed)
