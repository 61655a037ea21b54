"""A Ray cluster that is started here is open to this machine alone; a lost machine is told."""

from __future__ import annotations

import ipaddress
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

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


LOST = """
import json, sys, time
from pathlib import Path
from mtm.research.experiments import engines

def never_ends(folder):
    (folder / engines.NODE).write_text(json.dumps({"node": "no machine of the cluster any more"}))
    time.sleep(1000)

engines._execute_on_node = never_ends
engine = engines.RayEngine(None)
engine.submit(Path(sys.argv[1]), 1)
finished = []
while not finished:
    finished = engine.wait(1)
print(finished[0].outcome, finished[0].died)
engine._ray.shutdown()
"""


def test_a_run_whose_machine_is_lost_has_failed(tmp_path: Path) -> None:
    """Ray itself goes on to wait for it, as long as nobody has closed the connection."""
    with tempfile.TemporaryDirectory(
        ignore_cleanup_errors=True
    ) as short:  # Ray's sockets allow no long path
        somebodys = Path(short) / "ray" / "ray_current_cluster"  # not to be joined
        somebodys.parent.mkdir()
        somebodys.write_text("127.0.0.1:1")
        done = subprocess.run(
            [sys.executable, "-c", LOST, str(tmp_path)],
            capture_output=True,
            text=True,
            timeout=170,
            check=False,
            env=os.environ | {"RAY_TMPDIR": short},
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("failed the machine that computed it was lost")


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
