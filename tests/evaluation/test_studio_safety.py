"""Who may ask the studio, over HTTP: our own page on this machine, others only with a token."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the extra `studio` is not installed")
httpx = pytest.importorskip("httpx", reason="the extra `dev` is not installed")

from mtm.cli import main
from mtm.core.errors import ConfigError
from mtm.evaluation.studio.requests import LARGEST_BODY
from mtm.evaluation.studio.security import is_loopback
from mtm.evaluation.studio.serving import Serving

QUESTION = {
    "run": 0,
    "data": 0,
    "episode": 60,
    "start": 7,
    "length": 4,
    "visible": {"states": "1110"},
}
JSON = {"Content-Type": "application/json"}


def code(answer: Any) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


@pytest.mark.parametrize(
    "host",
    ["evil.example:PORT", "127.0.0.1", "127.0.0.1:1", "evil.example", "127.0.0.1.nip.io:PORT", "["],
)
def test_another_host_is_refused(client: Any, serving: Serving, host: str) -> None:
    """A site that gives its own name our address (rebinding) still sends its own name."""
    for path in ("/api/studio", "/"):
        answer = client.get(path, headers={"Host": host.replace("PORT", str(serving.port))})
        assert code(answer) == (403, "forbidden")
        assert "Open the address that mtm studio printed" in answer.json()["error"]["message"]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_names_of_this_machine_are_let_in(client: Any, serving: Serving, host: str) -> None:
    answer = client.get("/api/studio", headers={"Host": f"{host}:{serving.port}"})
    assert answer.status_code == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1"])
def test_another_origin_is_refused(client: Any, origin: str) -> None:
    assert code(client.get("/api/studio", headers={"Origin": origin})) == (403, "forbidden")
    posted = client.post("/api/answer", json=QUESTION, headers={"Origin": origin})
    assert code(posted) == (403, "forbidden")


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_picture_or_script_of_another_site_gets_nothing(client: Any, site: str) -> None:
    assert code(client.get("/api/studio", headers={"Sec-Fetch-Site": site})) == (403, "forbidden")


def test_our_own_page_is_let_in(client: Any, serving: Serving) -> None:
    own = {"Origin": f"http://127.0.0.1:{serving.port}", "Sec-Fetch-Site": "same-origin"}
    assert client.post("/api/answer", json=QUESTION, headers=own).status_code == 200


def test_only_json_is_taken(client: Any) -> None:
    """A form of another site can send text without asking; JSON it cannot."""
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        answer = client.post("/api/answer", content=b"{}", headers={"Content-Type": kind})
        assert code(answer) == (415, "not-json")


def test_sizes_are_bounded(client: Any) -> None:
    large = b'{"run": "' + b"x" * LARGEST_BODY + b'"}'
    assert code(client.post("/api/answer", content=large, headers=JSON)) == (413, "too-large")
    for path in ("/api/episodes?run=0&data=0&count=201", "/api/timeline?run=0&data=0&points=2001"):
        assert code(client.get(path)) == (400, "bad-request")
    assert code(client.get("/api/window?run=0&data=0&episode=0&start=0&length=999"))[0] == 400
    assert code(client.post("/api/act", json={"run": 0, "policy": "bc", "episodes": 101}))[0] == 400


def test_a_body_that_does_not_come_is_given_up(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mtm.evaluation.studio.requests.SECONDS", 0.2)
    with socket.create_connection(("127.0.0.1", serving.port), timeout=30) as line:
        head = f"POST /api/answer HTTP/1.1\r\nHost: 127.0.0.1:{serving.port}\r\n"
        line.sendall(
            f"{head}Content-Type: application/json\r\nContent-Length: 9\r\n\r\n{{".encode()
        )
        assert b"408" in line.recv(4096).partition(b"\r\n")[0]


def test_every_answer_has_the_headers_of_safety(client: Any) -> None:
    answers = [
        client.get("/api/studio"),
        client.get("/nowhere"),
        client.get("/api/studio", headers={"Host": "evil.example"}),
        client.get("/"),
        client.delete("/api/studio"),
    ]
    assert [a.status_code for a in answers[1:3]] == [404, 403]
    assert answers[4].status_code == 405
    for answer in answers:
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert "server" not in answer.headers
        assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize(
    "path",
    ["/assets/../app.py", "/assets/%2e%2e/app.py", "/assets/..%2fapp.py", "/page/", "/assets//etc"],
)
def test_no_file_but_the_pages_is_served(serving: Serving, path: str) -> None:
    with socket.create_connection(("127.0.0.1", serving.port), timeout=30) as line:
        host = f"127.0.0.1:{serving.port}"
        line.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: line.recv(1 << 16), b""))
    assert answer.startswith(b"HTTP/1.1 404"), answer[:200]
    assert b"not-found" in answer


def test_others_need_the_token(hopper_run: Path) -> None:
    with Serving([hopper_run], host="0.0.0.0", port=0) as serving:
        base, token = f"http://127.0.0.1:{serving.port}", serving.token
        assert token is not None
        assert len(token) >= 32
        assert serving.address.endswith(f":{serving.port}/?token={token}")
        with httpx.Client(base_url=base, trust_env=False, timeout=60) as stranger:
            refused = stranger.get("/api/studio")
            assert code(refused) == (403, "forbidden")
            assert "with its token" in refused.json()["error"]["message"]
            assert code(stranger.get("/?token=wrong")) == (403, "forbidden")
            assert code(stranger.get(f"/api/studio?token={token}")) == (403, "forbidden")
            cookies = {"Cookie": f"mtm-studio-{serving.port}=wrong"}
            assert code(stranger.get("/api/studio", headers=cookies)) == (403, "forbidden")
            assert stranger.get("/api/studio", headers={"Host": "evil.example"}).status_code == 403
        with httpx.Client(base_url=base, trust_env=False, timeout=60) as friend:
            welcome = friend.get(f"/?token={token}")
            assert (welcome.status_code, welcome.headers["Location"]) == (303, "/")
            assert "HttpOnly" in welcome.headers["Set-Cookie"]
            assert "samesite=strict" in welcome.headers["Set-Cookie"].lower()
            assert friend.get("/api/studio").status_code == 200


def test_this_machine_alone_by_default(serving: Serving) -> None:
    assert serving.address == f"http://127.0.0.1:{serving.port}/"
    assert serving.token is None
    assert is_loopback("127.0.0.1")
    assert is_loopback("::1")
    assert not is_loopback("0.0.0.0")
    assert not is_loopback("localhost.evil.example")


def test_a_port_that_is_taken_is_told(hopper_run: Path, serving: Serving) -> None:
    with pytest.raises(ConfigError, match="--port 0 takes any free port"):
        Serving([hopper_run], port=serving.port)
    with pytest.raises(ConfigError, match="must be 0 to 65535"):
        Serving([hopper_run], port=70_000)
    with pytest.raises(ConfigError, match="--host 'no.such.host.invalid' cannot be used"):
        Serving([hopper_run], host="no.such.host.invalid")


def test_a_failure_of_ours_is_told_without_a_traceback(
    client: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr("mtm.evaluation.studio.episodes.window", fail)
    answer = client.get("/api/window?run=0&data=0&episode=60&start=0&length=4")
    assert code(answer) == (500, "internal")
    assert "secret" not in answer.text
    assert "secret" in caplog.text


def test_the_command_serves_until_ctrl_c(hopper_run: Path) -> None:
    command = [sys.executable, "-m", "mtm", "studio", hopper_run, "--port", "0", "--no-browser"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout is not None
        assert program.stderr is not None
        found = re.search(r"http://127\.0\.0\.1:\d+/", program.stdout.readline())
        assert found is not None
        answer = httpx.get(found.group() + "api/studio", trust_env=False, timeout=60)
        assert answer.json()["runs"][0]["name"] == "hopper"
        program.send_signal(signal.SIGINT)
        assert program.wait(60) == 0
        assert program.stderr.read() == ""


def test_the_command_says_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["studio", "--no-browser"]) == 2
    assert "no run is named, and there is none in the folder runs/" in capsys.readouterr().err
    assert main(["studio", "nowhere", "--no-browser"]) == 2
    assert "there is no directory nowhere" in capsys.readouterr().err
