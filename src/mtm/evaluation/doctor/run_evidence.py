"""How surprising episodes are to a trained run: each token from the others, by several masks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mtm.data.trajectories import TrajectoryDataset
from mtm.evaluation.doctor.evidence import Channel, standing
from mtm.inference.run_data import held_out_of, is_own
from mtm.inference.surprise import (
    SAMPLED_STEPS,
    EpisodeSurprise,
    measure_episodes,
    plan_segments,
    usual_errors,
)
from mtm.runs.run import Run


def run_channels(
    run: Run, dataset: TrajectoryDataset, seed: int = 0, tell: Callable[[int], None] | None = None
) -> list[Channel]:
    """A channel for each modality of a run.

    What errors are usual is measured on the episodes that the run held out, if the data are its
    own, else on a sample of the data.

    Args:
        run: A trained run.
        dataset: Data with some modalities of the run.
        seed: Draws segments where there are very many.
        tell: Told how many episodes are done.

    Raises:
        ConfigError: The run is a perceptron.
        DataError: The data do not fit the run.
    """
    reference = held_out_of(run, dataset) if is_own(run, dataset) else dataset
    usual = usual_errors(run, reference, seed=seed)
    plan = plan_segments(dataset.lengths, run.segment_length, SAMPLED_STEPS, seed)
    found: list[EpisodeSurprise] = []
    for episode in measure_episodes(run, dataset, usual, plan):
        found.append(episode)
        if tell is not None:
            tell(len(found))
    names = [m.name for m in run.modalities if any(m.name in e.modalities for e in found)]
    levels = np.full((dataset.num_episodes, len(names)), np.nan)
    steps = np.zeros(levels.shape, np.int64)
    for e in found:
        for i, name in enumerate(names):
            if name in e.modalities:
                levels[e.episode, i] = np.log1p(e.modalities[name])
            here = [worst.step for worst in e.worst if worst.modality == name]
            steps[e.episode, i] = (here or [worst.step for worst in e.worst] or [0])[0]
    standings = standing(levels)
    return [
        Channel("surprises the run", name, standings[:, i], steps[:, i])
        for i, name in enumerate(names)
    ]
