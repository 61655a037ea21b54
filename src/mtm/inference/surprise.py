"""How surprising recorded values are to a model that sees what stands around them.

Each token is hidden and predicted from the others of its segment. Its squared error over the error
that is expected there is its surprise: about 1 as a rule, far more where the recording disagrees
with itself, as a shifted column or a stuck sensor does. What is expected is what the model states,
corrected by what is found on a sample of the same data, of which the largest part is not counted:
a few faulty episodes do not make their own faults usual.

Letters: B segments, T steps, M modalities.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mtm.core.errors import ConfigError
from mtm.core.randomness import Purpose, generator
from mtm.data.modalities import BoolArray, IntArray, Modality
from mtm.data.trajectories import TrajectoryDataset
from mtm.inference.engine import Arrays, ask_with_certainty, dtype_of
from mtm.inference.run_data import episode_shown_to
from mtm.runs.run import Run

Floats = NDArray[np.float64]

SAMPLED_STEPS = 50_000
"""Steps that are looked at; of more, segments spread over the episodes."""
HIDDEN_EVERY = 4
"""Of a modality, every so many steps are hidden at once: the rest tells enough about each."""
SEGMENTS_AT_ONCE = 256
CALIBRATION_SEGMENTS, CALIBRATION_EPISODES = 512, 128
"""What usual errors are measured on, at most."""
UNCOUNTED = 0.1
"""The share of the largest errors that do not count as usual."""
FEWEST_SEGMENTS = 2
"""Of an episode that is looked at, where it has as many."""
WORST_SHARE, FEWEST_WORST = 0.1, 3
"""The tokens that an episode's surprise is a mean of: its most surprising ones."""
LISTED_STEPS = 5
"""Of an episode, to look at first."""
LARGEST = 1e4
"""Surprise is cut off here."""
SMALLEST_DEVIATION = 1e-3
"""Expected at least, in units of the training data's standard deviation."""
SMALLEST_ENTROPY = 0.05
"""Expected at least of a class, in nats."""
SMALLEST_SHARE = 1e-6
"""A class is held for as likely at least."""


@dataclass(frozen=True)
class StepSurprise:
    """One token."""

    step: int
    modality: str
    surprise: float


@dataclass(frozen=True)
class EpisodeSurprise:
    """One episode.

    Attributes:
        episode: Its number.
        surprise: That of its most surprising modality.
        modalities: That of each; those that the episode lacks are left out. About 1 is usual.
        worst: Its most surprising steps, the most surprising first.
    """

    episode: int
    surprise: float
    modalities: dict[str, float]
    worst: tuple[StepSurprise, ...]


def rank_episodes(
    run: Run,
    dataset: TrajectoryDataset,
    *,
    steps: int = SAMPLED_STEPS,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
) -> list[EpisodeSurprise]:
    """The episodes of a data set, the most surprising first.

    Args:
        run: A trained run.
        dataset: Data with some modalities of the run: its own, or others.
        steps: To look at, about; of more, segments are drawn, and of very many episodes too.
        seed: Draws.
        progress: Told which share is done.

    Raises:
        ConfigError: The run is a perceptron, which is trained for one question only.
        DataError: The data do not fit the model.
    """
    usual = usual_errors(run, dataset, seed=seed)
    plan = plan_segments(dataset.lengths, run.segment_length, steps, seed)
    found = []
    for episode in measure_episodes(run, dataset, usual, plan):
        found.append(episode)
        if progress is not None:
            progress(len(found) / len(plan))
    return ranked(found)


def usual_errors(run: Run, dataset: TrajectoryDataset, *, seed: int = 0) -> Arrays:
    """Modality -> how far off numbers usually are over what the model states, (T, size).

    Raises:
        ConfigError: The run is a perceptron.
        DataError: The data do not fit the model.
    """
    if run.model.config.network == "mlp":
        raise ConfigError(
            f"the network of {run.path} is a perceptron, which is trained for one question only. "
            "How surprising data are is asked of a transformer."
        )
    rng = generator(seed, Purpose.VALIDATION)
    count = min(dataset.num_episodes, CALIBRATION_EPISODES)
    episodes = np.sort(rng.choice(dataset.num_episodes, count, replace=False))
    plan = plan_segments(
        dataset.lengths[episodes],
        run.segment_length,
        CALIBRATION_SEGMENTS * run.segment_length,
        seed,
    )
    windows = [
        _cut(run, episode_shown_to(run, dataset, int(episodes[e])), starts) for e, starts in plan
    ]
    ratios = error_ratios(run, *_joined(windows))
    return {name: _usual(ratio) for name, ratio in ratios.items()}


