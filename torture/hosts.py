"""Several hosts: training by torchrun over two, `mtm reproduce` on a Ray cluster of two."""

from __future__ import annotations

import csv
import io
import json
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from mtm.data.formats import builtin
from mtm.data.writing import write
from mtm.runs import checkpoint
from mtm.training.trackers import read_metrics
from torture.namespaces import Host, Process, two_hosts, why_not
from torture.outcomes import Row, timed
from torture.verbs import swings

PORT, RAY_PORT = 29577, 6377
SILENCE = 15.0
"""Seconds after which a host that is cut off is given up here; the library takes longer, see
`mtm.training.processes`."""

NOTICED = 60.0
"""Seconds within which all processes must have ended, on a busy machine."""

LEFT = 300.0
"""Seconds in which a cluster must notice that a node is lost, and do what is left without it."""

TOGETHER = """
import sys
from datetime import timedelta
import mtm.training.processes as processes
processes.SILENCE = timedelta(seconds=float(sys.argv[1]))
from mtm.cli import main
sys.exit(main(sys.argv[2:]))
"""


Case = Callable[[Host, Host, Path, Row], None]


def hosts(only: Collection[str] = (), say: Callable[[Row], None] = lambda row: None) -> list[Row]:
    """All of the cases or some, each on two new hosts."""
    rows = []
    reason = why_not()
    for what in only or CASES:
        row = Row("hosts", what, skipped=reason)
        if not reason:
            with (
                timed(row),
                tempfile.TemporaryDirectory(prefix="mtm-hosts-") as name,
                two_hosts() as (first, second),  # gone, with all that writes there, before it is
            ):
                CASES[what](first, second, Path(name), row)
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
    """Whether a program under test has; what Ray's own say is in `said-ray`."""
    return any(words in file.read_text() for file in folder.glob("said-[0-9]"))


def _as_one_process(first: Host, second: Host, folder: Path, row: Row) -> None:
    two = _train(folder, 2, "--num-nodes", "2", "--strategy", "ddp", "--out", str(folder / "two"))
    codes = _ended(_launched((first, second), folder, two), 300)
    one = [sys.executable, "-m", "mtm", *_train(folder, 2, "--out", str(folder / "one"))]
    alone = _ended([first.start(one, folder / "said-alone")], 300)
    if codes != [0, 0] or alone != [0]:
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
    if codes != [0, 0] or rows[-1]["step"] != saved + 4:
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
    while not (saved := checkpoint.steps(folder / "run" / "checkpoints")):
        if time.monotonic() > until or training.poll() is not None:
            break
        found |= {address for address, _ in first.listening()}
        time.sleep(0.05)
    if not saved or not found or training.poll() is not None:
        row.broke(f"it did not begin: {_said(folder)}")
    elif found != {"127.0.0.1"}:
        row.broke(f"something listens on {sorted(found)}")
    else:
        row.held("listens on 127.0.0.1")


def _asked_only(first: Host, second: Host, folder: Path, row: Row) -> None:
    """Over two hosts: on the cable that was named, and torchrun's own store on the port given."""
    if _under_way(first, second, folder, row) is None:
        return
    for host in (first, second):
        asked = {port for address, port in host.listening() if address == host.address}
        others = {(a, port) for a, port in host.listening() if a != host.address}
        if not asked or others - {("*", PORT)}:
            row.broke(f"{host.address} listens on {sorted(host.listening())}")
        else:
            row.held("the named address" + (", torchrun's port" if others else ""))


def _ray(first: Host, second: Host, folder: Path, row: Row) -> None:
    write([(swings(), {})], folder / "swings.npz", "swings")
    _start_ray(first, second, folder)
    alone = _ended([_reproduction(first, folder, "local")], 400)
    both = _ended([_reproduction(first, folder, "cluster", cluster=True)], 400)
    if alone != [0] or both != [0]:
        row.broke(f"exit codes {alone} and {both}: {_said(folder)}")
    elif _table(folder / "local") != _table(folder / "cluster"):
        row.broke("the cluster's table is another")
    else:
        row.held("the same table")


