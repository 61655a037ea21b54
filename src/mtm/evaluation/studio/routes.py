"""What the page can ask, one function for each address; docs/guides/studio.md lists them.

Reading data happens in threads, asking a model in the thread of the models (see `turns`).
"""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from mtm import __version__
from mtm.evaluation.studio import episodes, questions, requests
from mtm.evaluation.studio.acting import MOST_EPISODES, ActingOrder, Job, Jobs
from mtm.evaluation.studio.answers import answer
from mtm.evaluation.studio.faults import bad_request
from mtm.evaluation.studio.quality import Quality
from mtm.evaluation.studio.requests import Fields, choice, text, whole
from mtm.evaluation.studio.run_summary import POLICIES, summaries
from mtm.evaluation.studio.turns import Turns
from mtm.evaluation.studio.workspace import Workspace

SIDES = ("all", "held-out", "training")
LISTED = 50
"""Episodes on a page, unless the request says so."""
MOST_POINTS = 2000
EVENT_SECONDS = 0.05
"""Between two looks for news of a job."""
HEARTBEAT_SECONDS = 5.0
"""After which a silent stream sends a comment, which shows a connection that is gone."""

WINDOW = ("run", "data", "episode", "start", "length")

Handler = Callable[[Request], Awaitable[Response]]


class Answering:
    """Everything that answers, with what it needs.

    Args:
        workspace: Runs and data.
    """

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.turns, self.jobs, self.quality = Turns(), Jobs(), Quality(workspace)
        self._runs = summaries(workspace)

    def close(self) -> None:
        """End what goes on in threads."""
        self.jobs.close()
        self.quality.close()
        self.turns.close()
        self.workspace.close()

    def routes(self) -> list[Route]:
        """The addresses."""
        get, post = ["GET"], ["POST"]
        return [
            Route("/api/studio", self.studio, methods=get),
            Route("/api/data", self.data, methods=get),
            Route("/api/episodes", self.episodes, methods=get),
            Route("/api/timeline", self.timeline, methods=get),
            Route("/api/window", self.window, methods=get),
            Route("/api/mask", self.mask, methods=post),
            Route("/api/answer", self.answer, methods=post),
            Route("/api/act", self.act, methods=post),
            Route("/api/act", self.newest, methods=get),
            Route("/api/act/{job:int}", self.acting, methods=get),
            Route("/api/act/{job:int}/events", self.acting_events, methods=get),
            Route("/api/act/{job:int}/cancel", self.cancel, methods=post),
            Route("/api/quality", self.rank, methods=post),
            Route("/api/quality", self.ranking, methods=get),
            Route("/api/surprise", self.surprise, methods=get),
        ]

    async def studio(self, _: Request) -> Response:
        """All runs and data sets."""
        limits = {
            "longest_window": episodes.LONGEST_WINDOW,
            "most_episodes": MOST_EPISODES,
            "page": episodes.MOST_LISTED,
        }
        data = [
            {"id": number, "name": source.name, "spec": source.spec}
            for number, source in enumerate(self.workspace.sources)
        ]
        return _json({"version": __version__, "limits": limits, "data": data, "runs": self._runs})

    async def data(self, request: Request) -> Response:
        """A data set, opened."""
        run, data = _run_and_data(requests.query(request))
        return await _in_thread(episodes.data_summary, self.workspace, run, data)

    async def episodes(self, request: Request) -> Response:
        """A page of the list of episodes."""
        fields = requests.query(request)
        run, data = _run_and_data(fields)
        offset = whole(fields, "offset", default=0)
        count = whole(fields, "count", 1, episodes.MOST_LISTED, LISTED)
        side = choice(fields, "side", SIDES, "all")
        return await _in_thread(
            episodes.list_episodes, self.workspace, run, data, offset, count, side
        )

    async def timeline(self, request: Request) -> Response:
        """An episode along its time."""
        fields = requests.query(request)
        run, data = _run_and_data(fields)
        points = whole(fields, "points", 10, MOST_POINTS, 600)
        return await _in_thread(
            episodes.timeline, self.workspace, run, data, whole(fields, "episode"), points
        )

    async def window(self, request: Request) -> Response:
        """The recorded values of a window."""
        fields = requests.window_of(requests.query(request))
        return await _in_thread(episodes.window, self.workspace, **fields)

    async def mask(self, request: Request) -> Response:
        """What a mask shows of a window."""
        fields = await requests.read_body(request, (*WINDOW, "mask", "now", "seed"))
        now = None if fields.get("now") is None else whole(fields, "now")
        return await _in_thread(
            questions.window_mask,
            self.workspace,
            **requests.window_of(fields),
            mask=text(fields, "mask"),
            now=now,
            seed=whole(fields, "seed", default=0),
        )

    async def answer(self, request: Request) -> Response:
        """What a run says of a window."""
        allowed = (*WINDOW, "visible", "edits", "client", "sequence")
        fields = await requests.read_body(request, allowed)
        asked = requests.asked_of(self.workspace, fields)
        client = text(fields, "client") if fields.get("client") is not None else None
        sequence = whole(fields, "sequence", default=0)
        place = (asked.run, asked.data, asked.episode)
        await run_in_threadpool(self.workspace.episode, *place)  # read before it takes its turn
        call = functools.partial(answer, self.workspace, asked)
        found = await self.turns.take(call, client, sequence)
        return _json({"sequence": sequence, **found})

    async def act(self, request: Request) -> Response:
        """Let a run act."""
        allowed = ("run", "policy", "target", "episodes", "seed", "frames")
        fields = await requests.read_body(request, allowed)
        frames = fields.get("frames", False)
        if not isinstance(frames, bool):
            raise bad_request("frames must be true or false.")
        run = whole(fields, "run")
        order = ActingOrder(
            self.workspace.run(run),
            run,
            self.workspace.env_id,
            choice(fields, "policy", POLICIES),
            _target(fields),
            whole(fields, "episodes", 1, MOST_EPISODES, 10),
            whole(fields, "seed", 0, 2**31, 0),
            frames,
        )
        job = await run_in_threadpool(self.jobs.start, order)
        return _json(job.about(), 202)

    async def newest(self, request: Request) -> Response:
        """What a run was last let do, so that a page that has been away can follow it again."""
        job = self.jobs.newest(whole(requests.query(request), "run"))
        return _json({"job": None} if job is None else job.about())

    async def acting(self, request: Request) -> Response:
        """How acting stands."""
        return _json(self.jobs.job(request.path_params["job"]).summary())

    async def acting_events(self, request: Request) -> Response:
        """What happens while a run acts, as it happens."""
        job = self.jobs.job(request.path_params["job"])
        seen = request.headers.get("last-event-id", "")
        first = int(seen) + 1 if seen.isascii() and seen.isdecimal() and len(seen) < 17 else 0
        return StreamingResponse(_events(job, first), media_type="text/event-stream")

    async def cancel(self, request: Request) -> Response:
        """End acting."""
        await requests.read_body(request, ())
        job = self.jobs.job(request.path_params["job"])
        job.cancel()
        return _json({"job": job.number, "state": job.state})

    async def rank(self, request: Request) -> Response:
        """Begin to rank the episodes."""
        run, data = _run_and_data(await requests.read_body(request, ("run", "data")))
        await run_in_threadpool(self.quality.start, run, data)
        return await _in_thread(self.quality.summary, run, data, 0, LISTED, status=202)

    async def ranking(self, request: Request) -> Response:
        """The episodes ranked so far."""
        fields = requests.query(request)
        run, data = _run_and_data(fields)
        offset = whole(fields, "offset", default=0)
        count = whole(fields, "count", 1, episodes.MOST_LISTED, LISTED)
        return await _in_thread(self.quality.summary, run, data, offset, count)

    async def surprise(self, request: Request) -> Response:
        """How surprising the steps of a stretch are."""
        fields = requests.window_of(requests.query(request))
        found = await self.turns.take(lambda check: self.quality.stretch(**fields))
        return _json(found)


