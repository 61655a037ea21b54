"""Episodes ranked by surprise, in the background: what is found so far can be looked at."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np

from mtm.core.errors import MTMError
from mtm.evaluation.studio.episodes import side_of, window_slice
from mtm.evaluation.studio.faults import impossible
from mtm.evaluation.studio.turns import compute_alone
from mtm.evaluation.studio.workspace import Workspace
from mtm.inference.engine import Arrays
from mtm.inference.surprise import (
    SAMPLED_STEPS,
    EpisodeSurprise,
    measure_episodes,
    plan_segments,
    ranked,
    surprise_of_steps,
    usual_errors,
)

LOG = logging.getLogger("mtm.studio")


@dataclass
class _Ranking:
    """A ranking under way."""

    state: Literal["running", "done", "failed"] = "running"
    error: str | None = None
    planned: int = 0
    steps: int = 0
    episodes: list[EpisodeSurprise] = field(default_factory=list)


class Quality:
    """The rankings of a studio, one for each run and data set."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._rankings: dict[tuple[int, int], _Ranking] = {}
        self._usual: dict[tuple[int, int], Arrays] = {}
        self._thread = ThreadPoolExecutor(1, "mtm-studio-quality", initializer=compute_alone)
        self._closed = threading.Event()

    def close(self) -> None:
        """Stop what is under way."""
        self._closed.set()
        self._thread.shutdown(wait=True, cancel_futures=True)

    def start(self, run: int, data: int) -> None:
        """Begin to rank, unless it has been begun."""
        self._workspace.episode(run, data, 0)  # refuses data that do not fit
        if (run, data) not in self._rankings or self._rankings[run, data].state == "failed":
            ranking = self._rankings[run, data] = _Ranking()
            self._thread.submit(self._rank, run, data, ranking)

    def summary(self, run: int, data: int, offset: int, count: int) -> dict[str, Any]:
        """The most surprising episodes so far."""
        workspace = self._workspace
        own, dataset = workspace.is_own(run, data), workspace.data(data)
        ranking = self._rankings.get((run, data))
        if ranking is None:
            ranking, state = _Ranking(), "none"
        else:
            state = ranking.state
        held_out = workspace.held_out(run, data) if own else None
        episodes = ranked(list(ranking.episodes))
        done = len(episodes) / ranking.planned if ranking.planned else 0.0
        return {
            "state": state,
            "progress": 1.0 if state == "done" else done,
            "error": ranking.error,
            "steps": ranking.steps,
            "of_steps": dataset.num_steps,
            "total": len(episodes),
            "episodes": [
                {**asdict(e), "side": side_of(own, held_out, e.episode)}
                for e in episodes[offset : offset + count]
            ],
        }

    def stretch(self, run: int, data: int, episode: int, start: int, length: int) -> dict[str, Any]:
        """How surprising each step of a stretch of an episode is."""
        seen = self._workspace.episode(run, data, episode)
        steps = window_slice(int(seen.lengths[0]), start, length)
        model = self._workspace.run(run)
        try:
            usual = self._usual_errors(run, data)
            found = surprise_of_steps(model, seen, usual, steps.start, steps.stop)
        except MTMError as error:
            raise impossible(str(error)) from error
        return {
            "episode": episode,
            "start": start,
            "length": steps.stop - steps.start,
            "surprise": {
                name: [None if np.isnan(v) else float(v) for v in values]
                for name, values in found.items()
            },
        }

    def _usual_errors(self, run: int, data: int) -> Arrays:
        if (run, data) not in self._usual:
            model, dataset = self._workspace.run(run), self._workspace.data(data)
            self._usual[run, data] = usual_errors(model.to(model.device), dataset)
        return self._usual[run, data]

    def _rank(self, run: int, data: int, ranking: _Ranking) -> None:
        try:
            model, dataset = self._workspace.run(run), self._workspace.data(data)
            model = model.to(model.device)  # a copy: another thread asks the first
            usual = self._usual_errors(run, data)
            T = model.segment_length
            plan = plan_segments(dataset.lengths, T, SAMPLED_STEPS, seed=0)
            ranking.planned = len(plan)
            steps = {e: min(len(s) * T, int(dataset.lengths[e])) for e, s in plan}
            for episode in measure_episodes(model, dataset, usual, plan):
                if self._closed.is_set():
                    return
                ranking.episodes.append(episode)
                ranking.steps += steps[episode.episode]
            ranking.state = "done"
        except MTMError as error:
            ranking.state, ranking.error = "failed", str(error)
        except Exception as error:  # told on the page, in full in the log
            LOG.exception("ranking failed")
            ranking.state, ranking.error = "failed", f"{type(error).__name__}: {error}"
