"""Serving a run over HTTP until somebody stops it."""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from mtm.core.errors import ConfigError, require
from mtm.core.http_access import is_loopback, listen, new_token
from mtm.deploy.serve_guard import ClientGuard
from mtm.deploy.serve_limits import Limits
from mtm.runs.run import Run

LARGEST_HEAD = 16_384
"""Bytes of the headers of a request."""

MOST_CONNECTIONS = 4096


def serve(
    run: Run,
    host: str = "127.0.0.1",
    port: int = 8000,
    *,
    token: str | None = None,
    limits: Limits | None = None,
    say: Callable[[str], None] = print,
) -> None:
    """Answer requests until SIGTERM or SIGINT; what is under way then is finished.

    Args:
        run: A trained run.
        host: The address to bind to. Other machines reach none of the loopback, the default.
        port: 0 takes a free one.
        token: What clients must send. None: nothing on the loopback; elsewhere one is made.
        limits: What clients may ask for.
        say: Told where the server is, and the token if one was made.

    Raises:
        ConfigError: The address cannot be bound to.
        MissingExtraError: Starlette or uvicorn is not installed.
    """
    if token is None and not is_loopback(host):
        token = new_token()
        say(f"token: {token}")
    server = make_server(run, host, token, limits or Limits())
    with listen(host, port) as listening, _stopped_by_signals():
        shown = f"[{host}]" if ":" in host else host
        say(f"http://{shown}:{listening.getsockname()[1]}")
        server.run(sockets=[listening])
    say("stopped")


def make_server(run: Run, host: str, token: str | None, limits: Limits) -> Any:
    """A server of uvicorn's that answers for a run, to be run on a socket that listens.

    Raises:
        ConfigError: The token is empty.
        MissingExtraError: Starlette or uvicorn is not installed.
    """
    require("starlette", extra="serve")
    uvicorn = require("uvicorn", extra="serve")
    from mtm.deploy.serve_app import Application

    if token is not None and not token.strip():
        raise ConfigError("the token is empty; leave it out, or say one that nobody guesses.")
    config = uvicorn.Config(
        Application(run, limits, ClientGuard(host, token)).asgi(),
        **{"http": "h11", "ws": "none", "loop": "asyncio", "lifespan": "on"},
        **{"access_log": False, "log_level": "warning", "server_header": False},
        limit_concurrency=MOST_CONNECTIONS,
        timeout_graceful_shutdown=math.ceil(limits.seconds),
        h11_max_incomplete_event_size=LARGEST_HEAD,
    )
    return uvicorn.Server(config)


@contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """Take a signal for the end of serving, and not of the program.

    The server stops at a signal, and raises it again when it has stopped.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ends = (signal.SIGINT, signal.SIGTERM)
    before = {end: signal.signal(end, lambda number, frame: None) for end in ends}
    try:
        yield
    finally:
        for end, handler in before.items():
            signal.signal(end, handler)
