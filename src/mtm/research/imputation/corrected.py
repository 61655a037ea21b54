"""Our network as the corrector of a Kalman smoother: what the straight lines missed.

Where dynamics are nearly linear, a smoother leaves little to learn, and a network spends its time
on finding that again. Here it is shown what the smoother says, how sure that is, and the actions,
and learns the rest, in units of the smoother's own doubt. What it says about its errors corrects
that doubt as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from mtm.core.config import DeviceConfig, TrainConfig
from mtm.core.randomness import Purpose, generator
from mtm.data.modalities import BoolArray, Modality
from mtm.data.trajectories import TrajectoryDataset
from mtm.inference.engine import Arrays, ask_with_certainty
from mtm.research.imputation import gaps
from mtm.research.imputation.classical import KalmanSmoother
from mtm.research.imputation.samples import Floats, Logs
from mtm.research.imputation.score import NORMAL, Filled
from mtm.runs.run import Run
from mtm.training.train import train

SAID, DOUBT, MISSED = "said", "doubt", "missed"
"""The smoother's values and the actions; the logarithm of its deviations; what to learn."""

SMALLEST_DOUBT = 0.01
"""In standard deviations of the data: what is said to be surer counts as no surer."""

AT_ONCE = 128
"""Windows that the smoother takes at once: it keeps a matrix for each step."""

LARGEST_MISS = 10.0
"""In units of the doubt; a smoother that is wrong by more would rule the training."""


class CorrectedSmoother:
    """A smoother and the run that corrects it."""

    def __init__(self, smoother: KalmanSmoother, run: Run) -> None:
        self.smoother, self.run = smoother, run

    def __call__(self, windows: Floats, hidden: BoolArray) -> Filled:
        """The smoother's values, corrected, and the deviations that the network states."""
        values, doubt = said(self.smoother, windows, hidden)
        size = doubt.shape[2]
        shown: Arrays = {SAID: values, DOUBT: _shown(doubt, hidden)}
        visible = all_but_the_last(self.run.modalities, windows.shape[1], len(windows))
        found, sure = ask_with_certainty(self.run, shown, visible, [MISSED], ~visible)
        here = hidden[:, :, :size]
        filled, deviations = windows.copy(), np.zeros_like(windows)
        corrected = values[:, :, :size] + found[MISSED] * doubt
        filled[:, :, :size] = np.where(here, corrected, windows[:, :, :size])
        deviations[:, :, :size] = np.where(here, sure[MISSED] * doubt, 0)
        return Filled.normal(filled, deviations)


def train_corrector(
    smoother: KalmanSmoother,
    data: TrajectoryDataset,
    config: TrainConfig,
    folder: Path,
    threads: int,
) -> CorrectedSmoother:
    """Train a network on what a smoother misses.

    Args:
        smoother: It.
        data: Of `lessons`.
        config: Of the network.
        folder: Of its run; a run that is there goes on.
        threads: Of the training.
    """
    device = DeviceConfig(threads=threads)
    run = train(
        data, config, folder, device=device, mask=all_but_the_last_of, resume=True, silent=True
    )
    return CorrectedSmoother(smoother, run)


def lessons(
    logs: Logs,
    smoother: KalmanSmoother,
    patterns: Sequence[str],
    count: int,
    config: TrainConfig,
) -> TrajectoryDataset:
    """Windows of training episodes with gaps, each an episode of its own, as long as a segment."""
    window = config.model.segment_length
    truth = logs.windows(logs.parts.training, window, count, config.seed, dense=True)
    rng = generator(config.seed, Purpose.GAPS)
    lost = gaps.draw_mixed(patterns, count, window, len(logs.widths), rng)
    parts = np.array_split(np.arange(count), max(count // AT_ONCE, 1))
    answers = [_lesson(logs, smoother, truth[part], lost[part]) for part in parts]
    flat = {
        name: np.concatenate([answer[name] for answer in answers]).reshape(count * window, -1)
        for name in (SAID, DOUBT, MISSED)
    }
    return TrajectoryDataset.from_arrays(
        flat,
        np.arange(count + 1) * window,
        modalities=[Modality(name, a.shape[1:]) for name, a in flat.items()],
        present={MISSED: lost.any(axis=2).ravel()},
    )


def _lesson(logs: Logs, smoother: KalmanSmoother, truth: Floats, lost: BoolArray) -> Arrays:
    hidden = logs.hidden_columns(lost)
    values, doubt = said(smoother, np.where(hidden, np.float32(0), truth), hidden)
    size = doubt.shape[2]
    missed = (truth[:, :, :size] - values[:, :, :size]) / doubt
    missed = np.clip(missed, -LARGEST_MISS, LARGEST_MISS)
    return {SAID: values, DOUBT: _shown(doubt, hidden), MISSED: missed}


def said(smoother: KalmanSmoother, windows: Floats, hidden: BoolArray) -> tuple[Floats, Floats]:
    """The smoother's values (N, W, D), and its deviations (N, W, S), never too small."""
    filled = smoother(windows, hidden)
    low, high = filled.intervals[50]
    size = len(smoother.A)
    deviations = ((high - low) / 2 / NORMAL[50])[:, :, :size]
    return filled.values, np.maximum(deviations, np.float32(SMALLEST_DOUBT))


def all_but_the_last_of(
    modalities: Sequence[Modality], segment_length: int, batch_size: int, rng: np.random.Generator
) -> BoolArray:
    """A mask function: nothing is drawn."""
    return all_but_the_last(modalities, segment_length, batch_size)


def all_but_the_last(
    modalities: Sequence[Modality], segment_length: int, batch_size: int
) -> BoolArray:
    """All is visible but the last modality, (B, T, M)."""
    visible = np.ones((batch_size, segment_length, len(modalities)), bool)
    visible[:, :, -1] = False
    return visible


def _shown(doubt: Floats, hidden: BoolArray) -> Floats:
    """The doubt as the network sees it; of what is known there is none."""
    scaled = np.log(doubt / np.float32(SMALLEST_DOUBT)) + np.float32(1)
    shown: Floats = np.where(hidden[:, :, : doubt.shape[2]], scaled, np.float32(0))
    return shown
