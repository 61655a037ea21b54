"""Downloads against a server on this machine that does everything a bad one does."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from mtm.core.errors import DataError
from mtm.data.download import fetch

CONTENT = bytes(range(256)) * 2000
SIZE, SHA256 = len(CONTENT), hashlib.sha256(CONTENT).hexdigest()
HALF = SIZE // 2


class Server(ThreadingHTTPServer):
    """Serves CONTENT; the path says how. Remembers what it was asked for."""

    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[tuple[str, str | None]] = []
        self.sent = 0
        self.closing = threading.Event()

    def url(self, how: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/{how}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        wanted = self.headers["Range"]
        self.server.asked.append((self.path[1:], wanted))
        first = int(re.fullmatch(r"bytes=(\d+)-", wanted)[1]) if wanted else 0
        getattr(self, self.path[1:].replace("-", "_"))(first)

    def good(self, first: int) -> None:
        if first:
            self.answer(206, SIZE - first, {"Content-Range": f"bytes {first}-{SIZE - 1}/{SIZE}"})
        else:
            self.answer(200, SIZE)
        self.send(CONTENT[first:])

    def slow(self, first: int) -> None:
        time.sleep(0.5)
        self.good(first)

    def without_range(self, first: int) -> None:
        self.answer(200, SIZE)
        self.send(CONTENT)

    def refuses_range(self, first: int) -> None:
        if first:
            self.send_error(416)
        else:
            self.good(0)

    def other_range(self, first: int) -> None:
        self.answer(206, SIZE - 10, {"Content-Range": f"bytes 10-{SIZE - 1}/{SIZE}"})
        self.send(CONTENT[10:])

    def cut(self, first: int) -> None:
        self.answer(200, SIZE)
        self.send(CONTENT[:HALF])

    def cut_without_length(self, first: int) -> None:
        self.answer(200, None)
        self.send(CONTENT[:HALF])

    def endless(self, first: int) -> None:
        self.answer(200, None)
        self.send(CONTENT * 100)

    def stall(self, first: int) -> None:
        self.answer(200, SIZE)
        self.send(CONTENT[:HALF])
        self.wfile.flush()
        self.server.closing.wait(20)

    def silent(self, first: int) -> None:
        self.server.closing.wait(20)

    def missing(self, first: int) -> None:
        self.send_error(404)

    def wrong(self, first: int) -> None:
        self.answer(200, SIZE)
        self.send(bytes(SIZE))

    def page(self, first: int) -> None:
        self.answer(200, 12)
        self.send(b"<html></html")

    def garbled(self, first: int) -> None:
        self.wfile.write(b"this is not HTTP\r\n\r\n")

    def moved(self, first: int) -> None:
        self.answer(302, 0, {"Location": self.server.url("good")})

    def moved_to_a_file(self, first: int) -> None:
        self.answer(302, 0, {"Location": "file:///etc/hostname"})

    def moved_to_ftp(self, first: int) -> None:
        self.answer(302, 0, {"Location": "ftp://127.0.0.1/file"})

    def answer(
        self, status: int, length: int | None, headers: dict[str, str] | None = None
    ) -> None:
        self.send_response(status)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        if length is not None:
            self.send_header("Content-Length", str(length))
        self.end_headers()

    def send(self, body: bytes) -> None:
        try:
            self.wfile.write(body)
        except ConnectionError:  # the client had enough
            return
        self.server.sent += len(body)

    def log_message(self, *words: object) -> None:
        """Keep quiet."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Server() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.closing.set()
        server.shutdown()


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "new folder" / "data.hdf5"


def part_of(target: Path, content: bytes | None = None) -> Path:
    part = target.with_name("data.hdf5.part")
    if content is not None:
        part.parent.mkdir(exist_ok=True)
        part.write_bytes(content)
    return part


def get(server: Server, target: Path, *ways: str, timeout: float = 5.0) -> Path:
    urls = [way if ":" in way else server.url(way) for way in ways]
    return fetch(target, urls, size=SIZE, sha256=SHA256, timeout=timeout)


def test_a_good_server(server: Server, target: Path) -> None:
    assert get(server, target, "good") == target
    assert target.read_bytes() == CONTENT
    assert not part_of(target).exists()
    get(server, target, "good")
    assert server.asked == [("good", None)]  # once: it was there the second time


def test_only_the_rest_is_asked_for(server: Server, target: Path) -> None:
    part_of(target, CONTENT[:HALF])
    get(server, target, "good")
    assert target.read_bytes() == CONTENT
    assert server.asked == [("good", f"bytes={HALF}-")]
    assert server.sent == SIZE - HALF


def test_a_cut_connection_goes_on_at_the_next_mirror(server: Server, target: Path) -> None:
    get(server, target, "cut", "good")
    assert target.read_bytes() == CONTENT
    assert server.asked == [("cut", None), ("good", f"bytes={HALF}-")]


