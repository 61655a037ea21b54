"""Hosts, as network namespaces of one machine.

Each namespace has a loopback of its own and one end of a cable (veth). A host is cut off by taking
its end down, and killed with all of its processes. Needs root, `ip` and `ss` of iproute2.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mtm.core.system import thread_settings

Process = subprocess.Popen[bytes]

ADDRESSES = ("10.177.77.1", "10.177.77.2")

PATIENCE = "180"
"""Seconds that Ray waits for a node to start, on a busy machine."""


@dataclass(frozen=True)
class Host:
    """A namespace: its name, address, and end of the cable."""

    name: str
    address: str
    cable: str

    def start(self, words: Sequence[str], said: Path, **variables: str) -> Process:
        """Start a program there."""
        more = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_raylet_start_wait_time_s": PATIENCE}
        more |= variables
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
