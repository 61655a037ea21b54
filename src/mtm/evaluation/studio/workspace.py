"""The runs and data sets that a studio shows. A browser names them by number, never by a path.

Data sets are opened when they are first looked at: a store at once, whatever its size.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as LateError
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from mtm.core.errors import MTMError, RunError
from mtm.core.reading import Reading
from mtm.data import loading
from mtm.data.environment_ids import EnvironmentMismatchError, check_environment
from mtm.data.loading import DataSpec
from mtm.data.modalities import BoolArray
from mtm.data.trajectories import TrajectoryDataset
from mtm.evaluation.studio.faults import impossible, not_found
from mtm.inference.run_data import episode_shown_to, is_held_out, is_own
from mtm.runs.run import Run, load_run

PATIENCE = 0.5
"""Seconds to wait for which episodes were held out; data with gaps may need longer."""

REMEMBERED_EPISODES = 16


@dataclass(frozen=True)
class Source:
    """A data set by name: what loads it."""

    spec: str
    reading: Reading

    @property
    def name(self) -> str:
        """For people."""
        return loading.short(self.spec)


class Workspace:
    """Runs and data sets by number.

    Args:
        runs: At least one.
        data: A data set to look at; it comes beside those that the runs were trained on.
        env_id: An environment that the user named, for the runs whose data can be of it.

    Attributes:
        runs: The runs.
        sources: The data sets; `own[r]` is the number of the one that run r was trained on.

    Raises:
        RunError: There is no run.
        EnvironmentMismatchError: The environment is that of no run.
    """

    def __init__(
        self, runs: Sequence[Run], data: DataSpec | None = None, env_id: str | None = None
    ) -> None:
        if not runs:
            raise RunError("there is no run to show. `mtm train` or `mtm demo` makes one.")
        self.runs, self.env_id = tuple(runs), env_id
        if env_id is not None:
            _check_named(self.runs, env_id)
        first = runs[0].description.train.reading
        sources = [] if data is None else [Source(loading.absolute(data), first)]
        self.own: list[int] = []
        for run in runs:
            source = Source(run.description.data["spec"], run.description.train.reading)
            if source not in sources:
                sources.append(source)
            self.own.append(sources.index(source))
        self.sources = tuple(sources)
        self._opened: dict[int, TrajectoryDataset] = {}
        self._opening = [threading.Lock() for _ in sources]
        self._splits: dict[tuple[int, int], Future[BoolArray]] = {}
        self._thread = ThreadPoolExecutor(1, "mtm-studio-split")
        self._episode = lru_cache(REMEMBERED_EPISODES)(self._read_episode)

    def close(self) -> None:
        """Let go of the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def run(self, number: int) -> Run:
        """A run.

        Raises:
            StudioError: There is none of that number.
        """
        if not 0 <= number < len(self.runs):
            raise not_found(f"there is no run {number}; there are 0 to {len(self.runs) - 1}.")
        return self.runs[number]

    def data(self, number: int) -> TrajectoryDataset:
        """A data set, opened if it has not been.

        Raises:
            StudioError: There is none of that number, or it cannot be loaded.
        """
        if not 0 <= number < len(self.sources):
            raise not_found(
                f"there is no data set {number}; there are 0 to {len(self.sources) - 1}."
            )
        with self._opening[number]:
            if number not in self._opened:
                source = self.sources[number]
                try:
                    self._opened[number] = loading.load_again(source.spec, source.reading)
                except MTMError as error:
                    raise impossible(str(error)) from error
            return self._opened[number]

    def is_own(self, run: int, data: int) -> bool:
        """Whether a run was trained on a data set."""
        return is_own(self.run(run), self.data(data))

    def lacking(self, run: int, data: int) -> list[str]:
        """The modalities of a run that a data set has nowhere.

        Raises:
            StudioError: The data do not fit the run.
        """
        alone = self.episode(run, data, 0)
        return [name for name in self.run(run).modalities.names if name not in alone.names]

    def episode(self, run: int, data: int, episode: int) -> TrajectoryDataset:
        """One episode as a run sees it.

        Raises:
            StudioError: There is none of that number, or the data do not fit the run.
        """
        return self._episode(run, data, episode)

    def held_out(self, run: int, data: int) -> BoolArray | None:
        """Which episodes a run held out, (E,); None while that is being found out.

        Nothing is held out of a data set that is not the run's.
        """
        key = (run, data)
        if key not in self._splits:
            self._splits[key] = self._thread.submit(is_held_out, self.run(run), self.data(data))
        try:
            return self._splits[key].result(PATIENCE)
        except LateError:
            return None

    def _read_episode(self, run: int, data: int, episode: int) -> TrajectoryDataset:
        model, dataset = self.run(run), self.data(data)
        if not 0 <= episode < dataset.num_episodes:
            last = dataset.num_episodes - 1
            raise not_found(f"there is no episode {episode}; there are 0 to {last}.")
        try:
            return episode_shown_to(model, dataset, episode)
        except MTMError as error:
            raise impossible(str(error)) from error


def open_runs(paths: Sequence[Path], device: str = "cpu") -> list[Run]:
    """Load the runs that are named; of none, those in `runs/` that can be loaded, newest first.

    Raises:
        RunError: One of the named cannot be read, or there is none.
    """
    if paths:
        return [load_run(path, device=device) for path in paths]
    found = sorted(Path("runs").glob("*/config.json"), key=lambda p: -p.stat().st_mtime)
    runs = []
    for file in found[:MOST_FOUND]:
        try:
            runs.append(load_run(file.parent, device=device))
        except RunError:
            continue  # an agent, or a training that has saved nothing yet
    if not runs:
        raise RunError(
            "no run is named, and there is none in the folder runs/. Name one (mtm studio RUN), or "
            "make one: `mtm demo` takes minutes."
        )
    return runs


def _check_named(runs: Sequence[Run], env_id: str) -> None:
    """Raise `EnvironmentMismatchError` unless the data of some run can be of the environment."""
    faults = []
    for run in runs:
        try:
            return check_environment(run.description.metadata, env_id)
        except EnvironmentMismatchError as fault:
            faults.append(fault)
    raise faults[0]


MOST_FOUND = 8
"""Runs that are shown where none is named."""
