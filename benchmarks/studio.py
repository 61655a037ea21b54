"""How long a click in the studio waits for its answer, and how fast data of any size open."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks.browser import click_times
from benchmarks.timing import Row
from mtm.core.config import TrainConfig, preset
from mtm.data.formats.store import write_store
from mtm.data.trajectories import TrajectoryDataset
from mtm.training.train import train

CLICKS, LONG_CLICKS = 400, 60
"""Of the usual window, and of a long one."""
STEPS, PART = 20_000_000, 200_000
"""Of the data, and of what is written of them at once."""
EPISODE = 500


def measure() -> list[Row]:
    """Milliseconds over HTTP, as the page asks, for a run of the `cpu` preset.

    How well it is trained does not matter to the time, so it takes two steps.
    """
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        run, store = Path(folder) / "run", Path(folder) / "store"
        train("builtin:hopper", _untrained(), run, silent=True)
        _write_large(store)
        with (
            _served(run, store) as address,
            httpx.Client(base_url=address, timeout=60, trust_env=False) as client,
        ):
            began = time.perf_counter()
            _get(client, "data", run=0, data=0)
            _get(client, "episodes", run=0, data=0, offset=STEPS // EPISODE - 50)
            _get(client, "timeline", run=0, data=0, episode=STEPS // EPISODE - 1)
            opening = 1e3 * (time.perf_counter() - began)
            what = f"opening {STEPS:,} steps, the last episodes listed and drawn"
            rows.append(Row("studio", what, opening, "ms"))
            length = _get(client, "studio")["runs"][0]["default_length"]
            for steps, clicks, asked in ((length, CLICKS, "below 50"), (32, LONG_CLICKS, "")):
                times = _clicks(client, steps, clicks)
                for share, name in ((50, "median"), (95, "95th percentile")):
                    what = f"answer to a click, window of {steps} steps, {name}"
                    target = asked if share == 95 else ""
                    rows.append(
                        Row("studio", what, float(np.percentile(times, share)), "ms", target)
                    )
            drawn = click_times(address, length)
            for share, name in ((50, "median"), (95, "95th percentile")) if drawn else ():
                what = f"from a click in chromium to the drawn answer, {name}"
                target = "below 50" if share == 95 else ""
                rows.append(Row("studio", what, float(np.percentile(drawn, share)), "ms", target))
    return rows


@contextmanager
def _served(run: Path, data: Path) -> Iterator[str]:
    """The address of a studio in a process of its own, as people start it."""
    words = [sys.executable, "-m", "mtm", "studio", str(run), "--data", str(data)]
    words += ["--port", "0", "--no-browser"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().rpartition(" ")[2].strip()
        finally:
            server.terminate()


def _untrained() -> TrainConfig:
    """The network of the `cpu` preset, with hardly any training."""
    quick = preset("cpu")
    optimizer = replace(quick.optimizer, warmup_steps=1)
    return replace(quick, steps=2, batch_size=8, validation_segments=64, optimizer=optimizer)


def _clicks(client: httpx.Client, length: int, clicks: int) -> Sequence[float]:
    """Milliseconds of answers while one token after the other is shown or hidden."""
    rng = np.random.default_rng(0)
    place = {"run": 0, "data": 1, "episode": 300, "start": 0, "length": length}
    names = [m["name"] for m in _get(client, "studio")["runs"][0]["modalities"]]
    masks = [
        _post(client, "mask", {**place, "mask": mask})["visible"]
        for mask in ("fd", "id", "rcbc", "goal", "waypoints", "past", "training")
    ]
    times = []
    for click in range(clicks + 20):
        if click % 10 == 0:  # another mask
            grid = {name: list(row) for name, row in masks[click // 10 % len(masks)].items()}
        name, step = names[rng.integers(len(names))], rng.integers(length)
        grid[name][step] = "10"[int(grid[name][step])]
        if not any("1" in row for row in grid.values()):
            continue
        visible = {name: "".join(row) for name, row in grid.items()}
        began = time.perf_counter()
        body = {**place, "visible": visible, "client": f"{length}", "sequence": click}
        _post(client, "answer", body)
        times.append(1e3 * (time.perf_counter() - began))
    return times[20:]  # the first ones warm up


def _write_large(path: Path) -> None:
    """A store of many steps, as `mtm data convert` writes it."""
    arrays = {
        "states": np.zeros((PART, 11), np.float32),
        "actions": np.zeros((PART, 3), np.float32),
        "rewards": np.ones(PART, np.float32),
    }
    part = TrajectoryDataset.from_arrays(arrays, np.arange(0, PART + 1, EPISODE))
    write_store([part] * (STEPS // PART), path, "benchmark")


def _get(client: httpx.Client, path: str, **fields: Any) -> Any:
    return client.get(f"/api/{path}", params=fields).raise_for_status().json()


def _post(client: httpx.Client, path: str, body: dict[str, Any]) -> Any:
    return client.post(f"/api/{path}", json=body).raise_for_status().json()
