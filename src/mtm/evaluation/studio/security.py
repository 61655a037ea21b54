"""Who may ask: this machine's browser, from our own page; others only with a token.

A web page from elsewhere can make a browser send requests here, or give its own name our address
(rebinding). Both show in the headers: the Host is not ours, the Origin is not us.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import socket
from collections.abc import Collection
from http.cookies import CookieError, SimpleCookie

from starlette.datastructures import URL, Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mtm.evaluation.studio.faults import RequestError

CONTENT_SECURITY_POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data: blob:",
        "connect-src 'self'",
        "font-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
)

HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}

API = "/api/"
TOKEN_BYTES = 24
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def new_token() -> str:
    """A secret that nobody guesses."""
    return secrets.token_urlsafe(TOKEN_BYTES)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Guard:
    """Checks every request before it is answered, and adds the headers that browsers heed.

    Args:
        app: Answers.
        host: That the server is bound to.
        port: That it listens on.
        token: That is asked for; None: whoever reaches us may ask.
    """

    def __init__(self, app: ASGIApp, host: str, port: int, token: str | None) -> None:
        self._app, self._port, self._token = app, port, token
        self._names = _names_of(host)
        self._any_address = not is_loopback(host) and _is_unspecified(host)
        self._cookie = f"mtm-studio-{port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse, or pass on."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            raise RuntimeError(f"the studio speaks HTTP, not {scope['type']}.")

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        request = Request(scope)
        try:
            answer = self._let_in(request)
        except RequestError as error:
            answer = refusal(error)
        if answer is None:
            await self._app(scope, receive, send_with_headers)
        else:
            await answer(scope, receive, send_with_headers)

    def _let_in(self, request: Request) -> Response | None:
        """None for a request that may pass; a redirect to one that has shown the token."""
        headers = request.headers
        self._check_host(headers.get("host", ""))
        self._check_origin(request.url.path, headers)
        if self._token is None:
            return None
        shown = request.query_params.get("token")
        if shown is not None and request.method == "GET" and request.url.path == "/":
            self._check_token(shown)
            welcome = RedirectResponse("/", status_code=303)
            welcome.set_cookie(self._cookie, shown, httponly=True, samesite="strict")
            return welcome
        self._check_token(_cookie(headers.get("cookie", ""), self._cookie))
        return None

    def _check_host(self, host: str) -> None:
        """Refuse a name that is not ours: another site may have been given our address."""
        try:
            url = URL(f"http://{host}")
            name, port = url.hostname or "", url.port or 80
        except ValueError:
            name, port = "", 0
        if port == self._port and (name in self._names or (self._any_address and _is_ip(name))):
            return
        raise RequestError(
            403,
            "forbidden",
            f"the request is for another host. Open the address that mtm studio printed (port "
            f"{self._port}).",
        )

    def _check_origin(self, path: str, headers: Headers) -> None:
        """Refuse what a page from elsewhere sends."""
        origin = headers.get("origin")
        site = headers.get("sec-fetch-site", "none")
        foreign = origin is not None and origin != f"http://{headers.get('host')}"
        if foreign or (path.startswith(API) and site not in ("same-origin", "none")):
            raise RequestError(
                403, "forbidden", "the request comes from another site; use the studio's own page."
            )

    def _check_token(self, shown: str | None) -> None:
        assert self._token is not None
        if shown is None or not hmac.compare_digest(shown.encode(), self._token.encode()):
            raise RequestError(
                403, "forbidden", "open the whole address that mtm studio printed, with its token."
            )


def refusal(error: RequestError) -> JSONResponse:
    """An error as the page reads it."""
    content = {"error": {"code": error.code, "message": str(error)}}
    return JSONResponse(content, status_code=error.status)


def _names_of(host: str) -> Collection[str]:
    """What a browser may call a server that is bound to a host."""
    own = {host.lower(), *LOOPBACK}
    return {*own, socket.gethostname().lower()} if _is_unspecified(host) else own


def _is_unspecified(host: str) -> bool:
    """Whether a host stands for every address of this machine."""
    return host in ("", "0.0.0.0", "::")


def _is_ip(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _cookie(header: str, name: str) -> str | None:
    try:
        found = SimpleCookie(header).get(name)
    except CookieError:
        return None
    return None if found is None else found.value