async def _events(job: Job, first: int) -> AsyncIterator[str]:
    """The events of a job from a number on, then those to come, until it ends."""
    frame, silent = -1, 0.0
    while True:
        events = job.events[first:]
        for number, (kind, fields) in enumerate(events, first):
            yield f"id: {number}\nevent: {kind}\ndata: {json.dumps(fields)}\n\n"
            if kind == "end":
                return
        first += len(events)
        newest = job.frame
        if newest is not None and newest[0] > frame:
            frame = newest[0]
            yield f"event: frame\ndata: {json.dumps(newest[1])}\n\n"
        silent = 0.0 if events else silent + EVENT_SECONDS
        if silent >= HEARTBEAT_SECONDS:
            silent = 0.0
            yield ": still here\n\n"
        await asyncio.sleep(EVENT_SECONDS)


def _target(fields: Fields) -> str | float:
    """What to ask for: words, or a return."""
    target = fields.get("target", "auto")
    if isinstance(target, int | float) and not isinstance(target, bool):
        return float(target)
    return text(fields, "target", "auto")


def _run_and_data(fields: Fields) -> tuple[int, int]:
    return whole(fields, "run"), whole(fields, "data")


async def _in_thread(
    call: Callable[..., dict[str, Any]], *arguments: Any, status: int = 200, **named: Any
) -> Response:
    return _json(await run_in_threadpool(call, *arguments, **named), status)


def _json(content: dict[str, Any], status: int = 200) -> Response:
    return JSONResponse(content, status_code=status)