def plan_segments(
    lengths: IntArray, segment_length: int, steps: int, seed: int
) -> list[tuple[int, IntArray]]:
    """The episodes to look at, in random order, and where their segments begin.

    All, side by side, if they have no more than so many steps together.
    """
    rng = generator(seed, Purpose.SEGMENTS)
    slots = -(-lengths // segment_length)
    total, most = int(slots.sum()), max(steps // segment_length, 1)
    share = min(most / total, 1.0)
    plan, taken = [], 0
    for episode in rng.permutation(len(lengths)):
        if taken >= most:
            break
        count = min(max(round(share * slots[episode]), FEWEST_SEGMENTS), int(slots[episode]))
        chosen = np.sort(rng.choice(slots[episode], count, replace=False))
        last = max(int(lengths[episode]) - segment_length, 0)
        plan.append((int(episode), np.minimum(chosen * segment_length, last)))
        taken += count
    return plan


def measure_episodes(
    run: Run,
    dataset: TrajectoryDataset,
    usual: Arrays,
    plan: Iterable[tuple[int, IntArray]],
) -> Iterator[EpisodeSurprise]:
    """Each planned episode, before they are compared with each other (see `ranked`)."""
    waiting: list[tuple[int, IntArray, tuple[Arrays, BoolArray]]] = []
    for episode, starts in plan:
        alone = episode_shown_to(run, dataset, episode)
        waiting.append((episode, starts, _cut(run, alone, starts)))
        if sum(len(starts) for _, starts, _ in waiting) >= SEGMENTS_AT_ONCE:
            yield from _measured(run, usual, waiting)
            waiting = []
    if waiting:
        yield from _measured(run, usual, waiting)


def ranked(episodes: Iterable[EpisodeSurprise]) -> list[EpisodeSurprise]:
    """Episodes in units of what is usual among them, the most surprising first."""
    measured = list(episodes)
    values: dict[str, list[float]] = {}
    for episode in measured:
        for name, value in episode.modalities.items():
            values.setdefault(name, []).append(value)
    middle = {name: max(float(np.median(found)), 1e-9) for name, found in values.items()}
    scaled = []
    for episode in measured:
        modalities = {name: value / middle[name] for name, value in episode.modalities.items()}
        most = max(modalities.values(), default=0.0)
        scaled.append(replace(episode, modalities=modalities, surprise=most))
    return sorted(scaled, key=lambda episode: (-episode.surprise, episode.episode))


def surprise_of_steps(
    run: Run, episode: TrajectoryDataset, usual: Arrays, start: int, stop: int
) -> dict[str, Floats]:
    """How surprising the steps from start to stop are: modality -> (S,), NaN where it is absent.

    Args:
        run: A trained run.
        episode: As `mtm.inference.run_data.episode_shown_to` gives it.
        usual: As `usual_errors` gives it.
        start: First step.
        stop: One past the last, within the episode.
    """
    T = run.segment_length
    last = max(int(episode.lengths[0]) - T, 0)
    starts = np.minimum(np.arange(start, stop, T), last)
    found = surprise_of_segments(run, *_cut(run, episode, starts), usual)  # (B, T, M)
    steps = {m.name: np.full(stop - start, np.nan) for m in run.modalities}
    for begin, segment in zip(starts.tolist(), found, strict=True):
        first, end = max(begin, start), min(begin + T, stop)
        for i, m in enumerate(run.modalities):
            steps[m.name][first - start : end - start] = segment[first - begin : end - begin, i]
    return steps


def surprise_of_segments(run: Run, values: Arrays, known: BoolArray, usual: Arrays) -> Floats:
    """How surprising each token of some segments is, (B, T, M), NaN where it is absent."""
    found = np.full(known.shape, np.nan)
    for name, ratios in error_ratios(run, values, known).items():
        scaled = np.minimum(ratios / usual[name], LARGEST)
        found[:, :, run.modalities.place(name)] = scaled.mean(axis=2)
    return found


def error_ratios(run: Run, values: Arrays, known: BoolArray) -> dict[str, Floats]:
    """Squared errors of hidden tokens over those that the model states.

    Args:
        run: A trained run.
        values: Modality -> (B, T, *shape).
        known: (B, T, M).

    Returns:
        Modality -> (B, T, size), NaN where it is absent, or nothing else is there to tell it from.
    """
    T = run.segment_length
    found = {}
    for i, m in enumerate(run.modalities):
        if m.name not in values:
            continue
        size = 1 if m.kind == "discrete" else m.size
        found[m.name] = np.full((*known.shape[:2], size), np.nan)
        for phase in range(min(HIDDEN_EVERY, T)):
            wanted = np.zeros_like(known)
            wanted[:, phase::HIDDEN_EVERY, i] = known[:, phase::HIDDEN_EVERY, i]
            visible = known & ~wanted
            rows = np.flatnonzero(wanted.any(axis=(1, 2)) & visible.any(axis=(1, 2)))
            if not len(rows):
                continue
            window = {name: array[rows] for name, array in values.items()}
            said = ask_with_certainty(run, window, visible[rows], [m.name], wanted[rows])
            ratio = _ratio(run, m, said[0][m.name], said[1][m.name], window[m.name])
            hidden = wanted[rows][:, :, i]
            place = np.nonzero(hidden)
            found[m.name][rows[place[0]], place[1]] = ratio[hidden]
    return found


def _ratio(
    run: Run, m: Modality, answer: NDArray[Any], certainty: NDArray[Any], truth: NDArray[Any]
) -> Floats:
    """Squared errors over stated ones, (B, T, size); of classes in nats."""
    B, T = truth.shape[:2]
    if m.kind == "discrete":
        shares = np.clip(certainty.astype(np.float64), SMALLEST_SHARE, 1)
        entropy = -(shares * np.log(shares)).sum(axis=2, keepdims=True)
        told = np.take_along_axis(shares, truth[:, :, None].astype(np.int64), axis=2)
        return np.asarray(-np.log(told) / (entropy + SMALLEST_ENTROPY))
    std = run.normalizer.statistics[m.name].std.astype(np.float64)
    deviation = np.where(np.isnan(certainty), std, certainty)
    deviation = np.maximum(deviation, SMALLEST_DEVIATION * std)
    return np.asarray((((answer - truth) / deviation) ** 2).reshape(B, T, m.size))


def _usual(ratios: Floats) -> Floats:
    """The mean without the largest ones, (B, T, size) to (T, size); 1 where nothing was found."""
    found = np.ones(ratios.shape[1:])
    for t in range(ratios.shape[1]):
        here = ratios[:, t][~np.isnan(ratios[:, t]).any(axis=1)]
        if len(here):
            kept = np.sort(here, axis=0)[: max(round(len(here) * (1 - UNCOUNTED)), 1)]
            found[t] = np.maximum(kept.mean(axis=0), SMALLEST_DEVIATION)
    return found


def _cut(run: Run, episode: TrajectoryDataset, starts: IntArray) -> tuple[Arrays, BoolArray]:
    """Segments of one episode, padded at the end: modality -> (B, T, *shape), and (B, T, M)."""
    T, length = run.segment_length, int(episode.lengths[0])
    steps = starts[:, None] + np.arange(T)  # (B, T)
    inside = steps < length
    steps = np.minimum(steps, length - 1)
    values, known = {}, np.zeros((*steps.shape, len(run.modalities)), bool)
    for m in run.modalities:
        if m.name not in episode.names:
            values[m.name] = np.zeros((*steps.shape, *m.shape), dtype_of(m))
            continue
        here = inside & episode.known(m.name)[steps]
        known[:, :, run.modalities.place(m.name)] = here
        wide = here.reshape(*here.shape, *[1] * len(m.shape))
        values[m.name] = np.where(wide, episode.arrays[m.name][steps], 0).astype(dtype_of(m))
    return values, known


def _joined(parts: list[tuple[Arrays, BoolArray]]) -> tuple[Arrays, BoolArray]:
    """Segments of several episodes as one batch."""
    values = {name: np.concatenate([part[0][name] for part in parts]) for name in parts[0][0]}
    return values, np.concatenate([known for _, known in parts])


def _measured(
    run: Run, usual: Arrays, waiting: list[tuple[int, IntArray, tuple[Arrays, BoolArray]]]
) -> Iterator[EpisodeSurprise]:
    """Several episodes in one pass."""
    tokens = surprise_of_segments(run, *_joined([part for _, _, part in waiting]), usual)
    edges = np.cumsum([len(starts) for _, starts, _ in waiting])[:-1]
    for (episode, starts, _), mine in zip(waiting, np.split(tokens, edges), strict=True):
        yield _summary(run, episode, starts, mine)


def _summary(run: Run, episode: int, starts: IntArray, tokens: Floats) -> EpisodeSurprise:
    """An episode of the surprise of its tokens, (B, T, M)."""
    modalities = {}
    for i, m in enumerate(run.modalities):
        found = np.sort(tokens[:, :, i][~np.isnan(tokens[:, :, i])])[::-1]
        if len(found):
            worst = found[: max(round(WORST_SHARE * len(found)), FEWEST_WORST)]
            modalities[m.name] = float(np.expm1(np.log1p(worst).mean()))
    flat = np.where(np.isnan(tokens), -np.inf, tokens).reshape(-1)
    worst_steps: dict[tuple[int, str], StepSurprise] = {}
    for place in np.argsort(-flat)[: 2 * LISTED_STEPS]:  # a step may be in two segments
        row, t, i = np.unravel_index(place, tokens.shape)
        if np.isfinite(flat[place]):
            step, name = int(starts[row] + t), run.modalities[int(i)].name
            worst_steps.setdefault((step, name), StepSurprise(step, name, float(flat[place])))
    most = max(modalities.values(), default=0.0)
    return EpisodeSurprise(episode, most, modalities, tuple(worst_steps.values())[:LISTED_STEPS])
