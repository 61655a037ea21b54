"""Hosts as network namespaces: nothing of them stays."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from torture.namespaces import NAMESPACES, PREFIX, two_hosts, why_not

NOBODY = 2**31 - 1
"""No process has this number."""

reason = why_not()
pytestmark = pytest.mark.skipif(bool(reason), reason=reason or "there can be hosts here")


def test_hosts_go_with_what_goes_on_starting_there(tmp_path: Path) -> None:
    with two_hosts() as hosts:
        program = "while true; do sleep 100 & sleep 0.01; done"
        started = hosts[0].start(["sh", "-c", program], tmp_path / "said")
    assert started.wait(10)
    assert not [host.name for host in hosts if (NAMESPACES / host.name).exists()]


def test_hosts_of_a_killed_campaign_are_removed() -> None:
    left = f"{PREFIX}{NOBODY}-a"
    subprocess.run(["ip", "netns", "add", left], check=True)
    with two_hosts():
        assert not (NAMESPACES / left).exists()
