"""Hosts, as network namespaces of one machine.

Each namespace has a loopback of its own and one end of a cable (veth). A host is cut off by taking
its end down, and killed with all of its processes. Needs root, `ip` and `ss` of iproute2.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from mtm.core.system import thread_settings

Process = subprocess.Popen[bytes]

ADDRESSES = ("10.177.77.1", "10.177.77.2")

PATIENCE = "180"
"""Seconds that Ray waits for a node to start, on a busy machine."""

SECONDS_TO_DIE = 30.0
"""Within which processes that were killed must be gone."""

NAMESPACES = Path("/run/netns")
PREFIX = "mtm-"
"""Of the names of hosts; the process that made them follows."""


@dataclass(frozen=True)
class Host:
    """A namespace: its name, address, and end of the cable."""

    name: str
    address: str
    cable: str

    def start(self, words: Sequence[str], said: Path, **variables: str) -> Process:
        """Start a program there."""
        more = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_raylet_start_wait_time_s": PATIENCE}
        # As by default, but also where the user has a token: then `ray start --head` would ask for
        # it, and a node that joins would not show it. Nobody else reaches these namespaces.
        more |= {"RAY_AUTH_MODE": "disabled"} | variables
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
        """Kill all that runs there, and what it starts meanwhile."""
        until = time.monotonic() + SECONDS_TO_DIE
        while pids := _pids(self.name):
            if time.monotonic() > until:
                raise TimeoutError(f"{self.name} still has the processes {pids}")
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)

    def remove(self) -> None:
        """End what runs there, and the host, where it was made."""
        if (NAMESPACES / self.name).exists():
            self.kill()
            subprocess.run(["ip", "netns", "delete", self.name], check=True)

    def listening(self) -> set[tuple[str, int]]:
        """Addresses and ports that something listens on there; `*` is every address."""
        command = ["ip", "netns", "exec", self.name, "ss", "-H", "-ltn"]
        listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        places = (line.split()[3].rpartition(":") for line in listed.splitlines())
        return {(address, int(port)) for address, _, port in places}


def why_not() -> str:
    """Why there can be no hosts here; empty if there can."""
    if os.geteuid():
        return "only root may make network namespaces"
    missing = [name for name in ("ip", "ss") if shutil.which(name) is None]
    if missing:
        return f"{' and '.join(missing)} of iproute2 are not installed"
    name = f"{PREFIX}{os.getpid()}-try"  # the root of a container may have no such right
    for verb in ("add", "delete"):
        done = subprocess.run(
            ["ip", "netns", verb, name], capture_output=True, text=True, check=False
        )
        if done.returncode:
            return f"ip netns {verb}: {done.stderr.strip()}"
    return ""


@contextmanager
def two_hosts() -> Iterator[tuple[Host, Host]]:
    """Two namespaces with a cable between them; those of campaigns that were killed are removed."""
    for name in _left_behind():
        Host(name, "", "").remove()
    hosts = tuple(
        Host(f"{PREFIX}{os.getpid()}-{end}", address, f"mtm{os.getpid() % 99999}{end}")
        for end, address in zip("ab", ADDRESSES, strict=True)
    )
    first, second = hosts
    with ExitStack() as stack:
        for host in hosts:
            stack.callback(host.remove)
            subprocess.run(["ip", "netns", "add", host.name], check=True)
        cables = ["type", "veth", "peer", "name", second.cable, "netns", second.name]
        subprocess.run(["ip", "link", "add", first.cable, "netns", first.name, *cables], check=True)
        for host in hosts:
            inside = ["ip", "netns", "exec", host.name, "ip"]
            address = ["address", "add", f"{host.address}/24", "dev", host.cable]
            for words in (address, ["link", "set", "lo", "up"], ["link", "set", host.cable, "up"]):
                subprocess.run([*inside, *words], check=True)
        yield first, second


def _pids(name: str) -> list[int]:
    """Processes of a namespace that are not dead yet."""
    command = ["ip", "netns", "pids", name]
    listed = subprocess.run(command, check=True, capture_output=True, text=True)
    return [int(pid) for pid in listed.stdout.split() if not _is_zombie(int(pid))]


def _is_zombie(pid: int) -> bool:
    """Whether a process is gone, or waits only for its parent to hear of its end."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def _left_behind() -> list[str]:
    """Namespaces of campaigns whose process is gone."""
    found = NAMESPACES.glob(f"{PREFIX}*-*") if NAMESPACES.exists() else ()
    pids = {place.name: place.name.removeprefix(PREFIX).partition("-")[0] for place in found}
    made = {name: pid for name, pid in pids.items() if pid.isdecimal()}
    return [name for name, pid in made.items() if not Path(f"/proc/{pid}").exists()]
