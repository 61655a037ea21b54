"""Training from a folder of thousands of Parquet files, beside the same data in memory."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.timing import Row, seconds_of_each
from benchmarks.training import Stepper
from mtm.core.config import preset
from mtm.core.progress import silence
from mtm.core.system import keep_freed_memory
from mtm.data.loading import load
from mtm.data.streaming import CACHE_VARIABLE, LIMIT_VARIABLE
from mtm.data.trajectories import TrajectoryDataset
from mtm.masks import training_mask

SHARDS, STEPS, EPISODE = 2_000, 1_000, 250
WIDTHS = {"observation.state": 11, "action": 3}


def measure() -> list[Row]:
    """Steps of the `cpu` preset in turns, and what making the store costs once."""
    keep_freed_memory()  # as training does
    config = preset("cpu")
    mask = training_mask(config)
    with tempfile.TemporaryDirectory() as name, silence():
        folder = Path(name) / "shards"
        _write(folder)
        whole = _loaded(folder, Path(name), 1 << 60)
        began = time.perf_counter()
        streamed = _loaded(folder, Path(name), 0)
        making = time.perf_counter() - began
        steppers = {"in memory": Stepper(whole, config), "streamed": Stepper(streamed, config)}
        seconds = seconds_of_each(
            {what: lambda s=s: s.step(mask) for what, s in steppers.items()},  # type: ignore[misc]
            at_least=20,
        )
    ratio = seconds["in memory"] / seconds["streamed"]
    count = SHARDS * STEPS
    return [
        Row("streaming", f"a store of {SHARDS:,} files, once", count / making, "steps/s"),
        *(
            Row("streaming", f"training, {what}", config.batch_size / taken, "segments/s")
            for what, taken in seconds.items()
        ),
        Row("streaming", "streamed / in memory", ratio, "times", "at least 0.5"),
    ]


def _loaded(folder: Path, cache: Path, limit: int) -> TrajectoryDataset:
    variables = {LIMIT_VARIABLE: str(limit), CACHE_VARIABLE: str(cache)}
    with mock.patch.dict(os.environ, variables):
        return load(folder)


def _write(folder: Path) -> None:
    folder.mkdir()
    rng = np.random.default_rng(0)
    for shard in range(SHARDS):
        columns = {
            name: pa.FixedSizeListArray.from_arrays(rng.random(STEPS * width, np.float32), width)
            for name, width in WIDTHS.items()
        }
        columns["next.reward"] = pa.array(rng.random(STEPS, np.float32))
        episodes = np.arange(STEPS) // EPISODE + shard * (STEPS // EPISODE)
        columns["episode_index"] = pa.array(episodes)
        pq.write_table(pa.table(columns), folder / f"shard-{shard:05d}.parquet")
