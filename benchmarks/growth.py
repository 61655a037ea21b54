"""How the time of a step grows with batch, width, segment length and the size of the data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks import one_training
from benchmarks.timing import Row, seconds_per_call
from benchmarks.training import Stepper
from mtm.core.config import TrainConfig, preset
from mtm.core.system import keep_freed_memory
from mtm.data.trajectories import TrajectoryDataset
from mtm.masks import training_mask

STEPS = 100_000
"""Steps of the random data, unless their number is what grows."""
TOKENS = 3 * 4 * 256
"""Tokens of a batch while the segments get longer."""
LONG = 64
"""A segment length whose memory is measured, at the preset's batch size."""


@dataclass(frozen=True)
class Axis:
    """One quantity that grows while the others stay.

    Attributes:
        name: What it is.
        values: How large it gets.
        config: The settings at a value.
        steps: The steps of the data at a value.
    """

    name: str
    values: Sequence[int]
    config: Callable[[int], TrainConfig]
    steps: Callable[[int], int] = lambda value: STEPS


def measure(folder: Path) -> list[Row]:
    """Milliseconds per step along each axis, as rows and as a picture."""
    keep_freed_memory()
    measured = {axis.name: [_seconds(axis, value) for value in axis.values] for axis in AXES}
    figure = Figure(figsize=(12, 3.2), layout="constrained")
    for axes, axis in zip(figure.subplots(1, len(AXES)), AXES, strict=True):
        _draw(axes, axis, measured[axis.name])
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "growth.png", dpi=110)
    rows = [
        Row("growth", f"{axis.name} {value:,}", seconds * 1e3, "ms per step")
        for axis in AXES
        for value, seconds in zip(axis.values, measured[axis.name], strict=True)
    ]
    memory = one_training.measured("cpu", 2, length=LONG)["memory"] / 2**20
    what = f"peak memory, segment length {LONG}, batch {preset('cpu').batch_size}"
    return [*rows, Row("growth", what, memory, "MiB")]


def _with_batch(size: int) -> TrainConfig:
    return replace(preset("cpu"), batch_size=size)


def _with_width(width: int) -> TrainConfig:
    return replace(preset("cpu"), model=replace(preset("cpu").model, width=width))


def _with_length(T: int) -> TrainConfig:
    model = replace(preset("cpu").model, segment_length=T)
    return replace(preset("cpu"), model=model, batch_size=TOKENS // (3 * T))


AXES = (
    Axis("batch", (64, 128, 256, 512, 1024), _with_batch),
    Axis("width", (64, 128, 256, 512), _with_width),
    Axis("segment length, same tokens,", (4, 8, 16, 32, 64, 128, 256), _with_length),
    Axis("steps of data", (10_000, 100_000, 1_000_000), lambda _: preset("cpu"), lambda n: n),
)


def _seconds(axis: Axis, value: int) -> float:
    config = axis.config(value)
    stepper = Stepper(_data(axis.steps(value)), config)
    mask = training_mask(config)
    return seconds_per_call(lambda: stepper.step(mask), at_least=2.0, warmup=1)


def _data(steps: int) -> TrajectoryDataset:
    rng = np.random.default_rng(0)
    arrays = {
        "states": rng.random((steps, 11), np.float32),
        "returns": rng.random(steps, np.float32),
        "actions": rng.random((steps, 3), np.float32),
    }
    return TrajectoryDataset.from_arrays(arrays, np.arange(0, steps + 1, 1000))


def _draw(axes: Axes, axis: Axis, seconds: Sequence[float]) -> None:
    axes.plot(axis.values, [1e3 * s for s in seconds], "o-", color="#d9480f", markersize=4)
    axes.set_xscale("log")
    axes.set_xticks(axis.values, [f"{value:,}" for value in axis.values], fontsize=8)
    axes.minorticks_off()
    axes.set_ylim(0, 1.1e3 * max(seconds))
    axes.set_xlabel(axis.name.rstrip(","))
    axes.set_ylabel("ms per step")
    axes.spines[["top", "right"]].set_visible(False)
