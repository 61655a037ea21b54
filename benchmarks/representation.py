"""One update of TD3 on encodings, against one on states."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.timing import Row, seconds_of_each
from mtm.core.config import preset
from mtm.core.system import keep_freed_memory
from mtm.data.trajectories import TrajectoryDataset
from mtm.research.baselines.td3_agent import TD3Agent
from mtm.research.baselines.td3_config import VARIANTS, TD3Config, td3_preset
from mtm.runs.run import Run
from mtm.training.train import train

STATES, ACTIONS = 24, 6
"""Of the walker."""
STEPS = 20_000
ASKED = {"frozen": "at most 1.5", "finetuned": "at most 4"}


def measure() -> list[Row]:
    """Milliseconds of an update on states, and how many times as long the variants take."""
    keep_freed_memory()  # as training does
    data = walker_data()
    with tempfile.TemporaryDirectory() as folder:
        config = replace(preset("cpu"), steps=1, modalities=("states", "actions"))
        config = replace(config, optimizer=replace(config.optimizer, warmup_steps=0))
        run = train(data, config, Path(folder) / "run", silent=True)
    cpu, paper = td3_preset("cpu"), td3_preset("paper")
    sizes = [cpu, replace(cpu, batch_size=1024), paper]
    return [row for config in sizes for row in _measure(config, run, data)]


def _measure(config: TD3Config, run: Run, data: TrajectoryDataset) -> list[Row]:
    low, high = -np.ones(ACTIONS, np.float32), np.ones(ACTIONS, np.float32)
    noise, steps = (config.noise, config.noise_limit), iter(range(10**9))
    updates = {}
    for variant in VARIANTS:
        mine = replace(config, variant=variant)  # type: ignore[arg-type]
        agent = TD3Agent(mine, STATES, low, high, None if variant == "raw" else run)
        updates[variant] = (agent, agent.transitions(data))

    def update(variant: str) -> None:
        agent, batches = updates[variant]
        agent.update(batches.batch(config.batch_size, noise, config.seed, next(steps)))

    seconds = seconds_of_each(
        {v: lambda v=v: update(v) for v in VARIANTS},  # type: ignore[misc]
        at_least=1.0,
        repeats=8,
    )
    part = f"TD3, batch {config.batch_size}, hidden {config.hidden}"
    rows = [Row(part, "raw, one update", seconds["raw"] * 1e3, "ms")]
    return rows + [
        Row(part, f"{v} / raw", seconds[v] / seconds["raw"], "times", ASKED[v.split("-")[-1]])
        for v in VARIANTS
        if v != "raw"
    ]


def walker_data() -> TrajectoryDataset:
    """Numbers at random, of the walker's shapes."""
    rng = np.random.default_rng(0)
    arrays = {
        "states": rng.standard_normal((STEPS, STATES), np.float32),
        "actions": rng.uniform(-1, 1, (STEPS, ACTIONS)).astype(np.float32),
        "rewards": rng.random(STEPS, np.float32),
    }
    return TrajectoryDataset.from_arrays(arrays, np.arange(0, STEPS + 1, 1000))
