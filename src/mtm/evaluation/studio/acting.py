"""A run acting in its environment while the page looks on: returns as they arrive, and frames."""

from __future__ import annotations

import base64
import io
import logging
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from mtm.control import policies
from mtm.control.policies import MaskedPolicy, PlanningPolicy
from mtm.control.rendering import why_no_frames
from mtm.control.return_targets import TargetSpec, episode_return
from mtm.control.rollout import Outcome, rollout
from mtm.control.scores import score
from mtm.core.errors import MTMError, require
from mtm.data.environment_ids import check_environment
from mtm.evaluation.studio.faults import StudioError, impossible, not_found
from mtm.evaluation.studio.run_summary import environment_of
from mtm.evaluation.studio.turns import compute_alone
from mtm.runs.run import Run

MOST_EPISODES = 100
PROGRESS_SECONDS, FRAME_SECONDS = 0.25, 0.2
"""Between two reports of each kind."""
LARGEST_SIDE = 320
"""Pixels of a frame."""
REMEMBERED_JOBS = 8

State = Literal["running", "done", "cancelled", "failed"]

LOG = logging.getLogger("mtm.studio")


@dataclass(frozen=True)
class ActingOrder:
    """What to do.

    Attributes:
        run: Acts.
        number: Of the run, among those of the studio.
        env_id: Where to act, if the user named an environment.
        policy: `bc`, `rcbc`, `two_stage` or `plan`.
        target: The return to ask for; see `mtm.control.return_targets`.
        episodes: How many.
        seed: Episode e begins with seed + e.
        frames: Whether to draw the first episode.
    """

    run: Run
    number: int
    env_id: str | None
    policy: str
    target: TargetSpec
    episodes: int
    seed: int
    frames: bool


class _CancelledError(Exception):
    """The page wants no more."""


