"""Several hosts, as network namespaces of one machine: torchrun over two, Ray over two.

Each namespace has a loopback of its own and one end of a cable (veth). A host is cut off by taking
its end down, and killed with all of its processes. Needs root, `ip` and `ss` of iproute2.
"""

from __future__ import annotations

import csv
import io
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mtm.core.system import thread_settings
from mtm.data.formats import builtin
from mtm.data.writing import write
from mtm.runs import checkpoint
from mtm.training.trackers import read_metrics
from torture.outcomes import Row, timed
from torture.verbs import swings

Process = subprocess.Popen[bytes]

ADDRESSES = ("10.177.77.1", "10.177.77.2")
PORT, RAY_PORT = 29577, 6377
SILENCE = 15.0
"""Seconds after which a host that is cut off is given up here; the library takes longer, see
`mtm.training.processes`."""

NOTICED = 60.0
"""Seconds within which all processes must have ended, on a busy machine."""

TOGETHER = """
import sys
from datetime import timedelta
import mtm.training.processes as processes
processes.SILENCE = timedelta(seconds=float(sys.argv[1]))
from mtm.cli import main
sys.exit(main(sys.argv[2:]))
"""


@dataclass(frozen=True)
class Host:
    """A namespace: its name, address, and end of the cable."""

    name: str
    address: str
    cable: str

    def start(self, words: Sequence[str], said: Path, **variables: str) -> Process:
        """Start a program there."""
        more = {"RAY_USAGE_STATS_ENABLED": "0", **variables}
        with said.open("wb") as file:
            return subprocess.Popen(
                ["ip", "netns", "exec", self.name, *words],
                stdout=file,
                stderr=subprocess.STDOUT,
                env=os.environ | thread_settings(1) | more,
            )

    def set_cable(self, state: str) -> None:
        """Take the cable's end down or up."""
        command = ["ip", "netns", "exec", self.name, "ip", "link", "set", self.cable, state]
        subprocess.run(command, check=True)

    def kill(self) -> None:
        """Kill all that runs there."""
        listed = subprocess.run(
            ["ip", "netns", "pids", self.name], check=True, capture_output=True, text=True
        )
        for pid in map(int, listed.stdout.split()):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def listening(self) -> set[str]:
        """Addresses that something listens on there."""
        command = ["ip", "netns", "exec", self.name, "ss", "-H", "-ltn"]
        listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        return {line.split()[3].rpartition(":")[0] for line in listed.splitlines()}


def why_not() -> str:
    """Why there can be no hosts here; empty if there can."""
    if os.geteuid():
        return "only root may make network namespaces"
    missing = [name for name in ("ip", "ss") if shutil.which(name) is None]
    return f"{' and '.join(missing)} of iproute2 are not installed" if missing else ""


@contextmanager
def two_hosts() -> Iterator[tuple[Host, Host]]:
    """Two namespaces with a cable between them."""
    hosts = tuple(
        Host(f"mtm-{os.getpid()}-{end}", address, f"mtm{os.getpid() % 99999}{end}")
        for end, address in zip("ab", ADDRESSES, strict=True)
    )
    first, second = hosts
    try:
        for host in hosts:
            subprocess.run(["ip", "netns", "add", host.name], check=True)
        cables = ["type", "veth", "peer", "name", second.cable, "netns", second.name]
        subprocess.run(["ip", "link", "add", first.cable, "netns", first.name, *cables], check=True)
        for host in hosts:
            inside = ["ip", "netns", "exec", host.name, "ip"]
            address = ["address", "add", f"{host.address}/24", "dev", host.cable]
            for words in (address, ["link", "set", "lo", "up"], ["link", "set", host.cable, "up"]):
                subprocess.run([*inside, *words], check=True)
        yield first, second
    finally:
        for host in hosts:
            if Path(f"/run/netns/{host.name}").exists():
                host.kill()
                subprocess.run(["ip", "netns", "delete", host.name], check=True)


def hosts(say: Callable[[Row], None] = lambda row: None, *, ray: bool = True) -> list[Row]:
    """Train over two hosts, cut one off, kill one, go on; and reproduce on a Ray cluster of two."""
    cases: list[tuple[str, Callable[[Host, Host, Path, Row], None]]] = [
        ("torchrun: as one process", _as_one_process),
        ("torchrun: a host is cut off, then goes on", _cut_off),
        ("torchrun: a host is killed, then goes on", _killed),
        ("one host listens on its loopback only", _loopback_only),
    ]
    if ray:
        cases.append(("Ray: reproduce on two nodes, one of which is killed", _ray))
    rows = []
    reason = why_not()
    for what, case in cases:
        row = Row("hosts", what, skipped=reason)
        if not reason:
            with (
                timed(row),
                two_hosts() as (first, second),
                tempfile.TemporaryDirectory(prefix="mtm-hosts-") as name,
            ):
                case(first, second, Path(name), row)
        say(row)
        rows.append(row)
    return rows


