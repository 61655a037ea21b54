"""Who computes the runs: processes of this machine, or a Ray cluster.

Both call `execute` with the threads that the run's own settings name, so the numbers are the same.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, Protocol

from mtm.core.errors import ConfigError, require
from mtm.core.system import available_cores, thread_settings
from mtm.research.experiments.execute import Outcome, execute, write

SECONDS_TO_SAVE = 60.0
"""How long a run may take to save when all is to stop."""

OBJECT_STORE = 100_000_000
"""Bytes that a Ray cluster of our own sets aside: tasks exchange paths only."""


@dataclass(frozen=True)
class Finished:
    """A run that the engine is done with; `died` says what became of its process, if it did."""

    folder: Path
    outcome: Outcome
    died: str | None = None


class Engine(Protocol):
    """Computes the runs of directories."""

    def has_room(self) -> bool:
        """Whether to submit another run now."""

    def submit(self, folder: Path, threads: int) -> None:
        """Begin the run of a directory, or queue it."""

    def wait(self, seconds: float) -> list[Finished]:
        """Those that ended since the last call, waiting so long for the first."""

    def close(self) -> None:
        """Stop what is under way, saved, and let go of everything."""


class LocalEngine:
    """Processes of this machine, as many as its cores and the runs' threads allow.

    Two processes with two threads each on two cores run tens of times slower than one of them
    alone (docs/research-log), so each process gets the threads of its run and no more, and none
    shares a core. Where there are GPUs, each process has one to itself.

    Args:
        threads: Of the run that has most.
    """

    def __init__(self, threads: int) -> None:
        size = max(available_cores() // threads, 1)
        self._gpus = _gpus()
        if self._gpus:
            size = min(size, len(self._gpus))
        self._size, self._threads = size, threads
        self._workers: list[_Worker] = []

    def has_room(self) -> bool:
        """Whether a process is idle or can be started."""
        return len(self._workers) < self._size or any(w.folder is None for w in self._workers)

    def submit(self, folder: Path, threads: int) -> None:
        """Hand a directory to an idle process, started if need be."""
        worker = next((w for w in self._workers if w.folder is None), None)
        if worker is None:
            taken = {w.gpu for w in self._workers}
            gpu = next((g for g in self._gpus if g not in taken), None)
            worker = _Worker(self._threads, gpu)
            self._workers.append(worker)
        worker.submit(folder)

    def wait(self, seconds: float) -> list[Finished]:
        """The answers of processes, and the deaths."""
        busy = {w.answers.fileno(): w for w in self._workers if w.folder is not None}
        finished = []
        for ready in wait(list(busy), seconds):
            assert isinstance(ready, int)
            worker = busy[ready]
            finished.append(worker.receive())
            if worker.folder is not None:  # it died, and its answer was the last
                self._workers.remove(worker)
        return finished

    def close(self) -> None:
        """End the input of all processes and wait until they have saved."""
        for worker in self._workers:
            worker.release()
        for worker in self._workers:
            worker.join()
        self._workers = []


class _Worker:
    """A process that does one run at a time; `folder` is the one under way."""

    def __init__(self, threads: int, gpu: str | None) -> None:
        variables = os.environ | thread_settings(threads)
        if gpu is not None:
            variables["CUDA_VISIBLE_DEVICES"] = gpu
        self.gpu = gpu
        self.folder: Path | None = None
        self._process = subprocess.Popen(
            [sys.executable, "-m", "mtm.research.experiments.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=variables,
            text=True,
            start_new_session=True,  # Ctrl-C is for the parent, which then asks to save
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self.answers = self._process.stdin, self._process.stdout

    def submit(self, folder: Path) -> None:
        self.folder = folder
        with suppress(BrokenPipeError):  # it has died: `receive` will tell
            self._requests.write(f"{folder}\n")
            self._requests.flush()

    def receive(self) -> Finished:
        """The answer; where the process died instead, `folder` stays set."""
        assert self.folder is not None
        folder, answer = self.folder, self.answers.readline().strip()
        if not answer:
            code = self._process.wait()
            self.release()
            self.answers.close()
            return Finished(folder, "failed", f"its process ended with exit code {code}")
        self.folder = None
        return Finished(folder, answer)  # type: ignore[arg-type]

    def release(self) -> None:
        with suppress(BrokenPipeError):
            self._requests.close()

    def join(self) -> None:
        try:
            self._process.wait(SECONDS_TO_SAVE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self.answers.close()


LOOPBACK = "127.0.0.1"
"""The address that only this machine reaches."""

CLUSTERS = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""What tells Ray, on Linux too, that no other machine will join; else it takes an address of the
network in place of the loopback one."""


NODE = "node.json"
"""Says in the directory of a run on which machine of the cluster it is, or was, computed."""


