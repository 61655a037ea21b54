"""Serving: requests per second and slow answers at 1, 16 and 128 clients, none of them mixed up."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from benchmarks.timing import Row
from mtm.control import policies
from mtm.control.policies import MaskedPolicy
from mtm.core.config import preset
from mtm.inference.queries import predict
from mtm.runs.run import Run
from mtm.training.train import train

CLIENTS = (1, 16, 128)
SECONDS = 6.0
"""Of load, for each number of clients."""

PREDICT_EVERY = 8
"""Steps between questions of a client that also acts."""

TOLERANCE = 1e-3
"""By how much an answer may differ from that of a direct call, in standard deviations of the data.
Sums of a batch of another size are added up in another order."""


def measure() -> list[Row]:
    """Clients that act, tell what came of it, and ask, over sockets of the loopback."""
    with tempfile.TemporaryDirectory() as folder:
        config = replace(preset("cpu"), steps=100, validate_every=100, checkpoint_every=100)
        config = replace(config, optimizer=replace(config.optimizer, warmup_steps=10))
        run = train("builtin:hopper", config, Path(folder) / "run", silent=True)
        rows = []
        with served(run.path) as url:
            asyncio.run(load(run, url, 1, seconds=1.0))  # the first answers are slower
            for count in CLIENTS:
                found = asyncio.run(load(run, url, count, seconds=SECONDS))
                rows += _rows(run, count, found)
    return rows


@contextmanager
def served(path: Path) -> Iterator[str]:
    """A server of a run in a process of its own; gives its address."""
    words = [sys.executable, "-m", "mtm", "serve", str(path), "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.terminate()


@dataclass
class Client:
    """What one client did: an HTTP connection of its own, and a memory of all answers."""

    seed: int
    n: int
    policy: str
    target: str
    seconds: dict[str, list[float]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    steps: list[tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]] = field(
        default_factory=list
    )
    """States, actions, rewards and dones, of each step."""
    questions: list[tuple[NDArray[Any], NDArray[Any]]] = field(default_factory=list)
    """States, and the actions that were predicted between them."""

    async def live(self, run: Run, url: str, until: float, most_steps: int) -> None:
        """Act until the time is over, or so many steps are taken."""
        place = urlsplit(url)
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
        try:
            self._reader, self._writer = reader, writer
            await self._act(run, until, most_steps)
        finally:
            writer.close()
            await writer.wait_closed()

    async def _act(self, run: Run, until: float, most_steps: int) -> None:
        rng = np.random.default_rng(self.seed)
        body = {"policy": self.policy, "n": self.n}
        body |= {} if self.policy == "bc" else {"target": self.target}
        session = (await self._ask("POST", "/sessions", body))["id"]
        for step in range(most_steps):
            if time.perf_counter() > until:
                break
            states = draw_states(run, rng, self.n)
            sent = {"states": states.tolist()}
            found = await self._ask("POST", f"/sessions/{session}/act", sent)
            rewards, dones = rng.uniform(0, 1, self.n), rng.uniform(0, 1, self.n) < 0.1
            told = {"rewards": rewards.tolist(), "dones": dones.tolist()}
            await self._ask("POST", f"/sessions/{session}/observe", told)
            self.steps.append((states, np.asarray(found["actions"]), rewards, dones))
            if step % PREDICT_EVERY == 0:
                await self._question(run, rng)
        await self._ask("DELETE", f"/sessions/{session}")

    async def _question(self, run: Run, rng: np.random.Generator) -> None:
        states = draw_states(run, rng, run.segment_length)
        state, action = (run.modalities.only(role).name for role in ("state", "action"))
        asked = {"given": {state: states.tolist()}, "want": action}
        found = await self._ask("POST", "/predict", asked)
        self.questions.append((states, np.asarray(found["predicted"][action])))

    async def _ask(
        self, method: str, path: str, plain: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        body = b"" if plain is None else json.dumps(plain).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n"
        began = time.perf_counter()
        self._writer.write(f"{head}Content-Type: application/json\r\n\r\n".encode() + body)
        answer = (await self._reader.readuntil(b"\r\n\r\n")).decode()
        lines = answer.lower().splitlines()
        (length,) = (int(x.partition(":")[2]) for x in lines if x.startswith("content-length:"))
        found: dict[str, Any] = json.loads(await self._reader.readexactly(length))
        what = path.rpartition("/")[2] if method == "POST" else method
        self.seconds.setdefault(what, []).append(time.perf_counter() - began)
        if "error" in found:
            self.failures.append(f"{path}: {found['error']}")
            raise RuntimeError(self.failures[-1])
        return found

    def worst_difference(self, run: Run) -> float:
        """Between its answers and those of direct calls, in the data's standard deviations."""
        policy = self._policy(run)
        policy.reset(self.n)
        action = policy.actions.name
        std = run.normalizer.statistics[action].std
        worst = 0.0
        for states, actions, rewards, dones in self.steps:
            worst = max(worst, float(np.abs((policy.act(states) - actions) / std).max()))
            policy.observe(rewards, dones)
        for states, actions in self.questions:
            direct = predict(run, {policy.states.name: states}, action)[action]
            worst = max(worst, float(np.abs((direct - actions) / std).max()))
        return worst

    def _policy(self, run: Run) -> MaskedPolicy:
        if self.policy == "bc":
            return policies.behavior_cloning(run)
        make = policies.two_stage if self.policy == "two_stage" else policies.return_conditioned
        return make(run, self.target)


async def load(
    run: Run, url: str, count: int, *, seconds: float, most_steps: int = 1_000_000
) -> list[Client]:
    """Clients that differ in all that can be mixed up, at once; each is returned."""
    ways = ("rcbc", "bc", "rcbc", "two_stage")
    clients = [
        Client(i, 1 + i % 3, ways[i % len(ways)], f"fraction:{0.4 + 0.6 * i / count}")
        for i in range(count)
    ]
    until = time.perf_counter() + seconds
    await asyncio.gather(*(client.live(run, url, until, most_steps) for client in clients))
    return clients


def draw_states(run: Run, rng: np.random.Generator, n: int) -> NDArray[np.float32]:
    """States such as the data have, (n, *shape)."""
    m = run.modalities.only("state")
    known = run.normalizer.statistics[m.name]
    return (known.mean + known.std * rng.standard_normal((n, *m.shape))).astype(np.float32)


def _rows(run: Run, count: int, clients: list[Client]) -> list[Row]:
    taken = [s for client in clients for times in client.seconds.values() for s in times]
    acts = [s for client in clients for s in client.seconds["act"]]
    longest = max(sum(sum(times) for times in c.seconds.values()) for c in clients)
    worst = max(client.worst_difference(run) for client in clients)
    name = f"{count} client{'s' if count > 1 else ''}"
    asked = f"at most {TOLERANCE}"
    return [
        Row("serving", f"{name}: requests", len(taken) / longest, "requests/s"),
        Row("serving", f"{name}: actions", len(acts) / longest, "requests/s"),
        Row("serving", f"{name}: an action, median", float(np.median(acts)) * 1e3, "ms"),
        Row("serving", f"{name}: an action, 99 %", float(np.quantile(acts, 0.99)) * 1e3, "ms"),
        Row("serving", f"{name}: difference to direct calls", worst, "std", asked),
    ]
