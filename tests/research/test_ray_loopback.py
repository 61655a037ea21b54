"""A Ray cluster that is started here is open to this machine alone."""

from __future__ import annotations

import ipaddress
import json
import subprocess
import sys

import pytest

pytest.importorskip("ray", reason="the extra `ray` is not installed")
pytest.importorskip("psutil", reason="psutil, which Ray brings along, is not there")

LISTENING = """
import json
from mtm.research.experiments.engines import RayEngine
engine = RayEngine(None)
import psutil  # which Ray brings along
engine._ray.get(engine._ray.remote(lambda: 1).remote())  # a worker is there, too
here = psutil.Process()
found = {}
for process in [here, *here.children(recursive=True)]:
    sockets = process.net_connections(kind="inet")
    listens = [s.laddr.ip for s in sockets if s.status == psutil.CONN_LISTEN]
    found.setdefault(process.name(), []).extend(listens)
print(json.dumps(found))
engine.close()
"""


def test_nothing_listens_on_an_address_that_was_not_asked_for() -> None:
    words = [sys.executable, "-c", LISTENING]
    done = subprocess.run(words, capture_output=True, text=True, timeout=170, check=True)
    found: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    assert found["gcs_server"]
    assert found["raylet"]
    for address in (a for listens in found.values() for a in listens):
        ip = ipaddress.ip_address(address)
        ip = getattr(ip, "ipv4_mapped", None) or ip
        assert ip.is_loopback, found