def _ray_lost(lose: Callable[[Host], None]) -> Case:
    """A node is lost in the middle of a run: that fails, what is left ends, a restart goes on."""

    def case(first: Host, second: Host, folder: Path, row: Row) -> None:
        write([(swings(), {})], folder / "swings.npz", "swings")
        _start_ray(first, second, folder)
        driver = _reproduction(first, folder, "out", cluster=True)
        until = time.monotonic() + 200
        # Each node has one core, and a run takes one: of two under way, one is on each.
        while len(list((folder / "out").glob("runs/*/running.json"))) < 2:
            if time.monotonic() > until or driver.poll() is not None:
                row.broke(f"it did not begin: {_said(folder)}")
                return
            time.sleep(0.05)
        lose(second)
        began = time.monotonic()
        codes = _ended([driver], LEFT)
        took = time.monotonic() - began
        if None in codes:
            row.broke(f"it hangs {took:.0f} s after a node was lost: {_said(folder)}")
            return
        if codes != [2] or not _tells_of_loss(folder / "out") or _has_said(folder, "Traceback"):
            row.broke(f"exit code {codes[0]}: {_said(folder)}")
            return
        again = _ended([_reproduction(first, folder, "out", cluster=True)], 400)
        if again != [0]:
            row.broke(f"it did not go on: {again}: {_said(folder)}")
        else:
            row.held(f"error after {took:.0f} s; complete when asked again")

    return case


def _tells_of_loss(out: Path) -> bool:
    """Whether a run failed for its node's sake."""
    reasons = [json.loads(f.read_text())["reason"] for f in out.glob("runs/*/failure.json")]
    lost = ("its Ray task ended", "was lost, or cannot be reached")
    return any(words in reason for reason in reasons for words in lost)


def _reproduction(host: Host, folder: Path, out: str, *, cluster: bool = False) -> Process:
    words = [sys.executable, "-m", "mtm", "reproduce", "length", "--scale", "smoke"]
    words += ["--seeds", "1", "--data", str(folder / "swings.npz"), "--out", str(folder / out)]
    if cluster:
        words += ["--engine", "ray", "--address", f"{host.address}:{RAY_PORT}"]
    return host.start(words, folder / "said-0", RAY_TMPDIR=str(folder))


def _table(out: Path) -> list[dict[str, str]]:
    (page,) = out.glob("*/results.csv")
    rows = csv.DictReader(io.StringIO(page.read_text()))
    return [{k: v for k, v in row.items() if "seconds" not in k} for row in rows]


def _start_ray(first: Host, second: Host, folder: Path) -> None:
    """A node on each host, with one core each.

    They keep what they write in the folder of the case: Ray's own would tell its user of a cluster
    that is gone.
    """
    ray = [str(Path(sys.executable).parent / "ray"), "start", "--num-cpus", "1"]
    ray += ["--disable-usage-stats", "--object-store-memory", "100000000"]
    head = ["--head", "--port", str(RAY_PORT), "--include-dashboard", "false"]
    for host, more in (
        (first, head),
        (second, ["--address", f"{first.address}:{RAY_PORT}"]),
    ):
        words = [*ray, "--node-ip-address", host.address, *more]
        started = host.start(words, folder / "said-ray", RAY_TMPDIR=str(folder))
        codes = _ended([started], 300)
        assert codes == [0], (folder / "said-ray").read_text()


CASES: dict[str, Case] = {
    "torchrun: as one process": _as_one_process,
    "torchrun: a host is cut off, then goes on": _cut_off,
    "torchrun: a host is killed, then goes on": _killed,
    "one host listens on its loopback only": _loopback_only,
    "over two hosts: listens where it was asked to": _asked_only,
    "Ray: reproduce on two nodes": _ray,
    "Ray: a node is killed": _ray_lost(Host.kill),
    "Ray: a node is cut off": _ray_lost(lambda host: host.set_cable("down")),
}