class Job:
    """Episodes under way. `events` grows; the newest frame is kept apart, as (number, event)."""

    def __init__(self, number: int, order: ActingOrder) -> None:
        env_id, problem = environment_of(order.run, order.env_id)
        if env_id is None or problem is not None:
            raise impossible(problem or "there is no environment.")
        self.number, self.order, self.env_id = number, order, env_id
        self.notices: list[str] = []
        self._run = order.run.to(order.run.device)  # a copy: another thread asks the first
        self._policy = self._make_policy()
        self.asked = _asked_return(self._run, self._policy)
        self.state: State = "running"
        self.error: str | None = None
        self.frames_problem: str | None = None
        self.finished, self.step = 0, 0
        self.results: list[dict[str, Any]] = []
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.frame: tuple[int, dict[str, Any]] | None = None
        self._cancelled = threading.Event()
        self._reported = self._next_frame = 0.0
        self._thread = threading.Thread(target=self._work, name="mtm-studio-acting", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def cancel(self) -> None:
        """End soon."""
        self._cancelled.set()

    def wait(self, seconds: float) -> None:
        """Until it has ended, or so long."""
        self._thread.join(seconds)

    def about(self) -> dict[str, Any]:
        """What was ordered."""
        return {
            "job": self.number,
            "run": self.order.number,
            "environment": self.env_id,
            "policy": self.order.policy,
            "target": self.asked,
            "episodes": self.order.episodes,
            "seed": self.order.seed,
            "notices": self.notices,
        }

    def summary(self) -> dict[str, Any]:
        """How it stands."""
        return {
            **self.about(),
            "state": self.state,
            "error": self.error,
            "finished": self.finished,
            "step": self.step,
            "results": list(self.results),
            "frames_problem": self.frames_problem,
        }

    def _make_policy(self) -> MaskedPolicy | PlanningPolicy:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            check_environment(self._run.description.metadata, self.env_id)
            try:
                policy = make_policy(self._run, self.order.policy, self.order.target)
            except MTMError as error:
                raise impossible(str(error)) from error
        self.notices = [str(w.message) for w in caught]
        return policy

    def _work(self) -> None:
        compute_alone()
        try:
            watch = self._see if self.order.frames and self._can_draw() else None
            rollout(
                {self.order.policy: self._policy},
                self.env_id,
                episodes=self.order.episodes,
                seed=self.order.seed,
                progress=self._progress,
                watch=watch,
                arrival=self._arrive,
            )
            self.state = "done"
        except _CancelledError:
            self.state = "cancelled"
        except MTMError as error:
            self.state, self.error = "failed", str(error)
        except Exception as error:  # of a simulator: told on the page, in full in the log
            LOG.exception("acting failed")
            self.state, self.error = "failed", f"{type(error).__name__}: {error}"
        returns = [r["return"] for r in self.results if r["failure"] is None]
        self._say(
            "end",
            state=self.state,
            error=self.error,
            mean=float(np.mean(returns)) if returns else None,
            std=float(np.std(returns)) if returns else None,
        )

    def _can_draw(self) -> bool:
        try:
            require("PIL.Image", extra="studio")
            self.frames_problem = why_no_frames(self.env_id)
        except MTMError as error:
            self.frames_problem = str(error)
        self._say("frames", problem=self.frames_problem)
        return self.frames_problem is None

    def _progress(self, finished: int, episodes: int) -> None:
        if self._cancelled.is_set():
            raise _CancelledError
        self.finished, now = finished, time.monotonic()
        if now - self._reported >= PROGRESS_SECONDS:
            self._reported = now
            self._say("progress", finished=finished, episodes=episodes, step=self.step)
        self.step += 1

    def _arrive(self, _: str, outcome: Outcome) -> None:
        points = score(self.env_id, outcome.total)
        failure = outcome.failure
        result = {
            "seed": outcome.seed,
            "return": outcome.total,
            "score": None if points is None else float(points),
            "length": outcome.length,
            "success": None if outcome.success < 0 else outcome.success > 0,
            "failure": None if failure is None else failure.error,
            "asked": self.asked,
        }
        self.results.append(result)
        self._say("episode", **result)

    def _see(self, step: int, draw: Callable[[], Any]) -> None:
        began = time.monotonic()
        if began < self._next_frame:
            return
        number = 0 if self.frame is None else self.frame[0] + 1
        self.frame = (number, {"step": step, "image": png(draw())})
        ended = time.monotonic()
        # Without a graphics card a frame may take seconds: at most half of the time goes to them.
        self._next_frame = max(began + FRAME_SECONDS, ended + (ended - began))

    def _say(self, kind: str, **fields: Any) -> None:
        self.events.append((kind, fields))


class Jobs:
    """The jobs of a studio, one at a time."""

    def __init__(self) -> None:
        self._jobs: dict[int, Job] = {}
        self._count = 0
        self._lock = threading.Lock()

    def start(self, order: ActingOrder) -> Job:
        """Begin a job.

        Raises:
            StudioError: Another is under way, or the run cannot act so.
        """
        with self._lock:
            for job in self._jobs.values():
                if job.state == "running":
                    name = job.order.run.path.resolve().name
                    text = f"{name} is acting already; wait for it, or stop it in its view Act."
                    raise StudioError(409, "busy", text)
            self._count += 1
            job = self._jobs[self._count] = Job(self._count, order)
            for number in list(self._jobs)[:-REMEMBERED_JOBS]:
                del self._jobs[number]
            job.start()
            return job

    def job(self, number: int) -> Job:
        """A job.

        Raises:
            StudioError: There is none of that number.
        """
        if number not in self._jobs:
            raise not_found(f"there is no acting of the number {number} any more; start it again.")
        return self._jobs[number]

    def newest(self, run: int) -> Job | None:
        """The latest job of a run, under way or not, for a page that has been away."""
        mine = [job for job in list(self._jobs.values()) if job.order.number == run]
        return mine[-1] if mine else None

    def close(self, seconds: float = 2.0) -> None:
        """Cancel what is under way, and wait for it a little."""
        for job in self._jobs.values():
            job.cancel()
        for job in self._jobs.values():
            job.wait(seconds)


def make_policy(run: Run, name: str, target: TargetSpec) -> MaskedPolicy | PlanningPolicy:
    """A way to act, by its name.

    Raises:
        ConfigError: The run cannot act so, or the target cannot be understood.
    """
    if name == "bc" or (name == "plan" and not run.modalities.of_role("return")):
        plain = policies.behavior_cloning(run)
    elif name == "two_stage":
        return policies.two_stage(run, target)
    else:
        plain = policies.return_conditioned(run, target)
    return policies.planning(run, plain) if name == "plan" else plain


def png(frame: Any) -> str:
    """A frame, (height, width, 3), as an address that holds its picture."""
    image = require("PIL.Image", extra="studio").fromarray(frame)
    image.thumbnail((LARGEST_SIDE, LARGEST_SIDE))
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def _asked_return(run: Run, policy: MaskedPolicy | PlanningPolicy) -> float | None:
    """The episode return that a policy asks for, if any."""
    plain = policy.plain if isinstance(policy, PlanningPolicy) else policy
    target = plain.ways[0].target
    return None if target is None else episode_return(run, target)
