"""Bad requests to the server and to the studio: an answer that says what is wrong, never a 500."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torture.mutations import FOREIGN, mutated, spoiled

Case = Callable[[random.Random], Any]


def serve_case(base: Path, folder: Path) -> Case:
    """Requests to `mtm serve`."""
    from starlette.testclient import TestClient

    from mtm.deploy.serve_app import Application
    from mtm.deploy.serve_guard import ClientGuard
    from mtm.deploy.serve_limits import Limits
    from mtm.runs.run import load_run

    run = load_run(base / "run")
    app = Application(run, Limits(), ClientGuard("127.0.0.1", None)).asgi()
    client = TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False)
    client.__enter__()
    states = [[0.0] * 3] * 4
    session = client.post("/sessions", json={"policy": "bc", "n": 2}).json()["id"]
    sound: list[tuple[str, str, Any]] = [
        ("POST", "/predict", {"given": {"states": states}, "want": "actions"}),
        ("POST", "/sessions", {"policy": "bc", "n": 2}),
        ("POST", f"/sessions/{session}/act", {"states": [[0.0] * 3] * 2}),
        ("POST", f"/sessions/{session}/observe", {"rewards": [0.0, 1.0], "dones": [False, True]}),
        ("DELETE", "/sessions/foreign", None),
        ("GET", "/", None),
        ("GET", "/metrics", None),
    ]
    return lambda rng: _asked(client, sound, rng)


def studio_case(base: Path, folder: Path) -> Case:
    """Requests to `mtm studio`."""
    from starlette.testclient import TestClient

    from mtm.evaluation.studio.app import make_app
    from mtm.evaluation.studio.routes import Answering
    from mtm.evaluation.studio.workspace import Workspace
    from mtm.runs.run import load_run

    answering = Answering(Workspace([load_run(base / "run")]))
    app = make_app(answering, "127.0.0.1", 80, None)
    client = TestClient(app, base_url="http://127.0.0.1:80", raise_server_exceptions=False)
    window = {"run": 0, "data": 0, "episode": 0, "start": 0}
    sound: list[tuple[str, str, Any]] = [
        ("GET", "/api/studio", None),
        ("GET", "/api/data?run=0&data=0", None),
        ("GET", "/api/episodes?data=0", None),
        ("GET", "/api/timeline?data=0&episode=0", None),
        ("GET", "/api/window?run=0&data=0&episode=0&start=0", None),
        ("POST", "/api/mask", {**window, "mask": "fd"}),
        ("POST", "/api/answer", {**window, "mask": "fd", "visible": {}, "wanted": {}, "edits": []}),
        ("GET", "/api/act/7", None),
        ("POST", "/api/act/7/cancel", {}),
        ("GET", "/api/surprise?run=0&data=0&episode=0", None),
        ("GET", "/assets/../../secret", None),
    ]
    return lambda rng: _asked(client, sound, rng)


def _asked(client: Any, sound: list[tuple[str, str, Any]], rng: random.Random) -> str:
    """One request that is not quite right; raises an `AssertionError` if the answer is not."""
    method, path, plain = rng.choice(sound)
    if rng.random() < 0.2:
        path = path.replace("0", rng.choice(["-1", "x", "9" * 30, "1e9", "%00", "../.."]))
    headers = {"Content-Type": "application/json"}
    if rng.random() < 0.1:
        headers[rng.choice(["Host", "Origin", "Content-Type"])] = rng.choice(
            ["evil.example", "", "x"]
        )
    body = b""
    if plain is not None:
        body = json.dumps(mutated(plain, rng) if rng.random() < 0.7 else plain).encode()
        if rng.random() < 0.2:
            body = spoiled(body, rng)
        elif rng.random() < 0.05:
            body = rng.choice([b"[" * 20_000, json.dumps(rng.choice(FOREIGN)).encode(), b"\xff"])
    answer = client.request(method, path, content=body, headers=headers)
    assert answer.status_code < 500, f"{method} {path} {body[:200]!r}: {answer.text[:300]}"
    if answer.status_code >= 400:
        said = answer.json().get("error") if "json" in answer.headers["content-type"] else ""
        assert said, f"{method} {path}: {answer.status_code} without a reason: {answer.text[:200]}"
        return "refused"
    return "answered"
