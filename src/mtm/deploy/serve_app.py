"""A run as an HTTP application: questions and acting, JSON in and out.

    GET    /                         what is served
    GET    /health                   whether it answers
    GET    /metrics                  counts, for Prometheus
    POST   /predict                  {given, want} -> {predicted}
    POST   /sessions                 {policy, target, n} -> {id}: begin n episodes
    POST   /sessions/ID/act          {states} -> {actions}
    POST   /sessions/ID/observe      {rewards, dones}: what came of the actions
    DELETE /sessions/ID              done with it

Whatever goes wrong is told as {"error": ...}.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mtm import __version__
from mtm.control import policies
from mtm.control.policies import MaskedPolicy
from mtm.core.errors import ConfigError, DataError, MTMError, unknown
from mtm.core.names import ACTING_TASKS
from mtm.deploy.serve_batching import Batcher
from mtm.deploy.serve_guard import ClientGuard
from mtm.deploy.serve_limits import Limits, RequestError
from mtm.deploy.serve_metrics import Metrics
from mtm.deploy.serve_sessions import Sessions
from mtm.inference.inputs import Given, as_values
from mtm.runs.run import Run

_LOG = logging.getLogger(__name__)

UNKNOWN_ROUTE = "unknown"


class Application:
    """Answers for one run.

    Args:
        run: A trained run.
        limits: What clients may ask for.
        guard: Who may ask.
    """

    def __init__(self, run: Run, limits: Limits, guard: ClientGuard) -> None:
        self.run, self.limits, self.guard = run, limits, guard
        self.metrics = Metrics()
        self.batcher = Batcher(run, limits, self.metrics)
        self.sessions = Sessions(limits, self._count_expired)

    def asgi(self) -> ASGIApp:
        """What a server runs."""
        routes = [
            Route("/", self._endpoint(self.about), methods=["GET"]),
            Route("/health", self._endpoint(self.health), methods=["GET"]),
            Route("/metrics", self._endpoint(self.counts), methods=["GET"]),
            Route("/predict", self._endpoint(self.predict), methods=["POST"]),
            Route("/sessions", self._endpoint(self.open_session), methods=["POST"]),
            Route("/sessions/{id}", self._endpoint(self.close_session), methods=["DELETE"]),
            Route("/sessions/{id}/act", self._endpoint(self.act), methods=["POST"]),
            Route("/sessions/{id}/observe", self._endpoint(self.observe), methods=["POST"]),
        ]
        handlers: Mapping[Any, Any] = {HTTPException: _no_route}
        app = Starlette(routes=routes, exception_handlers=handlers, lifespan=self._lifespan)
        return _Watched(app, self.guard, self.metrics)

    async def about(self, request: Request) -> Response:
        """What is served, and within which limits."""
        run = self.run
        return _json(
            {
                "run": run.path.name,
                "step": run.step,
                "modalities": [m.to_json() for m in run.modalities],
                "segment_length": run.segment_length,
                "policies": list(ACTING_TASKS),
                "environment": run.description.metadata.env_id,
                "limits": vars(self.limits),
                "mtm": __version__,
            }
        )

    async def health(self, request: Request) -> Response:
        """That somebody answers."""
        return _json({"status": "ok"})

    async def counts(self, request: Request) -> Response:
        """Metrics."""
        now = {
            "sessions": len(self.sessions),
            "session_rows": self.sessions.rows,
            "waiting_requests": self.batcher.waiting,
        }
        return PlainTextResponse(self.metrics.text(now), media_type="text/plain; version=0.0.4")

    async def predict(self, request: Request) -> Response:
        """As `mtm.predict`; null marks a gap."""
        asked = await self._fields(request, {"given": dict, "want": (str, list)})
        want = [asked["want"]] if isinstance(asked["want"], str) else asked["want"]
        if not want or not all(isinstance(name, str) for name in want):
            raise DataError(f"`want` is one name or several, got {asked['want']!r}.")
        for name in want:
            self.run.modalities.named(name)
        values = {n: _with_gaps(self.run.modalities.named(n), v) for n, v in asked["given"].items()}
        given = Given.of(self.run, values, {})
        steps = given.visible[..., 0].size
        if steps > self.limits.steps:
            raise RequestError(413, f"{steps:,} steps are asked about; {self.limits.steps:,} fit.")
        answers = await self.batcher.predict(given, tuple(dict.fromkeys(want)))
        return _json({"predicted": {name: array.tolist() for name, array in answers.items()}})

    async def open_session(self, request: Request) -> Response:
        """Begin episodes."""
        forms = {"policy": str, "target": (str, int, float), "n": int}
        asked = await self._fields(request, forms, {"policy": "rcbc", "target": "auto", "n": 1})
        n = asked["n"]
        if isinstance(n, bool) or n < 1:
            raise ConfigError(f"n must be at least 1, got {n!r}.")
        self.sessions.check_room(n)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            policy = _policy(self.run, asked["policy"], asked["target"])
        name = self.sessions.open(policy, n)
        return _json({"id": name, "n": n, "warnings": [str(w.message) for w in told]}, 201)

    async def act(self, request: Request) -> Response:
        """Actions for the states that the environments are in now."""
        asked = await self._fields(request, {"states": list})
        session = self.sessions.named(request.path_params["id"])
        policy = session.policy
        states = as_values(self.run, policy.states.name, asked["states"])
        policy.check_states(states)
        session.begin_act()
        try:
            answer = self.batcher.act(policy, states)
        except RequestError:
            session.end_act(acted=False)
            raise
        # Whoever waits may give up before the policy has acted.
        answer.add_done_callback(
            lambda a: session.end_act(acted=not a.cancelled() and a.exception() is None)
        )
        actions: NDArray[Any] = await self.batcher.within_time(answer)
        return _json({"actions": actions.tolist()})

    async def observe(self, request: Request) -> Response:
        """What came of the actions."""
        asked = await self._fields(request, {"rewards": list, "dones": list})
        session = self.sessions.named(request.path_params["id"])
        rewards = _numbers("rewards", asked["rewards"], session.n)
        dones = asked["dones"]
        if len(dones) != session.n or not all(isinstance(done, bool) for done in dones):
            raise DataError(f"dones must be {session.n} times true or false, got {dones!r:.100}.")
        session.begin_observe()
        session.policy.observe(rewards, np.asarray(dones, bool))
        return _json({"observed": session.n})

    async def close_session(self, request: Request) -> Response:
        """End of a session."""
        self.sessions.close(request.path_params["id"])
        return _json({"closed": request.path_params["id"]})

    def _count_expired(self) -> None:
        self.metrics.expired += 1

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        yield
        await self.batcher.close()

    def _endpoint(
        self, answer: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """Tell errors of ours as JSON, and count the request under the name of what answers."""

        async def endpoint(request: Request) -> Response:
            request.scope["mtm.route"] = answer.__name__
            try:
                return await answer(request)
            except RequestError as error:
                return _error(error.status, str(error))
            except MTMError as error:
                return _error(400, str(error))
            except Exception:
                _LOG.exception("%s failed", answer.__name__)
                return _error(500, "the server failed to answer this; its log says more.")

        return endpoint

    async def _fields(
        self, request: Request, forms: Mapping[str, Any], default: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """The fields of a JSON body.

        Args:
            request: What arrives.
            forms: Name -> type, or types.
            default: Of fields that may be left out.
        """
        if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            raise RequestError(415, "send JSON, with the header Content-Type: application/json.")
        try:
            body = await asyncio.wait_for(self._body(request), self.limits.seconds)
        except asyncio.TimeoutError:
            raise RequestError(
                408, f"the request did not arrive within {self.limits.seconds:g} s."
            ) from None
        except ClientDisconnect:
            raise RequestError(400, "the request was cut off.") from None
        try:
            plain = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise RequestError(400, f"the body is not JSON: {error}.") from error
        return _checked_fields(plain, forms, default or {})

    async def _body(self, request: Request) -> bytes:
        parts, size = [], 0
        declared = request.headers.get("content-length", "0")
        async for part in request.stream():
            size += len(part)
            if max(size, int(declared)) > self.limits.body_bytes:
                raise RequestError(
                    413, f"a request has up to {self.limits.body_bytes:,} bytes; ask in parts."
                )
            parts.append(part)
        return b"".join(parts)


class _Watched:
    """An application behind a guard, whose answers are counted."""

    def __init__(self, app: ASGIApp, guard: ClientGuard, metrics: Metrics) -> None:
        self._app, self._guard, self._metrics = app, guard, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), 500

        async def counted(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        headers = {k.decode("latin-1"): v.decode("latin-1") for k, v in scope["headers"]}
        try:
            self._guard.check(scope["path"], headers)
        except RequestError as error:
            await _error(error.status, str(error))(scope, receive, counted)
        else:
            await self._app(scope, receive, counted)
        route = scope.get("mtm.route", UNKNOWN_ROUTE)
        self._metrics.answered(route, status, time.perf_counter() - began)


async def _no_route(request: Request, error: HTTPException) -> Response:
    method, path = request.method, request.url.path
    return _error(error.status_code, f"there is no {method} {path}; GET / says what is served.")


def _policy(run: Run, name: str, target: str | float) -> MaskedPolicy:
    if name not in ACTING_TASKS:  # planning would hold up everybody else
        raise ConfigError(unknown("policy", name, ACTING_TASKS))
    if name == "bc":
        if target != "auto":
            raise ConfigError("target is for rcbc and two_stage: cloning asks for no return.")
        return policies.behavior_cloning(run)
    if name == "two_stage":
        return policies.two_stage(run, target)
    return policies.return_conditioned(run, target)


def _checked_fields(
    plain: Any, forms: Mapping[str, Any], default: Mapping[str, Any]
) -> dict[str, Any]:
    """Those that are asked for, of the right types; raises a `DataError` if there are others."""
    if not isinstance(plain, dict):
        raise DataError(f"the body must be a JSON object, got {type(plain).__name__}.")
    for name in plain:
        if name not in forms:
            raise DataError(unknown("field", name, forms))
    found = {**default, **plain}
    for name, kinds in forms.items():
        if name not in found:
            raise DataError(f"the field {name!r} is missing.")
        if not isinstance(found[name], kinds):
            raise DataError(f"the field {name!r} cannot be {found[name]!r:.100}.")
    return found


def _with_gaps(m: Any, values: Any) -> Any:
    """JSON has no NaN: null is a gap, also among classes, which as numbers can have gaps."""
    if m.kind != "discrete":
        return values
    try:
        return np.asarray(values, np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(f"modality {m.name!r} must be numbers: {error}.") from error


def _numbers(what: str, values: list[Any], n: int) -> NDArray[np.float64]:
    try:
        found = np.asarray(values, np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(f"{what} must be numbers: {error}.") from error
    if found.shape != (n,) or not np.isfinite(found).all():
        raise DataError(f"{what} must be {n} finite numbers, got {values!r:.100}.")
    return found


def _json(plain: Mapping[str, Any], status: int = 200) -> Response:
    content = json.dumps(plain, allow_nan=False, separators=(",", ":"))
    return Response(content, status, media_type="application/json")


def _error(status: int, reason: str) -> Response:
    answer = _json({"error": reason}, status)
    if status == 401:
        answer.headers["WWW-Authenticate"] = "Bearer"
    if status in (429, 503):
        answer.headers["Retry-After"] = "1"
    return answer
