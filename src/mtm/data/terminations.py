"""How episodes ended: in a terminal state, or because the time was up."""

from __future__ import annotations

import numpy as np

from mtm.data.modalities import BoolArray
from mtm.data.trajectories import TrajectoryDataset


def terminal_endings(dataset: TrajectoryDataset) -> BoolArray:
    """Which episodes ended in a terminal state, (E,).

    The source says it, as D4RL's and Minari's do. Where it does not, an episode that is shorter
    than the horizon of the environment has terminated; without a horizon, none has.
    """
    if dataset.terminated is not None:
        return dataset.terminated
    if dataset.metadata.horizon is None:
        return np.zeros(dataset.num_episodes, bool)
    shorter: BoolArray = dataset.lengths < dataset.metadata.horizon
    return shorter
