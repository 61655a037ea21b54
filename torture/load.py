"""Load and time: many episodes, many clients, and a long while with flat memory."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import random
import shutil
import signal
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from benchmarks.serving import TOLERANCE, Client
from benchmarks.serving import load as serve_load

from mtm.runs.run import load_run
from torture.outcomes import Row, timed
from torture.verbs import Material, train_words
from torture.warm import Warm

EPISODES = 500
CLIENTS = 200
MINUTES = 30.0
"""Of the soak."""

ASKS = 2
"""Requests of every client of the studio."""

GROWTH = 0.05
"""By how much memory may be larger in the second half of a soak than in the first."""


def load(
    warm: Warm,
    episodes: int = EPISODES,
    clients: int = CLIENTS,
    say: Callable[[Row], None] = lambda row: None,
) -> list[Row]:
    """Episodes at once, and clients at once."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="mtm-load-") as name:
        made = Material.make(Path(name), warm)
        work: list[tuple[str, Callable[[Row], None]]] = [
            (f"{episodes} episodes at once", lambda row: _episodes(warm, made, episodes, row)),
            (f"{clients} clients of the server", lambda row: _serve(warm, made, clients, row)),
            (f"{clients} clients of the studio", lambda row: _studio(warm, made, clients, row)),
        ]
        for what, do in work:
            row = Row("load", what)
            with timed(row):
                do(row)
            say(row)
            rows.append(row)
    return rows


def soaked(
    warm: Warm, minutes: float = MINUTES, say: Callable[[Row], None] = lambda row: None
) -> list[Row]:
    """A long while of work, with flat memory and file handles."""
    row = Row("soak", f"{minutes:g} minutes of train, evaluate, save")
    with timed(row), tempfile.TemporaryDirectory(prefix="mtm-load-") as name:
        _soak(warm, Material.make(Path(name), warm), minutes, row)
    say(row)
    return [row]


def _episodes(warm: Warm, made: Material, episodes: int, row: Row) -> None:
    ended = warm.run("torture.load:play", str(made.swings), str(made.data.parent), episodes)
    if ended.code:
        row.broke(f"exit code {ended.code}: {ended.said[-500:]}")
    for _ in range(0 if ended.code else episodes):
        row.held("played")


def play(data: str, folder: str, episodes: int) -> None:
    """Many episodes in lockstep; some of them alone come out the same. In a child."""
    from mtm.cli import main
    from mtm.control import policies
    from mtm.control.rollout import rollout

    out = Path(folder) / "swinging"
    assert main(train_words(Path(data), out, 4)) == 0
    policy = policies.behavior_cloning(load_run(out))
    many = rollout({"bc": policy}, "Pendulum-v1", episodes=episodes, processes=1)["bc"]
    few = rollout({"bc": policy}, "Pendulum-v1", episodes=4, processes=1)["bc"]
    returns = np.asarray(many.returns)
    assert len(returns) == episodes, len(returns)
    assert np.isfinite(returns).all()
    np.testing.assert_allclose(returns[:4], few.returns, rtol=1e-3)


@contextmanager
def _started(warm: Warm, words: list[str]) -> Iterator[str]:
    """A server in a child; gives its address, and ends it by a signal."""
    child = warm.start(words)
    try:
        file, until = child.place.with_suffix(".said"), time.monotonic() + 120
        while "http://" not in (said := file.read_text() if file.exists() else ""):
            assert time.monotonic() < until, said
            time.sleep(0.05)
        yield next(word for word in said.split() if word.startswith("http://")).rstrip("/.,")
    finally:
        os.kill(child.pid, signal.SIGTERM)
        ended = warm.wait(child)
        assert "Traceback" not in ended.said, ended.said[-1000:]