def _train(folder: Path, steps: int, *more: str) -> list[str]:
    if not (folder / "log.npz").exists():
        write([(builtin.point_mass(episodes=24, length=12), {})], folder / "log.npz", "log")
    words = ["train", "--data", str(folder / "log.npz"), "--preset", "tiny", "--resume"]
    words += ["--accelerator", "cpu", "--threads", "1", "--batch-size", "8", "--model.dropout", "0"]
    words += ["--steps", str(steps), "--checkpoint-every", "4", "--log-every", "1", *more]
    return [*words, "--validate-every", "100", "--optimizer.warmup-steps", "2"]


def _launched(hosts: Sequence[Host], folder: Path, words: Sequence[str]) -> list[Process]:
    """A training by torchrun, a process on each host."""
    program = folder / "program.py"
    program.write_text(TOGETHER)
    launch = [sys.executable, "-m", "torch.distributed.run", "--nnodes", str(len(hosts))]
    launch += ["--nproc-per-node", "1", "--master-addr", hosts[0].address]
    launch += ["--master-port", str(PORT)]
    return [
        host.start(
            [*launch, "--node-rank", str(rank), str(program), str(SILENCE), *words],
            folder / f"said-{rank}",
            GLOO_SOCKET_IFNAME=host.cable,  # here, the machine's name is no address of a host
        )
        for rank, host in enumerate(hosts)
    ]


def _ended(processes: Sequence[Process], seconds: float) -> list[int | None]:
    """Exit codes; None for who has none by then."""
    until = time.monotonic() + seconds
    while any(p.poll() is None for p in processes) and time.monotonic() < until:
        time.sleep(0.1)
    return [p.poll() for p in processes]


def _said(folder: Path) -> str:
    return " | ".join(f"{f.name}: {f.read_text()[-1500:]}" for f in sorted(folder.glob("said-*")))


def _has_said(folder: Path, words: str) -> bool:
    return any(words in file.read_text() for file in folder.glob("said-*"))


def _as_one_process(first: Host, second: Host, folder: Path, row: Row) -> None:
    two = _train(folder, 2, "--num-nodes", "2", "--strategy", "ddp", "--out", str(folder / "two"))
    codes = _ended(_launched((first, second), folder, two), 300)
    one = [sys.executable, "-m", "mtm", *_train(folder, 2, "--out", str(folder / "one"))]
    alone = _ended([first.start(one, folder / "said-alone")], 300)
    if any(codes) or any(alone) or None in codes:
        row.broke(f"exit codes {codes} and {alone}: {_said(folder)}")
        return
    weights = [checkpoint.load(folder / name / "checkpoints").model for name in ("one", "two")]
    worst = max(float((weights[0][k] - weights[1][k]).abs().max()) for k in weights[0])
    if worst > 1e-4:
        row.broke(f"weights differ by {worst:.2g}")
    else:
        row.held(f"weights within {worst:.0e}")


def _under_way(first: Host, second: Host, folder: Path, row: Row) -> list[Process] | None:
    """A long training over both, once it has saved something."""
    more = ("--num-nodes", "2", "--strategy", "ddp", "--out", str(folder / "run"))
    processes = _launched((first, second), folder, _train(folder, 1_000_000, *more))
    until = time.monotonic() + 300
    while not checkpoint.steps(folder / "run" / "checkpoints"):
        if time.monotonic() > until or any(p.poll() is not None for p in processes):
            row.broke(f"it did not begin: {_said(folder)}")
            return None
        time.sleep(0.1)
    return processes


def _goes_on(first: Host, second: Host, folder: Path, row: Row, how: str) -> None:
    """Both hosts again: the training goes on from its last checkpoint."""
    saved = checkpoint.steps(folder / "run" / "checkpoints")[-1]
    more = ("--num-nodes", "2", "--strategy", "ddp", "--out", str(folder / "run"))
    codes = _ended(_launched((first, second), folder, _train(folder, saved + 4, *more)), 300)
    rows = read_metrics(folder / "run" / "metrics.csv")
    if any(codes) or None in codes or rows[-1]["step"] != saved + 4:
        row.broke(f"it did not go on: {codes}: {_said(folder)}")
    else:
        row.held(f"{how}, went on")


