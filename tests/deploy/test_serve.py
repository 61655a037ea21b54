"""Serving a run: over real sockets of the loopback, by many clients, and within limits."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from benchmarks.serving import TOLERANCE, load

import mtm
from mtm.core.config import TrainConfig
from mtm.core.errors import ConfigError
from mtm.core.http_access import is_loopback, listen
from mtm.data.trajectories import TrajectoryDataset
from mtm.deploy import serve_batching
from mtm.deploy.serve import make_server, serve
from mtm.deploy.serve_limits import Limits
from mtm.deploy.serve_metrics import Histogram
from mtm.deploy.serve_sessions import Sessions
from mtm.runs.run import Run

pytest.importorskip("uvicorn", reason="the extra serve is not installed")
pytest.importorskip("starlette", reason="the extra serve is not installed")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, point_mass: TrajectoryDataset) -> Run:
    config = TrainConfig.from_json(
        {"steps": 20, "batch_size": 16, "validate_every": 20, "checkpoint_every": 20}
        | {"validation_segments": 64, "model": {"width": 16, "encoder_layers": 1, "heads": 2}}
    )
    return mtm.train(point_mass, config, tmp_path_factory.mktemp("runs") / "run", silent=True)


@contextmanager
def serving(
    run: Run, *, limits: Limits | None = None, token: str | None = None, host: str = "127.0.0.1"
) -> Iterator[str]:
    """A server in a thread; gives HOST:PORT."""
    server = make_server(run, host, token, limits or Limits())
    with listen("127.0.0.1", 0) as listening:
        place = f"127.0.0.1:{listening.getsockname()[1]}"
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield place
        finally:
            server.should_exit = True
            thread.join(60)
            assert not thread.is_alive()


@pytest.fixture(scope="module")
def place(run: Run) -> Iterator[str]:
    with serving(run) as found:
        yield found


def ask(
    place: str,
    method: str,
    path: str,
    plain: Any = None,
    headers: dict[str, str] | None = None,
    body: bytes | None = None,
) -> tuple[int, Any]:
    """One request; the status and what came back."""
    connection = http.client.HTTPConnection(place, timeout=60)
    content = body if plain is None else json.dumps(plain).encode()
    sent = {"Content-Type": "application/json"} | (headers or {})
    try:
        connection.request(method, path, content, sent)
        answer = connection.getresponse()
        text = answer.read()
        is_json = answer.headers["Content-Type"] == "application/json"
        return answer.status, json.loads(text) if is_json else text.decode()
    finally:
        connection.close()


def begin(place: str, **asked: Any) -> str:
    status, session = ask(place, "POST", "/sessions", asked)
    assert status == 201, session
    return f"/sessions/{session['id']}"


def error_of(answer: tuple[int, Any], status: int) -> str:
    assert answer[0] == status, answer
    return str(answer[1]["error"])


def test_what_is_served(run: Run, place: str) -> None:
    status, about = ask(place, "GET", "/")
    assert status == 200
    assert [m["name"] for m in about["modalities"]] == ["states", "returns", "actions"]
    assert about["modalities"][0]["shape"] == [4]
    assert about["step"] == run.step
    assert "/" not in about["run"]  # not where it lies on this machine
    assert ask(place, "GET", "/health") == (200, {"status": "ok"})
    assert "there is no GET /nowhere" in error_of(ask(place, "GET", "/nowhere"), 404)
    assert "there is no GET /predict" in error_of(ask(place, "GET", "/predict"), 405)


def test_predict_is_that_of_the_library(run: Run, place: str) -> None:
    states = np.random.default_rng(0).standard_normal((2, 9, 4)).astype(np.float32)
    sent = states.tolist()
    sent[1][4] = [None] * 4  # a gap
    states[1, 4] = np.nan
    body = {"given": {"states": sent}, "want": ["actions", "states"]}
    status, found = ask(place, "POST", "/predict", body)
    assert status == 200
    direct = mtm.predict(run, {"states": states}, ["actions", "states"])
    for name, values in direct.items():
        np.testing.assert_allclose(found["predicted"][name], values, atol=1e-5)
    body = {"given": {"states": sent[0]}, "want": "actions"}
    _, alone = ask(place, "POST", "/predict", body)  # without an axis for a batch
    np.testing.assert_allclose(alone["predicted"]["actions"], direct["actions"][0], atol=1e-5)


@pytest.mark.parametrize("name", ["bc", "rcbc", "two_stage"])
def test_acting_is_that_of_the_library(run: Run, place: str, name: str) -> None:
    make = {
        "bc": mtm.policies.behavior_cloning,
        "rcbc": mtm.policies.return_conditioned,
        "two_stage": mtm.policies.two_stage,
    }[name]
    policy, rng = make(run), np.random.default_rng(0)
    policy.reset(3)
    session = begin(place, policy=name, n=3)
    for _ in range(6):
        states = rng.standard_normal((3, 4)).astype(np.float32)
        status, found = ask(place, "POST", f"{session}/act", {"states": states.tolist()})
        assert status == 200
        np.testing.assert_allclose(found["actions"], policy.act(states), atol=1e-5)
        rewards, dones = rng.uniform(size=3), rng.uniform(size=3) < 0.3
        told = {"rewards": rewards.tolist(), "dones": dones.tolist()}
        assert ask(place, "POST", f"{session}/observe", told) == (200, {"observed": 3})
        policy.observe(rewards, dones)
    assert ask(place, "DELETE", session)[0] == 200
    assert "there is no session" in error_of(ask(place, "DELETE", session), 404)


def test_many_clients_are_not_mixed_up(run: Run) -> None:
    """The load test of `make bench`, small."""
    with serving(run) as place:
        clients = asyncio.run(load(run, f"http://{place}", 24, seconds=60, most_steps=9))
        counts = ask(place, "GET", "/metrics")[1]
    assert all(len(client.steps) == 9 and len(client.questions) == 2 for client in clients)
    assert not [failure for client in clients for failure in client.failures]
    assert max(client.worst_difference(run) for client in clients) < TOLERANCE
    # The check can fail: clients differ in what they were answered.
    clients[0].steps[3] = clients[3].steps[3]
    clients[1].n = 2
    assert clients[0].worst_difference(run) > TOLERANCE
    assert 'mtm_requests_total{route="act",status="200"} 216' in counts
    (batches,) = (line for line in counts.splitlines() if line.startswith("mtm_batch_requests_co"))
    assert int(batches.split()[1]) < 216 + 48  # several requests in one forward pass
    assert "mtm_sessions 0" in counts


def test_each_has_its_own_fault(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that fails is computed again one by one."""
    real, sizes = serve_batching.act_together, []

    def fail_on_large(policies: Any, states: Any) -> Any:
        sizes.append(len(policies))
        if len(policies) > 1 or states[0][0, 0] == 7:
            raise MemoryError("too much at once")
        time.sleep(0.05)  # so that others come to wait meanwhile
        return real(policies, states)

    monkeypatch.setattr(serve_batching, "act_together", fail_on_large)
    with serving(run) as place:
        sessions = [begin(place, policy="bc") for _ in range(6)]
        answers: dict[int, tuple[int, Any]] = {}

        def act(i: int) -> None:
            states = [[7.0 if i == 3 else float(i), 0, 0, 0]]
            answers[i] = ask(place, "POST", f"{sessions[i]}/act", {"states": states})

        threads = [threading.Thread(target=act, args=(i,)) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert max(sizes) > 1
    assert "its log says more" in error_of(answers.pop(3), 500)
    for i, (status, found) in answers.items():
        assert status == 200
        direct = mtm.policies.behavior_cloning(run).act(np.array([[i, 0, 0, 0]], np.float32))
        np.testing.assert_allclose(found["actions"], direct, atol=1e-5)


BAD_PREDICTIONS = {
    "unknown modality": ({"given": {"velocity": [[1.0]]}, "want": "actions"}, "velocity"),
    "unknown want": ({"given": {"states": [[0.0] * 4]}, "want": "action"}, "'actions'"),
    "shape": ({"given": {"states": [[0.0] * 3]}, "want": "actions"}, "trained on values of shape"),
    "ragged": ({"given": {"states": [[0.0] * 4, [0.0]]}, "want": "actions"}, "must be numbers"),
    "words": ({"given": {"states": ["a"]}, "want": "actions"}, "must be numbers"),
    "all gaps": ({"given": {"states": [[None] * 4]}, "want": "actions"}, "every value is a gap"),
    "nothing": ({"given": {}, "want": "actions"}, "the question gives nothing"),
    "huge": ({"given": {"states": [[10**400] * 4]}, "want": "actions"}, "must be numbers"),
    "no want": ({"given": {"states": [[0.0] * 4]}}, "'want' is missing"),
    "more": ({"given": {}, "want": "actions", "when": 1}, "unknown field 'when'"),
    "list": ([1], "must be a JSON object"),
    "want of wants": ({"given": {}, "want": [["actions"]]}, "`want` is one name or several"),
}


@pytest.mark.parametrize("case", BAD_PREDICTIONS)
def test_bad_questions(place: str, case: str) -> None:
    plain, reason = BAD_PREDICTIONS[case]
    assert reason in error_of(ask(place, "POST", "/predict", plain), 400)


def test_numbers_that_are_none(place: str) -> None:
    body = b'{"given": {"states": [[Infinity, 0, 0, 0]]}, "want": "actions"}'
    assert "is infinite" in error_of(ask(place, "POST", "/predict", body=body), 400)
    session = begin(place)
    for number in (b"NaN", b"1e999", b"null"):
        body = b'{"states": [[%s, 0, 0, 0]]}' % number
        answer = ask(place, "POST", f"{session}/act", body=body)
        assert "modality 'states'" in error_of(answer, 400)
    for body in (b"", b"{", b"[" * 100_000, b"\xff", b'{"states": 1' + b"0" * 5000 + b"}"):
        assert "is not JSON" in error_of(ask(place, "POST", f"{session}/act", body=body), 400)


def test_numbers_too_far_from_the_data(place: str) -> None:
    """They overflow within the network, whose answer JSON has no word for."""
    session, states = begin(place), [[1e24, 0.0, 0.0, 0.0]]
    for path, plain in (
        ("/predict", {"given": {"states": states}, "want": "actions"}),
        (f"{session}/act", {"states": states}),
    ):
        said = error_of(ask(place, "POST", path, plain), 400)
        assert "'states' holds 1e+24" in said
    assert ask(place, "POST", f"{session}/act", {"states": [[0.0] * 4]})[0] == 200


def test_a_session_goes_act_observe_act(place: str) -> None:
    session = begin(place, n=2)
    told = {"rewards": [0.0, 0.0], "dones": [False, False]}
    assert "first act" in error_of(ask(place, "POST", f"{session}/observe", told), 409)
    states = {"states": [[0.0] * 4] * 2}
    first = ask(place, "POST", f"{session}/act", states)
    assert ask(place, "POST", f"{session}/act", states) == first  # again, if an answer was lost
    for wrong in (
        {"rewards": [0.0], "dones": [False, False]},
        {"rewards": [0.0, None], "dones": [False, False]},
        {"rewards": [0.0, "x"], "dones": [False, False]},
        {"rewards": [0.0, 0.0], "dones": [0, 1]},
    ):
        assert "must be" in error_of(ask(place, "POST", f"{session}/observe", wrong), 400)
    assert ask(place, "POST", f"{session}/observe", told)[0] == 200
    assert "observe once" in error_of(ask(place, "POST", f"{session}/observe", told), 409)
    one = {"states": [[0.0] * 4]}
    assert "2 states of shape (4,)" in error_of(ask(place, "POST", f"{session}/act", one), 400)


def test_bad_sessions(place: str) -> None:
    def refused(**asked: Any) -> str:
        return error_of(ask(place, "POST", "/sessions", asked), 400)

    assert "unknown policy 'plan'" in refused(policy="plan")
    assert "cannot understand the target" in refused(target="much")
    assert "cloning asks for no return" in refused(policy="bc", target="fraction:1")
    assert "n must be at least 1" in refused(n=0)
    assert "'n' cannot be 1.5" in refused(n=1.5)
    status, found = ask(place, "POST", "/sessions", {"target": "fraction:3"})
    assert status == 201
    assert "episodes of the data returned" in found["warnings"][0]


def test_limits(run: Run) -> None:
    limits = Limits(body_bytes=2000, steps=10, sessions=2, rows=5)
    with serving(run, limits=limits) as place:
        many = {"given": {"states": [[0.0] * 4] * 11}, "want": "actions"}
        assert "11 steps" in error_of(ask(place, "POST", "/predict", many), 413)
        large = {"given": {"states": [[0.123456789] * 4] * 1000}, "want": "actions"}
        assert "2,000 bytes" in error_of(ask(place, "POST", "/predict", large), 413)
        one, two = begin(place, n=2), begin(place, n=3)
        assert "2 sessions" in error_of(ask(place, "POST", "/sessions", {}), 429)
        ask(place, "DELETE", one)
        assert "5" in error_of(ask(place, "POST", "/sessions", {"n": 3}), 429)
        begin(place, n=2)
        assert two


def test_a_slow_request_and_a_slow_answer(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(run, limits=Limits(seconds=0.3)) as place:
        host, port = place.split(":")
        with socket.create_connection((host, int(port)), timeout=60) as slow:
            head = f"POST /predict HTTP/1.1\r\nHost: {place}\r\nContent-Length: 100\r\n"
            slow.sendall(f"{head}Content-Type: application/json\r\n\r\n{{".encode())
            assert slow.recv(100).startswith(b"HTTP/1.1 408")
        session = begin(place)
        real = serve_batching.act_together

        def dawdle(*given: Any) -> Any:
            time.sleep(1.0)
            return real(*given)

        monkeypatch.setattr(serve_batching, "act_together", dawdle)
        states = {"states": [[0.0] * 4]}
        answer = ask(place, "POST", f"{session}/act", states)
        assert "longer than 0.3 s" in error_of(answer, 503)


def test_a_full_queue(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Event(), threading.Event()
    real = serve_batching.fill

    def held(*given: Any) -> Any:
        begun.set()
        assert go_on.wait(60)
        return real(*given)

    monkeypatch.setattr(serve_batching, "fill", held)
    body = {"given": {"states": [[0.0] * 4]}, "want": "actions"}
    answers: list[tuple[int, Any]] = []
    with serving(run, limits=Limits(waiting=2)) as place:
        threads = [
            threading.Thread(target=lambda: answers.append(ask(place, "POST", "/predict", body)))
            for _ in range(3)
        ]
        threads[0].start()
        assert begun.wait(60)
        for thread in threads[1:]:
            thread.start()
        until = time.monotonic() + 30
        while "mtm_waiting_requests 2" not in ask(place, "GET", "/metrics")[1]:
            if time.monotonic() > until:
                go_on.set()
                pytest.fail("two requests never waited")
            time.sleep(0.01)
        assert "2 requests wait already" in error_of(ask(place, "POST", "/predict", body), 503)
        assert ask(place, "GET", "/health")[0] == 200  # it answers whatever is computed
        go_on.set()
        for thread in threads:
            thread.join()
    assert [status for status, _ in answers] == [200] * 3


def test_who_may_ask(run: Run, place: str) -> None:
    wrong_host = ask(place, "GET", "/", headers={"Host": "evil.example"})
    assert "the header Host is 'evil.example'" in error_of(wrong_host, 421)
    for host in ("localhost", "localhost:80", "127.0.0.1", "[::1]:8000", place):
        assert ask(place, "GET", "/health", headers={"Host": host})[0] == 200
    for origin in ("http://evil.example", "null"):
        answer = ask(place, "POST", "/sessions", {}, {"Origin": origin})
        assert "may not ask this server" in error_of(answer, 403)
    assert ask(place, "GET", "/health", headers={"Origin": f"http://{place}"})[0] == 200
    form = {"Content-Type": "text/plain"}
    assert "send JSON" in error_of(ask(place, "POST", "/sessions", {}, form), 415)


def test_a_token(run: Run) -> None:
    with serving(run, token="secret") as place:
        assert ask(place, "GET", "/health")[0] == 200
        for given in (None, "Bearer other", "secret", "Bearer sécret"):
            headers = {} if given is None else {"Authorization": given}
            assert "Bearer TOKEN" in error_of(ask(place, "GET", "/", headers=headers), 401)
        assert ask(place, "GET", "/", headers={"Authorization": "Bearer secret"})[0] == 200
        assert "secret" not in ask(place, "GET", "/health")[1]
    with pytest.raises(ConfigError, match="the token is empty"):
        make_server(run, "127.0.0.1", " ", Limits())


def test_beyond_the_loopback_a_token_is_made(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    monkeypatch.setattr(
        "mtm.deploy.serve.make_server", lambda *given: made.append(given) or Unrunnable()
    )
    said: list[str] = []
    serve(run, "0.0.0.0", 0, say=said.append)
    assert said[0].startswith("token: ")
    assert made[0][2] == said[0].removeprefix("token: ")
    assert len(made[0][2]) >= 32
    serve(run, "127.0.0.1", 0, say=said.append)
    assert made[1][2] is None
    assert [is_loopback(h) for h in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "::")] == [
        *(True, True, True, False, False)
    ]


class Unrunnable:
    def run(self, sockets: Any) -> None:
        """Come to an end at once."""


def test_a_port_that_is_taken(run: Run) -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1, port {port}"):
            listen("127.0.0.1", port)
    with pytest.raises(ConfigError, match="--host .no such host. cannot be used"):
        listen("no such host", 0)


def test_settings_of_limits() -> None:
    with pytest.raises(ConfigError, match=r"limits.sessions must be .*\n.*limits.seconds"):
        Limits(sessions=0, seconds=0)


def test_idle_sessions_are_closed(run: Run) -> None:
    now, expired = [0.0], []
    sessions = Sessions(Limits(idle_seconds=10), lambda: expired.append(1), lambda: now[0])
    old, new = (sessions.open(mtm.policies.behavior_cloning(run), 1) for _ in range(2))
    now[0] = 9.0
    sessions.named(new)
    now[0] = 11.0
    assert len(sessions) == 1
    assert expired == [1]
    assert sessions.named(new).n == 1
    with pytest.raises(mtm.MTMError, match="was not used for 10 s"):
        sessions.named(old)
    sessions.named(new).begin_act()
    now[0] = 100.0
    assert len(sessions) == 1  # it is being asked
    sessions.named(new).end_act(acted=True)


def test_histograms_are_as_prometheus_reads_them() -> None:
    histogram = Histogram((1, 2))
    for value in (0.5, 1, 1.5, 7):
        histogram.add(value)
    assert histogram.lines("x", 'route="act"') == [
        'x_bucket{route="act",le="1"} 2',
        'x_bucket{route="act",le="2"} 3',
        'x_bucket{route="act",le="+Inf"} 4',
        'x_sum{route="act"} 10.000000',
        'x_count{route="act"} 4',
    ]


def test_a_stop_finishes_what_is_under_way(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Event(), threading.Event()
    real = serve_batching.fill

    def held(*given: Any) -> Any:
        begun.set()
        assert go_on.wait(60)
        return real(*given)

    monkeypatch.setattr(serve_batching, "fill", held)
    server = make_server(run, "127.0.0.1", None, Limits())
    answers: list[tuple[int, Any]] = []
    body = {"given": {"states": [[0.0] * 4]}, "want": "actions"}
    with listen("127.0.0.1", 0) as listening:
        place = f"127.0.0.1:{listening.getsockname()[1]}"
        serving_thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        asking = threading.Thread(
            target=lambda: answers.append(ask(place, "POST", "/predict", body))
        )
        serving_thread.start()
        asking.start()
        assert begun.wait(60)
        server.should_exit = True
        time.sleep(0.5)
        assert serving_thread.is_alive()
        go_on.set()
        asking.join(60)
        serving_thread.join(60)
        assert not serving_thread.is_alive()
    assert [status for status, _ in answers] == [200]
    with pytest.raises(OSError):
        ask(place, "GET", "/health")


@pytest.mark.skipif(os.name != "posix", reason="signals are sent as POSIX has them")
def test_a_signal_stops_it(run: Run) -> None:
    """In a process of its own, as a user runs it."""
    words = [sys.executable, "-m", "mtm", "serve", str(run.path), "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as it:
        assert it.stdout is not None
        try:
            place = it.stdout.readline().strip().removeprefix("http://")
            assert ask(place, "GET", "/health")[0] == 200
            it.send_signal(signal.SIGTERM)
            assert it.wait(60) == 0
            assert it.stdout.read() == "stopped\n"
        finally:
            it.kill()