class RayEngine:
    """A Ray cluster: an existing one, or one of this machine for the time being.

    Every run is a task that reserves a core for each of its threads, and a GPU where the cluster
    has any. The directories must lie where all nodes see them under the same path.

    Args:
        address: Of a running cluster; None: RAY_ADDRESS, else a cluster is started here, which
            listens on this machine's loopback address only: Ray runs whatever it is sent.

    Raises:
        ConfigError: There is no such cluster, or one here would be open to the network.
    """

    def __init__(self, address: str | None) -> None:
        existing = address or os.environ.get("RAY_ADDRESS")
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent anywhere
        if not existing:
            os.environ[CLUSTERS] = "0"  # read when Ray is imported
        self._ray: Any = require("ray", extra="ray")
        here: dict[str, Any] = {
            "num_cpus": available_cores(),
            "include_dashboard": False,
            "_node_ip_address": LOOPBACK,
            "object_store_memory": OBJECT_STORE,
        }
        try:
            self._ray.init(
                address=existing or "local",  # None would join one that somebody runs here
                log_to_driver=False,
                logging_level=logging.ERROR,
                **({} if existing else here),
            )
        except (ConnectionError, ValueError) as error:
            raise ConfigError(f"no Ray cluster at {existing}: {error}") from error
        found = self._ray.util.get_node_ip_address()
        if not existing and found != LOOPBACK:
            self._ray.shutdown()
            raise ConfigError(
                f"Ray would listen on {found}, for everybody there to use, as it was imported "
                f"before with {CLUSTERS} unset. Set that variable to 0 first, or start a cluster "
                "of your own and give its address."
            )
        self._tasks: dict[Any, Path] = {}
        self._gpus = 1 if self._ray.cluster_resources().get("GPU", 0) else 0

    def has_room(self) -> bool:
        """Always: Ray queues what does not fit yet."""
        return True

    def submit(self, folder: Path, threads: int) -> None:
        """Hand a directory to the cluster.

        Raises:
            ConfigError: No machine of the cluster has so many cores.
        """
        most = max(node["Resources"].get("CPU", 0) for node in self._ray.nodes() if node["Alive"])
        if threads > most:
            raise ConfigError(
                f"a run wants {threads} cores, the largest machine of the cluster has {most:.0f}."
            )
        (folder / NODE).unlink(missing_ok=True)
        remote = self._ray.remote(num_cpus=threads, num_gpus=self._gpus, max_retries=0)
        self._tasks[remote(_execute_on_node).remote(folder)] = folder

    def wait(self, seconds: float) -> list[Finished]:
        """Tasks that ended."""
        if not self._tasks:
            return []
        ready, _ = self._ray.wait(list(self._tasks), num_returns=1, timeout=seconds)
        return [self._collect(task) for task in ready] or self._lost()

    def close(self) -> None:
        """Cancel what is under way, wait until it has saved, and leave the cluster."""
        for task in self._tasks:
            self._ray.cancel(task)
        if self._tasks:
            count = len(self._tasks)
            self._ray.wait(list(self._tasks), num_returns=count, timeout=SECONDS_TO_SAVE)
        self._ray.shutdown()

    def _lost(self) -> list[Finished]:
        """Tasks on machines that the cluster gave up.

        Ray tells soon which machines it gave up, but not of the tasks there: it waits for them for
        as long as a connection that nobody has closed seems to hold.
        """
        alive = {node["NodeID"] for node in self._ray.nodes() if node["Alive"]}
        lost = [t for t, folder in self._tasks.items() if _node_of(folder) not in (None, *alive)]
        reason = "the machine that computed it was lost, or cannot be reached"
        return [Finished(self._tasks.pop(task), "failed", reason) for task in lost]

    def _collect(self, task: Any) -> Finished:
        folder = self._tasks.pop(task)
        try:
            return Finished(folder, self._ray.get(task))
        except self._ray.exceptions.RayError as error:  # the process or its machine died
            return Finished(folder, "failed", f"its Ray task ended: {type(error).__name__}")


def _execute_on_node(folder: Path) -> Outcome:
    """Do the run of a directory, and say on which machine of the cluster; in a process of Ray's."""
    import ray

    write(folder / NODE, {"node": ray.get_runtime_context().get_node_id()})
    return execute(folder)  # the file stays: a machine that is cut off may still tidy up


def _node_of(folder: Path) -> str | None:
    """The machine of the cluster that computes a run; None before one has begun."""
    try:
        return str(json.loads((folder / NODE).read_bytes())["node"])
    except FileNotFoundError:
        return None


def _gpus() -> list[str]:
    """What to set CUDA_VISIBLE_DEVICES to, for each GPU that this process may use."""
    import torch

    count = torch.cuda.device_count()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return visible.split(",")[:count] if visible and count else [str(i) for i in range(count)]
