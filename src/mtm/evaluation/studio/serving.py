"""The server: bound to this machine unless told otherwise, and then only with a token.

with Serving([run], data=None) as serving:
    serving.address    to open
    serving.wait()     until Ctrl-C
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from mtm.core.errors import ConfigError, RunError, require
from mtm.core.http_access import is_loopback, listen, new_token
from mtm.data.loading import DataSpec
from mtm.evaluation.studio.workspace import Workspace, open_runs
from mtm.runs.run import Run

if TYPE_CHECKING:
    import uvicorn

HOST, PORT = "127.0.0.1", 8377
MOST_CONNECTIONS = 64
KEEP_ALIVE, GRACE = 30, 1
"""Seconds: that an idle connection stays open, and that open ones have when the server ends."""
START_SECONDS = 30.0


class Serving:
    """A studio that is being served, in a thread of its own.

    Args:
        runs: Runs, or their directories; of none, those in `runs/`.
        data: A data set to look at besides those that the runs were trained on.
        env_id: An environment to act in, for the runs whose data can be of it. Name it where the
            data name none, or one as `MODULE:ID`, which is imported on no file's word.
        host: To be bound to. Anything but this machine alone asks for a token.
        port: To listen on; 0: any; None: the usual one, or any if it is taken.

    Attributes:
        address: To open in a browser, with the token if there is one.
        token: None if none is asked for.

    Raises:
        MissingExtraError: What serves is not installed.
        RunError: A run cannot be read, or there is none.
        ConfigError: The host or the port cannot be had.
        EnvironmentMismatchError: The environment is that of no run.
    """

    def __init__(
        self,
        runs: Sequence[Run | str | Path],
        data: DataSpec | None = None,
        *,
        env_id: str | None = None,
        host: str = HOST,
        port: int | None = None,
    ) -> None:
        require("starlette", extra="studio")
        require("uvicorn", extra="studio")
        opened = open_runs([]) if not runs else []
        for run in runs:
            opened += [run] if isinstance(run, Run) else open_runs([Path(run)])
        self._workspace = Workspace(opened, data, env_id)
        self._socket = _listen(host, port)
        self._host, self.port = host, int(self._socket.getsockname()[1])
        self.token: str | None = None
        self._server: uvicorn.Server | None = None
        self._ended = threading.Event()

    @property
    def address(self) -> str:
        """What to open."""
        shown = socket.gethostname() if self._host in ("", "0.0.0.0", "::") else self._host
        shown = f"[{shown}]" if ":" in shown else shown
        query = "" if self.token is None else f"?token={self.token}"
        return f"http://{shown}:{self.port}/{query}"

    def __enter__(self) -> Serving:
        import uvicorn

        from mtm.evaluation.studio.app import make_app
        from mtm.evaluation.studio.routes import Answering

        self.token = None if is_loopback(self._host) else new_token()
        self._answering = Answering(self._workspace)
        config = uvicorn.Config(
            make_app(self._answering, self._host, self.port, self.token),
            log_level="error",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            lifespan="off",
            ws="none",
            limit_concurrency=MOST_CONNECTIONS,
            timeout_keep_alive=KEEP_ALIVE,
            timeout_graceful_shutdown=GRACE,
        )
        self._server = uvicorn.Server(config)
        threading.Thread(
            target=self._serve, args=(self._server,), name="mtm-studio", daemon=True
        ).start()
        until = time.monotonic() + START_SECONDS
        while not self._server.started:
            if self._ended.is_set() or time.monotonic() > until:
                raise RunError("the server did not start; what it printed says why.")
            time.sleep(0.01)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.should_exit = True
        self._answering.close()
        self._ended.wait()
        self._socket.close()

    def wait(self) -> None:
        """Until the server ends, or Ctrl-C."""
        while not self._ended.wait(0.5):
            pass

    def _serve(self, server: uvicorn.Server) -> None:
        try:
            server.run([self._socket])
        finally:
            # Not `Thread.join`: interrupted by Ctrl-C, it takes a thread that runs for one that
            # has ended (Python up to 3.12).
            self._ended.set()


def _listen(host: str, port: int | None) -> socket.socket:
    """A socket on the port; on the usual one, or any where that is taken, if none is given."""
    if port is not None:
        return listen(host, port)
    try:
        return listen(host, PORT)
    except ConfigError:
        return listen(host, 0)
