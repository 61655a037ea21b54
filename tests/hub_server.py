"""A hub on loopback: the part of huggingface.co's protocol that sharing a run needs.

Repositories, commits, large files by Git LFS's batch protocol, downloads in parts. It can cut
connections and send wrong bytes on purpose.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

WRITER, READER = "hf_writer", "hf_reader"
"""Tokens: one of somebody who may write to `me`, one of somebody who may read."""


@dataclass
class Repository:
    private: bool
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)

    def commit(self, files: dict[str, bytes], branch: str = "main") -> str:
        oid = hashlib.sha1(repr((len(self.commits), sorted(files))).encode()).hexdigest()
        self.commits[oid] = files
        self.branches[branch] = oid
        return oid

    @property
    def head(self) -> dict[str, bytes]:
        return self.commits[self.branches["main"]]


@dataclass
class Hub:
    """What the server holds, what it was asked, and what it shall do wrong."""

    url: str = ""
    repositories: dict[str, Repository] = field(default_factory=dict)
    large: dict[str, bytes] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    cuts: dict[str, int] = field(default_factory=dict)
    """End of a path -> how many connections to cut in the middle of its content."""
    replaced: dict[str, bytes] = field(default_factory=dict)
    """End of a path -> what to send instead, under the headers of the right content."""
    broken: int = 0
    """A status to answer everything with."""
    moved: bool = False
    """Whether somebody else commits before each commit."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and content in one piece: two would wait for each other
    hub: Hub

    def log_message(self, *words: object) -> None:
        """Say nothing."""

    def handle_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.partition("?")[0]
        self.hub.requests.append(f"{self.command} {path}")
        if self.hub.broken:
            self.answer(self.hub.broken, {"error": "Internal Error"})
            return
        for form, call in ROUTES:
            if found := re.fullmatch(form, f"{self.command} {path}"):
                call(self, body, **found.groupdict())
                return
        self.answer(404, {"error": "no such route"})
        return

    do_GET = do_HEAD = do_POST = do_PUT = handle_any  # noqa: N815

    @property
    def token(self) -> str:
        return self.headers.get("Authorization", "").removeprefix("Bearer ")

    def answer(self, status: int, plain: Any, **headers: str) -> None:
        content = json.dumps(plain).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def visible(self, repo: str) -> Repository | None:
        """The repository, or None after an answer that says what a hub says."""
        found = self.hub.repositories.get(repo)
        known = self.token in (WRITER, READER)
        if found is None or (found.private and not known):
            self.answer(404 if known else 401, {"error": "?"}, X_Error_Code="RepoNotFound")
            return None
        return found

    def writes(self) -> bool:
        if self.token == WRITER:
            return True
        status = 403 if self.token == READER else 401
        self.answer(status, {"error": "You have no right to write"})
        return False

    def create(self, body: bytes) -> None:
        asked = json.loads(body)
        if not self.writes():
            return
        name = f"{asked['organization']}/{asked['name']}"
        if asked["organization"] != "me":
            self.answer(403, {"error": "not your namespace"})
            return
        repository = Repository(asked["visibility"] == "private")
        repository.commit({".gitattributes": b"*.safetensors filter=lfs\n"})
        self.hub.repositories[name] = repository
        self.answer(200, {"url": f"{self.hub.url}/{name}", "name": name})

    def info(self, body: bytes, repo: str, revision: str = "main") -> None:
        if (found := self.visible(repo)) is None:
            return
        oid = found.branches.get(revision, revision)
        if oid not in found.commits:
            self.answer(404, {"error": "?"}, X_Error_Code="RevisionNotFound")
            return
        siblings = [{"rfilename": name} for name in found.commits[oid]]
        plain = {"id": repo, "sha": oid, "private": found.private, "siblings": siblings}
        self.answer(200, plain | {"tags": [], "downloads": 0, "likes": 0})

    def tree(self, body: bytes, repo: str, revision: str) -> None:
        if (found := self.visible(repo)) is None:
            return
        files = found.commits[found.branches.get(revision, revision)]
        self.answer(
            200,
            [
                {"type": "file", "path": name, "size": len(content), "oid": "0" * 40}
                for name, content in files.items()
            ],
        )

    def validate(self, body: bytes) -> None:
        text = json.loads(body)["content"]
        good = re.match(r"---\n([a-z_]+:( .+)?\n|- .+\n)+---\n", text) is not None
        self.answer(200 if good else 400, {"errors": [] if good else [{"message": "no head"}]})

    def preupload(self, body: bytes, repo: str) -> None:
        if not self.writes() or self.visible(repo) is None:
            return
        names = [file["path"] for file in json.loads(body)["files"]]
        modes = {n: "lfs" if n.endswith(".safetensors") else "regular" for n in names}
        files = [{"path": n, "uploadMode": m, "shouldIgnore": False} for n, m in modes.items()]
        self.answer(200, {"files": files})

    def batch(self, body: bytes, repo: str) -> None:
        objects = [
            {**asked, "actions": {"upload": {"href": f"{self.hub.url}/lfs/{asked['oid']}"}}}
            for asked in json.loads(body)["objects"]
        ]
        self.answer(200, {"transfer": "basic", "objects": objects})

    def put(self, body: bytes, oid: str) -> None:
        if hashlib.sha256(body).hexdigest() != oid:
            self.answer(400, {"error": "another content"})
            return
        self.hub.large[oid] = body
        self.answer(200, {})

    def commit(self, body: bytes, repo: str) -> None:
        if not self.writes() or (found := self.visible(repo)) is None:
            return
        lines = [json.loads(line) for line in body.splitlines()]
        if self.hub.moved:
            found.commit({**found.head, "another": b""})
        if lines[0]["value"].get("parentCommit") not in (None, found.branches["main"]):
            self.answer(412, {"error": "A commit has happened since."})
            return
        files = dict(found.head)
        for line in lines[1:]:
            value = line["value"]
            if line["key"] == "deletedFile":
                del files[value["path"]]
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.hub.large[value["oid"]]
            else:
                files[value["path"]] = base64.b64decode(value["content"])
        oid = found.commit(files)
        self.answer(200, {"commitUrl": f"{self.hub.url}/{repo}/commit/{oid}", "commitOid": oid})

    def resolve(self, body: bytes, repo: str, revision: str, name: str) -> None:
        if (found := self.visible(repo)) is None:
            return
        oid = found.branches.get(revision, revision)
        if name not in found.commits.get(oid, {}):
            self.answer(404, {"error": "?"}, X_Error_Code="EntryNotFound")
            return
        content = found.commits[oid][name]
        first = int((self.headers.get("Range") or "bytes=0-")[6:].partition("-")[0])
        self.send_response(206 if first else 200)
        self.send_header("X-Repo-Commit", oid)
        self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        if first:
            self.send_header("Content-Range", f"bytes {first}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - first))
        self.end_headers()
        if self.command != "HEAD":
            self.send_content(name, self.hub.replaced.get(name, content)[first:])

    def send_content(self, name: str, content: bytes) -> None:
        if self.hub.cuts.get(name, 0) > 0:
            self.hub.cuts[name] -= 1
            self.wfile.write(content[: len(content) // 2])
            self.close_connection = True
        else:
            self.wfile.write(content)


REPO = r"(?P<repo>[\w.-]+/[\w.-]+)"
ROUTES: list[tuple[str, Any]] = [
    (r"POST /api/repos/create", Handler.create),
    (r"POST /api/validate-yaml", Handler.validate),
    (rf"POST /api/models/{REPO}/preupload/main", Handler.preupload),
    (rf"POST /{REPO}\.git/info/lfs/objects/batch", Handler.batch),
    (r"PUT /lfs/(?P<oid>\w+)", Handler.put),
    (rf"POST /api/models/{REPO}/commit/main", Handler.commit),
    (rf"GET /api/models/{REPO}", Handler.info),
    (rf"GET /api/models/{REPO}/revision/(?P<revision>\w+)", Handler.info),
    (rf"GET /api/datasets/{REPO}/revision/(?P<revision>\w+)", Handler.info),
    (rf"GET /api/datasets/{REPO}/tree/(?P<revision>\w+)", Handler.tree),
    (rf"(GET|HEAD) /(datasets/)?{REPO}/resolve/(?P<revision>\w+)/(?P<name>.+)", Handler.resolve),
]


@contextmanager
def running_hub() -> Iterator[Hub]:
    """A hub that answers on loopback until the end."""
    hub = Hub()
    handler = type("BoundHandler", (Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def reachable_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub that the hub's library finds; what is fetched is kept in a folder of the test."""
    from huggingface_hub import constants, file_download
    from huggingface_hub.utils import _http

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
    short = SimpleNamespace(sleep=lambda seconds: time.sleep(seconds / 100), time=time.time)
    for module in (file_download, _http):  # which wait for seconds before they try again
        monkeypatch.setattr(module, "time", short)
    with running_hub() as found:
        set_endpoint(monkeypatch, found.url)
        yield found


def set_endpoint(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """As HF_ENDPOINT does for a new process."""
    from huggingface_hub import constants

    template = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace(constants.ENDPOINT, url)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "ENDPOINT", url)
