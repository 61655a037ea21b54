"""Who may ask a server: requests that a browser was tricked into, or without a token, go away.

- Host must be an address or a name of this machine: a page whose name an attacker points here (DNS
  rebinding) sends its own.
- Origin, which browsers send, must be this server's: other pages may not ask.
- With a token, all but /health needs it.
"""

from __future__ import annotations

import hmac
import ipaddress
import socket
from collections.abc import Mapping

from mtm.deploy.serve_limits import RequestError

OPEN = ("/health",)
"""Paths that need no token, so that a supervisor can ask."""


class Guard:
    """Looks at the head of each request.

    Args:
        host: What the server is bound to.
        token: What a client must know; None: nothing.
    """

    def __init__(self, host: str, token: str | None) -> None:
        self._names = {"localhost", host.lower(), socket.gethostname().lower()}
        self._token = token

    def check(self, path: str, headers: Mapping[str, str]) -> None:
        """Raise a `RequestError` unless a request may be answered.

        Args:
            path: What is asked for.
            headers: By names in lower case.
        """
        host = headers.get("host", "")
        if not self._is_here(host):
            raise RequestError(
                421,
                f"the header Host is {host!r}; allowed are addresses and names of this machine.",
            )
        origin = headers.get("origin")
        if origin is not None and origin.lower() != f"http://{host.lower()}":
            raise RequestError(403, f"pages of {origin!r} may not ask this server.")
        if self._token is not None and path not in OPEN:
            given = headers.get("authorization", "")
            if not hmac.compare_digest(given.encode(), f"Bearer {self._token}".encode()):
                raise RequestError(
                    401, "this server wants the header Authorization: Bearer TOKEN, as it printed."
                )

    def _is_here(self, host: str) -> bool:
        name = host.rpartition(":")[0] if ":" in host.rpartition("]")[2] else host
        try:
            ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return name.lower() in self._names
        return True


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a server that is bound to a host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