def _cut_off(first: Host, second: Host, folder: Path, row: Row) -> None:
    processes = _under_way(first, second, folder, row)
    if processes is None:
        return
    second.set_cable("down")
    began = time.monotonic()
    codes = _ended(processes, SILENCE + NOTICED)
    took = time.monotonic() - began
    told = _has_said(folder, "was lost, or cannot be reached")
    if None in codes or not all(codes) or not told:
        row.broke(f"exit codes {codes} after {took:.0f} s: {_said(folder)}")
        return
    second.set_cable("up")
    _goes_on(first, second, folder, row, f"error after {took:.0f} s of {SILENCE:.0f} s of silence")


def _killed(first: Host, second: Host, folder: Path, row: Row) -> None:
    processes = _under_way(first, second, folder, row)
    if processes is None:
        return
    second.kill()
    began = time.monotonic()
    codes = _ended(processes, NOTICED)
    took = time.monotonic() - began
    if None in codes or not all(codes):
        row.broke(f"exit codes {codes} after {took:.0f} s: {_said(folder)}")
        return
    _goes_on(first, second, folder, row, f"error after {took:.0f} s")


def _loopback_only(first: Host, second: Host, folder: Path, row: Row) -> None:
    """Two processes on one machine, of which no other one hears."""
    more = ("--devices", "2", "--strategy", "ddp", "--out", str(folder / "run"))
    words = [sys.executable, "-m", "mtm", *_train(folder, 1_000_000, *more)]
    training = first.start(words, folder / "said-0")
    found: set[str] = set()
    until = time.monotonic() + 300
    while not checkpoint.steps(folder / "run" / "checkpoints") and time.monotonic() < until:
        found |= first.listening()
        time.sleep(0.05)
    if not found or training.poll() is not None:
        row.broke(f"it did not begin: {_said(folder)}")
    elif found != {"127.0.0.1"}:
        row.broke(f"something listens on {sorted(found)}")
    else:
        row.held("listens on 127.0.0.1")


def _ray(first: Host, second: Host, folder: Path, row: Row) -> None:
    write([(swings(), {})], folder / "swings.npz", "swings")
    pages = {}
    reproduce = [sys.executable, "-m", "mtm", "reproduce", "length", "--scale", "smoke"]
    reproduce += ["--seeds", "1", "--data", str(folder / "swings.npz"), "--out"]
    address = f"{first.address}:{RAY_PORT}"
    cluster = ["--engine", "ray", "--address", address]
    _start_ray(first, second, folder)
    for name, more in (("local", []), ("cluster", cluster)):
        codes = _ended(
            [first.start([*reproduce, str(folder / name), *more], folder / "said-0")], 400
        )
        if codes != [0]:
            row.broke(f"{name}: exit code {codes}: {_said(folder)}")
            return
        (page,) = (folder / name).glob("*/results.csv")
        rows = csv.DictReader(io.StringIO(page.read_text()))
        pages[name] = [{k: v for k, v in r.items() if "seconds" not in k} for r in rows]
    if pages["local"] != pages["cluster"]:
        row.broke("the cluster's table is another")
        return
    row.held("the same table on two nodes")
    driver = first.start([*reproduce, str(folder / "broken"), *cluster], folder / "said-0")
    until = time.monotonic() + 200
    while not list((folder / "broken").glob("runs/*/running.json")) and time.monotonic() < until:
        time.sleep(0.05)
    second.kill()
    began = time.monotonic()
    codes = _ended([driver], 2 * NOTICED)
    if None in codes:
        row.broke(
            f"it hangs {time.monotonic() - began:.0f} s after a node was killed: {_said(folder)}"
        )
        return
    again = _ended(
        [first.start([*reproduce, str(folder / "broken"), *cluster], folder / "said-0")], 400
    )
    if again != [0]:
        row.broke(f"it did not go on: {again}: {_said(folder)}")
    else:
        row.held(f"exit code {codes[0]} {time.monotonic() - began:.0f} s after the kill, went on")


def _start_ray(first: Host, second: Host, folder: Path) -> None:
    """A node on each host, with one core each."""
    ray = [str(Path(sys.executable).parent / "ray"), "start", "--num-cpus", "1"]
    ray += ["--disable-usage-stats", "--object-store-memory", "100000000"]
    head = ["--head", "--port", str(RAY_PORT), "--include-dashboard", "false"]
    for host, more in (
        (first, head),
        (second, ["--address", f"{first.address}:{RAY_PORT}"]),
    ):
        words = [*ray, "--node-ip-address", host.address, *more]
        codes = _ended([host.start(words, folder / "said-ray")], 300)
        assert codes == [0], (folder / "said-ray").read_text()
