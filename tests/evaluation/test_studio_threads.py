"""Each thread of the studio in which a network runs computes alone, whatever the program has."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("starlette", reason="the extra `studio` is not installed")
httpx = pytest.importorskip("httpx", reason="the extra `dev` is not installed")

from mtm.evaluation.studio import acting, answers, quality
from mtm.evaluation.studio.serving import Serving

THREADS = 2
"""Of the program around the studio."""


@pytest.fixture
def several_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    yield
    torch.set_num_threads(before)


def answering(client: Any) -> None:
    window = {"run": 0, "data": 0, "episode": 3, "start": 0, "length": 4}
    body = {**window, "visible": {"states": "1000"}}
    assert client.post("/api/answer", json=body).status_code == 200


def acts(client: Any) -> None:
    pytest.importorskip("mujoco", reason="the extra `sim` is not installed")
    job = client.post("/api/act", json={"run": 0, "policy": "bc", "episodes": 1}).json()["job"]
    while client.get(f"/api/act/{job}").json()["state"] == "running":
        time.sleep(0.05)


def ranking(client: Any) -> None:
    place = {"run": 0, "data": 0}
    client.post("/api/quality", json=place)
    while client.get("/api/quality", params=place).json()["total"] == 0:
        time.sleep(0.05)


@pytest.mark.usefixtures("several_threads")
@pytest.mark.parametrize(
    ("module", "works", "asks", "thread"),
    [
        (answers, "ask_with_certainty", answering, "mtm-studio-model"),
        (acting, "rollout", acts, "mtm-studio-acting"),
        (quality, "measure_episodes", ranking, "mtm-studio-quality"),
    ],
)
def test_a_network_computes_with_one_thread(
    hopper_run: Path,
    monkeypatch: pytest.MonkeyPatch,
    module: Any,
    works: str,
    asks: Callable[[Any], None],
    thread: str,
) -> None:
    seen: list[tuple[str, int]] = []
    work = getattr(module, works)

    def looked_at(*arguments: Any, **named: Any) -> Any:
        seen.append((threading.current_thread().name, torch.get_num_threads()))
        return work(*arguments, **named)

    monkeypatch.setattr(module, works, looked_at)
    with (
        Serving([hopper_run], port=0) as serving,
        httpx.Client(base_url=serving.address, timeout=60, trust_env=False) as client,
    ):
        asks(client)
    assert {count for _, count in seen} == {1}
    assert all(name.startswith(thread) for name, _ in seen)
    assert torch.get_num_threads() == THREADS
