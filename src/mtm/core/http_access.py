"""Who may ask a server of ours, and where it listens; the studio and `mtm serve` share it.

A web page from elsewhere can make a browser send requests here, or give its own name our address
(rebinding). Both show in the headers: the Host is not ours, the Origin is not us.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import socket
from urllib.parse import urlsplit

from mtm.core.errors import ConfigError

LOOPBACK = ("127.0.0.1", "localhost", "::1")
TOKEN_BYTES = 24
BACKLOG = 2048


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a server that is bound to a host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def new_token() -> str:
    """A secret that nobody guesses."""
    return secrets.token_urlsafe(TOKEN_BYTES)


def is_token(shown: str | None, token: str) -> bool:
    """Whether a client knows the secret; how long that takes tells nothing about it."""
    return shown is not None and hmac.compare_digest(shown.encode(), token.encode())


def is_foreign(origin: str | None, host: str) -> bool:
    """Whether a page of another site asks, by the headers Origin, if there is one, and Host."""
    return origin is not None and origin.lower() != f"http://{host.lower()}"


class HostNames:
    """What clients may call a server: names of this machine that lead to where it is bound.

    Args:
        host: That it is bound to.
    """

    def __init__(self, host: str) -> None:
        self._any_address = host in ("", "0.0.0.0", "::")
        self._names = {*LOOPBACK, host.lower()}
        if self._any_address:
            self._names.add(socket.gethostname().lower())

    def hold(self, header: str, port: int | None = None) -> bool:
        """Whether the header Host is one of them, with that port if one is given."""
        try:
            url = urlsplit(f"http://{header}")
            name, asked = (url.hostname or "").lower(), url.port or 80
        except ValueError:
            return False
        if port is not None and asked != port:
            return False
        return name in self._names or (self._any_address and _is_address(name))


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 takes a free one.

    Raises:
        ConfigError: The host or the port cannot be had.
    """
    if not 0 <= port < 1 << 16:
        raise ConfigError(f"--port must be 0 to 65535, got {port}.")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, place = found[0]
        # With its protocol, or asyncio does not see that it is TCP, and every answer waits 40 ms.
        listening = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigError(f"--host {host!r} cannot be used: {error}.") from error
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(place)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise ConfigError(
            f"cannot listen on {host}, port {port}: {error.strerror}. --port 0 takes any free port."
        ) from error
    return listening


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
