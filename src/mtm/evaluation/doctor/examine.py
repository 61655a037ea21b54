"""`mtm.doctor`: the faults of a data set, and its episodes from the most suspicious one on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mtm.control.environments import action_bounds
from mtm.core.atomic_write import write_atomically
from mtm.core.errors import DataError
from mtm.core.progress import StepProgress, progress_console, silence
from mtm.core.reading import AS_IT_IS, Reading
from mtm.data.episode_checks import check_episodes, check_files
from mtm.data.faults import LEAVE_OUT, Fault
from mtm.data.leaving_out import LeftOut
from mtm.data.lint import lint
from mtm.data.loading import DataSpec, check_reading
from mtm.data.trajectories import TrajectoryDataset
from mtm.evaluation.doctor.evidence import Channel, channels_of
from mtm.evaluation.doctor.quick_model import QuickModel
from mtm.evaluation.doctor.reading import AS_TOLD, Readable, placed, read
from mtm.evaluation.doctor.run_evidence import run_channels
from mtm.runs.run import Run, load_run

LEAST_REASON = 3.0
"""A standing below is no reason."""
MOST_REASONS = 6
"""Of an episode that are told."""


@dataclass(frozen=True)
class EpisodeScore:
    """How suspicious an episode is.

    Attributes:
        episode: Its number in the data set.
        score: From 0 to 60. 1 is where the ninth of ten episodes stands; from 6 on it is better
            left out.
        reasons: Why, the strongest first, with the steps to look at.
    """

    episode: int
    score: float
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Diagnosis:
    """What `mtm.doctor` found.

    Attributes:
        faults: What is wrong by itself, each with its place and a cure.
        episodes: All of them, the most suspicious first.
        broken: Files of a directory that could not be read.
        reading: How the data were read.
        dataset: The data that could be read; None if nothing could.
        model: The quick model, if one was trained.
        channels: What each episode's score is the highest of, besides the faults.
    """

    faults: tuple[Fault, ...]
    episodes: tuple[EpisodeScore, ...]
    broken: tuple[str, ...] = ()
    reading: Reading = AS_IT_IS
    dataset: TrajectoryDataset | None = field(default=None, repr=False)
    model: QuickModel | None = field(default=None, repr=False)
    channels: tuple[Channel, ...] = field(default=(), repr=False)

    @property
    def suspects(self) -> tuple[EpisodeScore, ...]:
        """Episodes that are better left out."""
        return tuple(episode for episode in self.episodes if episode.score >= LEAVE_OUT)

    @property
    def left_out(self) -> LeftOut:
        """The suspects and the broken files, as a list that `mtm data convert --without` takes."""
        suspects = sorted(episode.episode for episode in self.suspects)
        return LeftOut(tuple(suspects), len(self.episodes), self.broken)

    def cleaned(self) -> TrajectoryDataset:
        """A view of the data without the suspects.

        Raises:
            DataError: Nothing is left.
        """
        kept = sorted(e.episode for e in self.episodes if e.score < LEAVE_OUT)
        if self.dataset is None or not kept:
            raise DataError(f"all {len(self.episodes):,} episodes are suspicious; none is left.")
        return self.dataset.subset(kept)

    def surprise(self, episode: int) -> dict[str, np.ndarray]:
        """How surprising each step of an episode is to the quick model, (S,) by modality.

        It is the mean over the modality's numbers of squared errors over usual ones, about 1 as a
        rule; NaN where nothing was asked: in the last step, and where the modality is absent.

        Raises:
            DataError: There is no such episode, or no model was trained.
        """
        if self.dataset is None or self.model is None:
            raise DataError("no model was trained: call mtm.doctor with model=True.")
        if not 0 <= episode < self.dataset.num_episodes:
            raise DataError(
                f"there is no episode {episode}; the data have 0 to {len(self.episodes) - 1}."
            )
        length = int(self.dataset.lengths[episode])
        found: dict[str, np.ndarray] = {}
        for answered in next(self.model.answers(np.array([episode]))):
            for name in dict.fromkeys(column.modality for column in answered.columns):
                mine = [k for k, column in enumerate(answered.columns) if column.modality == name]
                steps = found.setdefault(name, np.full(length, np.nan))
                told = answered.squares[:, mine].mean(axis=1)
                steps[answered.steps[~np.isnan(told)]] = told[~np.isnan(told)]
        return found

    def to_json(self) -> dict[str, Any]:
        """Plain data: `faults`, and `episodes` with `episode`, `score` and `reasons`."""
        return {
            "faults": [fault.to_json() for fault in self.faults],
            "episodes": [
                {"episode": e.episode, "score": e.score, "reasons": list(e.reasons)}
                for e in self.episodes
            ],
        }

    def write_json(self, file: Path) -> None:
        """Write `to_json`.

        Raises:
            RunError: It could not be written.
        """
        write_atomically(file, (json.dumps(self.to_json(), indent=1) + "\n").encode())


def doctor(
    data: DataSpec | TrajectoryDataset,
    run: Run | str | Path | None = None,
    *,
    reading: Reading = AS_IT_IS,
    model: bool = True,
    seed: int = 0,
    silent: bool = False,
) -> Diagnosis:
    """Look for faults in a data set, and rank its episodes by how suspicious they are.

    Checks of the numbers find what is wrong by itself: stuck sensors, jumps, other units, clocks
    that stand still, copies. A quick model of the data finds what does not fit the rest: small
    networks that learn forward and inverse dynamics of one half of the episodes, and are asked
    about the other. Nothing is changed.

    Args:
        data: A data set, or what names one. Files of a directory that cannot be read are told.
        run: A trained run, whose surprise counts as well.
        reading: Names of columns, roles and gaps, where they are the user's own.
        model: Train the quick model; without it only the checks and the run are asked.
        seed: Of the quick model.
        silent: Show nothing.

    Returns:
        What was found. Data of which nothing can be read have faults and no episodes.

    Raises:
        DataError: The data do not fit the run.
        ConfigError: The run is a perceptron.
        RunError: There is no such run.
    """
    if isinstance(data, TrajectoryDataset):
        check_reading(data, reading)
        found = Readable(data, (), (), (), reading)
    else:
        found = read(data, reading)
    if run is not None and not isinstance(run, Run):
        run = load_run(run)
    if found.dataset is None:
        return Diagnosis(found.faults, (), found.broken, found.reading)
    dataset = found.dataset
    faults = placed([*found.faults, *check_episodes(dataset)], found.files)
    faults += check_files(dataset, found.files)
    faults += [Fault("odd", text, AS_TOLD) for text in lint(dataset, action_bounds)]
    faults.sort(key=lambda fault: -fault.weight)
    with silence(silent):
        quick, channels = _ask_models(dataset, run, model, seed)
    episodes = _ranked(dataset.num_episodes, faults, channels, found.files)
    return Diagnosis(
        tuple(faults), episodes, found.broken, found.reading, dataset, quick, tuple(channels)
    )


def _ask_models(
    dataset: TrajectoryDataset, run: Run | None, model: bool, seed: int
) -> tuple[QuickModel | None, list[Channel]]:
    """The quick model, and what it and the run find."""
    quick, channels, episodes = None, [], dataset.num_episodes
    if model and dataset.lengths.max() > 1 and episodes > 1:
        quick = QuickModel(dataset, seed)
        total = quick.updates
        with StepProgress("learning", total, 0, progress_console(stderr=True)) as progress:
            quick.learn(progress.at)
        with StepProgress("looking", episodes, 0, progress_console(stderr=True)) as progress:
            channels += channels_of(quick, episodes, progress.at)
    if run is not None:
        with StepProgress("asking", episodes, 0, progress_console(stderr=True)) as progress:
            channels += run_channels(run, dataset, seed, progress.at)
    return quick, channels


def _ranked(
    count: int, faults: Sequence[Fault], channels: Sequence[Channel], files: Sequence[str]
) -> tuple[EpisodeScore, ...]:
    """Episodes by the heaviest of what speaks against them."""
    against: list[list[tuple[float, str]]] = [[] for _ in range(count)]
    for fault in faults:
        if not fault.weight:
            continue
        if fault.episode is not None:
            here = [fault.episode]
        else:  # of a file, or of all
            here = [
                e for e in range(count) if fault.file is None or files[e : e + 1] == (fault.file,)
            ]
        column = f"{fault.modality}[{fault.feature}]: " if fault.feature is not None else ""
        place = "" if fault.step is None else f", see step {fault.step}"
        for e in here:
            text = f"{column}{fault.check} ({fault.weight:.1f}){place}"
            against[e].append((fault.weight, text))
    scores = np.zeros(count)
    for channel in channels:
        scores = np.maximum(scores, channel.standing)
        for e in np.flatnonzero(channel.standing >= LEAST_REASON).tolist():
            text = (
                f"{channel.subject}: {channel.what} ({channel.standing[e]:.1f}), see step "
                f"{channel.step[e]}"
            )
            against[e].append((float(channel.standing[e]), text))
    found = []
    for e, reasons in enumerate(against):
        reasons.sort(key=lambda reason: -reason[0])
        score = max(float(scores[e]), *(weight for weight, _ in reasons), 0.0)
        told = tuple(text for _, text in reasons[:MOST_REASONS])
        found.append(EpisodeScore(e, round(score, 4), told))
    return tuple(sorted(found, key=lambda episode: (-episode.score, episode.episode)))
