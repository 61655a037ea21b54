"""Who may ask a server: requests that a browser was tricked into, or without a token, go away.

- Host must be an address or a name of this machine: a page whose name an attacker points here (DNS
  rebinding) sends its own.
- Origin, which browsers send, must be this server's: other pages may not ask.
- With a token, all but /health needs it.
"""

from __future__ import annotations

from collections.abc import Mapping

from mtm.core.http_access import HostNames, is_foreign, is_token
from mtm.deploy.serve_limits import RequestError

OPEN = ("/health",)
"""Paths that need no token, so that a supervisor can ask."""


class ClientGuard:
    """Looks at the head of each request.

    Args:
        host: What the server is bound to.
        token: What a client must know; None: nothing.
    """

    def __init__(self, host: str, token: str | None) -> None:
        self._names, self._token = HostNames(host), token

    def check(self, path: str, headers: Mapping[str, str]) -> None:
        """Raise a `RequestError` unless a request may be answered.

        Args:
            path: What is asked for.
            headers: By names in lower case.
        """
        host = headers.get("host", "")
        if not self._names.hold(host):
            raise RequestError(
                421,
                f"the header Host is {host!r}; allowed are addresses and names of this machine.",
            )
        origin = headers.get("origin")
        if is_foreign(origin, host):
            raise RequestError(403, f"pages of {origin!r} may not ask this server.")
        if self._token is not None and path not in OPEN:
            given = headers.get("authorization", "")
            if not is_token(given, f"Bearer {self._token}"):
                raise RequestError(
                    401, "this server wants the header Authorization: Bearer TOKEN, as it printed."
                )