@pytest.mark.parametrize("way", ["cut", "cut-without-length", "stall"])
def test_what_has_arrived_is_kept_for_the_next_call(server: Server, target: Path, way: str) -> None:
    with pytest.raises(DataError, match=rf"(cut|timed out) after {HALF:,} of {SIZE:,} bytes"):
        get(server, target, way, timeout=0.3)
    assert part_of(target).read_bytes() == CONTENT[:HALF]
    assert not target.exists()
    get(server, target, "good")
    assert target.read_bytes() == CONTENT
    assert server.asked[-1] == ("good", f"bytes={HALF}-")


@pytest.mark.parametrize("way", ["without-range", "refuses-range"])
def test_a_server_that_does_no_parts_starts_over(server: Server, target: Path, way: str) -> None:
    part_of(target, b"x" * HALF)  # would show if it were kept
    get(server, target, way)
    assert target.read_bytes() == CONTENT


def test_a_wrong_beginning_is_thrown_away(server: Server, target: Path) -> None:
    part_of(target, b"x" * HALF)
    get(server, target, "good")
    assert target.read_bytes() == CONTENT
    assert server.asked == [("good", f"bytes={HALF}-"), ("good", None)]


@pytest.mark.parametrize("content", [CONTENT, CONTENT + b"more"])
def test_a_part_that_is_not_partial(server: Server, target: Path, content: bytes) -> None:
    part_of(target, content)
    get(server, target, "good")
    assert target.read_bytes() == CONTENT
    assert server.asked == ([] if content == CONTENT else [("good", None)])


@pytest.mark.parametrize("way", ["wrong", "endless"])
def test_a_wrong_checksum(server: Server, target: Path, way: str) -> None:
    with pytest.raises(DataError, match=f"SHA-256 [0-9a-f]{{64}}, not {SHA256}"):
        get(server, target, way)
    assert not part_of(target).exists()
    assert not target.exists()
    assert server.sent < 100 * SIZE  # an endless answer is not read to its end
    get(server, target, way, "good")
    assert target.read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("way", "message"),
    [
        ("missing", "HTTP 404 Not Found"),
        ("page", f"has 12 bytes, not {SIZE:,}: another file"),
        ("other-range", "it sent 'bytes 10-"),
        ("silent", "timed out"),
        ("garbled", "this is not HTTP"),
        ("moved-to-a-file", "HTTP 302|not allowed"),
        ("moved-to-ftp", "unknown url type: ftp"),
        ("file:///etc/hostname", "unknown url type: file"),
        ("http://127.0.0.1:notaport/", "notaport"),
        ("http://127.0.0.1:9/nobody", "refused"),
        ("http://no such host/", "control characters"),
    ],
)
def test_a_mirror_that_fails_costs_nothing(
    server: Server, target: Path, way: str, message: str
) -> None:
    part_of(target, CONTENT[:HALF])
    with pytest.raises(DataError, match=message):
        get(server, target, way, timeout=0.3)
    assert part_of(target).read_bytes() == CONTENT[:HALF]
    get(server, target, way, "good", timeout=0.3)
    assert target.read_bytes() == CONTENT


def test_the_message_lists_all_that_was_tried(server: Server, target: Path) -> None:
    with pytest.raises(DataError) as caught:
        get(server, target, "missing", "page", "wrong")
    message = str(caught.value)
    for way, fault in [("missing", "HTTP 404"), ("page", "12 bytes"), ("wrong", "SHA-256")]:
        assert re.search(rf"\n  {re.escape(server.url(way))}: .*{fault}", message)
    assert f"put the file at {target} by hand" in message


def test_redirects_are_followed_with_the_range(server: Server, target: Path) -> None:
    part_of(target, CONTENT[:HALF])
    get(server, target, "moved")
    assert target.read_bytes() == CONTENT
    assert server.asked[-1] == ("good", f"bytes={HALF}-")


def test_a_folder_that_cannot_be_made(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataError, match=r"data.hdf5 cannot be written: .*free disk"):
        get(server, tmp_path / "file" / "data.hdf5", "good")
    assert server.asked == []


def test_a_second_download_waits_for_the_first(server: Server, target: Path) -> None:
    got: list[Path] = []
    threads = [
        threading.Thread(target=lambda: got.append(get(server, target, "slow"))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == [target] * 3
    assert target.read_bytes() == CONTENT
    assert server.asked == [("slow", None)]


def test_a_killed_process_leaves_its_part_and_no_lock(server: Server, target: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from mtm.data.download import fetch; "
        f"fetch(Path(sys.argv[1]), [sys.argv[2]], size={SIZE}, sha256={SHA256!r})"
    )
    child = subprocess.Popen([sys.executable, "-c", program, str(target), server.url("stall")])
    deadline = time.monotonic() + 20
    while not (part_of(target).is_file() and part_of(target).stat().st_size):
        assert time.monotonic() < deadline
        assert child.poll() is None
        time.sleep(0.01)
    child.kill()
    child.wait()
    assert not target.exists()
    get(server, target, "good")
    assert target.read_bytes() == CONTENT
    assert server.asked[-1][1] is not None  # it went on from the part