def _serve(warm: Warm, made: Material, clients: int, row: Row) -> None:
    run = load_run(made.run)
    with _started(warm, ["serve", str(made.run), "--port", "0", "--threads", "1"]) as url:
        found: list[Client] = asyncio.run(serve_load(run, url, clients, seconds=300, most_steps=3))
    for client in found:
        worst = client.worst_difference(run)
        if client.failures or worst > TOLERANCE or len(client.steps) != 3:
            row.broke(f"client {client.seed}: {client.failures}, off by {worst:.2g}")
        else:
            row.held("answered, as alone")


def _studio(warm: Warm, made: Material, clients: int, row: Row) -> None:
    words = ["studio", str(made.run), "--port", "0", "--no-browser"]
    with _started(warm, words) as url:
        base = url.partition("?")[0]
        with httpx.Client(base_url=base, timeout=60, trust_env=False) as alone:
            wanted = [alone.get(path).json() for path in _paths()]
        asyncio.run(_ask_all(base, clients, wanted, row))


def _paths() -> list[str]:
    return [f"/api/timeline?run=0&data=0&episode={i}" for i in range(ASKS)]


async def _ask_all(base: str, clients: int, wanted: list[Any], row: Row) -> None:
    async def one() -> None:
        turned_away = 0
        try:
            async with httpx.AsyncClient(base_url=base, timeout=120, trust_env=False) as client:
                for path, right in zip(_paths(), wanted, strict=True):
                    while (answer := await client.get(path)).status_code == 503:
                        turned_away += 1
                        await asyncio.sleep(random.uniform(0.5, 2))
                    if answer.json() != right:
                        row.broke(f"{path}: {answer.status_code} {answer.text[:200]}")
                        return
        except (httpx.HTTPError, ValueError) as error:
            row.broke(f"{type(error).__name__}: {error}")
            return
        row.held("asked again, answered" if turned_away else "answered")

    await asyncio.gather(*(one() for _ in range(clients)))


def _soak(warm: Warm, made: Material, minutes: float, row: Row) -> None:
    file = made.data.parent / "soak.json"
    ended = warm.run(
        "torture.load:soak", str(made.data), str(file), minutes, seconds=60 * minutes + 600
    )
    if ended.code:
        row.broke(f"exit code {ended.code}: {ended.said[-500:]}")
        return
    turns = json.loads(file.read_text())
    first, second = turns[: len(turns) // 2], turns[len(turns) // 2 :]
    memory = [max(turn["memory"] for turn in half) for half in (first, second)]
    handles = [max(turn["handles"] for turn in half) for half in (first, second)]
    if memory[1] > memory[0] * (1 + GROWTH) or handles[1] > handles[0]:
        row.broke(f"memory {memory}, file handles {handles}, in {len(turns)} turns")
        return
    row.cases = len(turns)
    row.outcomes[f"{memory[0] >> 20} -> {memory[1] >> 20} MiB, {handles[1]} handles"] = len(turns)


def soak(data: str, file: str, minutes: float) -> None:
    """Train, evaluate and save for a while, and note memory and file handles; in a child."""
    from mtm.core.config import preset
    from mtm.evaluation.evaluate import EvalConfig, evaluate
    from mtm.training.train import train

    turns = []
    until = time.monotonic() + 60 * minutes
    out = Path(file).parent / "soaked"
    config = replace(preset("tiny"), steps=10, validate_every=5, checkpoint_every=2, log_every=2)
    config = replace(config, optimizer=replace(config.optimizer, warmup_steps=2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        while time.monotonic() < until or len(turns) < 8:
            run = train(data, config, out, overwrite=True, silent=True)
            evaluate(load_run(out), EvalConfig(("fd", "id")), say=lambda _: None)
            del run
            gc.collect()
            status = Path("/proc/self/statm").read_text().split()
            memory = int(status[1]) * os.sysconf("SC_PAGE_SIZE")
            turns.append({"memory": memory, "handles": len(list(Path("/proc/self/fd").iterdir()))})
    shutil.rmtree(out)
    Path(file).write_text(json.dumps(turns[2:]))  # the first ones fill caches
