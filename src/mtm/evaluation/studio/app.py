"""The application: the page, what it asks for, and the guard before both."""

from __future__ import annotations

import logging
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Scope

from mtm.core.errors import MTMError
from mtm.evaluation.studio.faults import StudioError, impossible, not_found
from mtm.evaluation.studio.routes import Answering
from mtm.evaluation.studio.security import PageGuard, refusal

PAGE = Path(__file__).parent / "page"
"""What `make studio` builds of studio/."""

A_YEAR = "public, max-age=31536000, immutable"

LOG = logging.getLogger("mtm.studio")


def make_app(answering: Answering, host: str, port: int, token: str | None) -> ASGIApp:
    """The application of a studio.

    Args:
        answering: What answers.
        host: That the server is bound to.
        port: That it listens on.
        token: That is asked for, if any.
    """
    routes: list[BaseRoute] = [*answering.routes(), Route("/", _index, methods=["GET"])]
    if (PAGE / "assets").is_dir():
        routes.append(Mount("/assets", _Assets(directory=PAGE / "assets")))
    app = Starlette(
        routes=routes,
        exception_handlers={
            MTMError: _refuse,
            HTTPException: _refuse_http,
            Exception: _break,
        },
    )
    return PageGuard(app, host, port, token)


class _Assets(StaticFiles):
    """Files whose names hold a hash of their content."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        answer = await super().get_response(path, scope)
        if answer.status_code == 200:
            answer.headers["Cache-Control"] = A_YEAR
        return answer


async def _index(_: Request) -> Response:
    if not (PAGE / "index.html").is_file():
        raise StudioError(
            503, "no-page", "the page has not been built in this checkout: run `make studio`."
        )
    return FileResponse(PAGE / "index.html", headers={"Cache-Control": "no-store"})


async def _refuse(_: Request, error: Exception) -> Response:
    return refusal(error if isinstance(error, StudioError) else impossible(str(error)))


async def _refuse_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return refusal(not_found("there is nothing at this address."))
    return refusal(StudioError(error.status_code, "bad-request", f"{error.detail}."))


async def _break(request: Request, error: Exception) -> Response:
    LOG.error("%s %s", request.method, request.url.path, exc_info=error)
    text = f"the server failed ({type(error).__name__}); what it printed in the terminal says more."
    return refusal(StudioError(500, "internal", text))
