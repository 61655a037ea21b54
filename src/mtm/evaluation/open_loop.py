"""Forward dynamics many steps ahead: a predicted state is what the next one is predicted from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mtm.core.errors import ConfigError
from mtm.data.normalizer import Normalizer
from mtm.data.segments import Segments
from mtm.data.trajectories import TrajectoryDataset
from mtm.inference.queries import forward_dynamics
from mtm.runs.run import Run

STARTS = 256
"""Places in the episodes to predict from."""

Predict: TypeAlias = Callable[[NDArray[Any], NDArray[Any]], NDArray[Any]]
"""(states (B, S, *shape), actions (B, S - 1 + H, *shape)) -> the H states that follow."""


class OpenLoopErrors(NamedTuple):
    """Mean squared errors at 1, 2, ... steps ahead, in units of the training data's variance.

    Attributes:
        model: Of the predictions, (H,).
        copied: Of the last known state, (H,).
    """

    model: NDArray[np.float64]
    copied: NDArray[np.float64]


def run_open_loop(
    run: Run, episodes: TrajectoryDataset, horizon: int, starts: int = STARTS
) -> OpenLoopErrors | None:
    """The errors of a run, which knows one state less than a segment has; see `open_loop_errors`.

    Raises:
        ConfigError: The run has not exactly one modality of numeric states and one of actions.
    """

    def predict(states: NDArray[Any], actions: NDArray[Any]) -> NDArray[Any]:
        return forward_dynamics(run, states, actions)

    history = run.segment_length - 1
    return open_loop_errors(predict, episodes, run.normalizer, history, horizon, starts)


def open_loop_errors(
    predict: Predict,
    episodes: TrajectoryDataset,
    normalizer: Normalizer,
    history: int,
    horizon: int,
    starts: int = STARTS,
) -> OpenLoopErrors | None:
    """How far predictions are off, 1 to `horizon` steps ahead, with the recorded actions.

    Args:
        predict: What follows states and actions.
        episodes: To predict.
        normalizer: Of the training data, in whose standard deviations errors are measured.
        history: States that are known, the current one last.
        horizon: Steps ahead; all starts have so many.
        starts: How many, at the same places for the same episodes, history and horizon.

    Returns:
        None where no episode is long enough.

    Raises:
        ConfigError: There is not exactly one modality of numeric states and one of actions.
    """
    state, action = (episodes.modalities.only(role).name for role in ("state", "action"))
    if episodes.modalities.named(state).kind == "discrete":
        raise ConfigError(f"{state!r} holds classes, which have no normalised error.")
    pool = Segments(episodes, history + horizon)
    batch = pool.gather(pool.sample(starts, seed=0))
    places = [episodes.modalities.place(name) for name in (state, action)]
    whole = batch.present[:, :, places].all(axis=(1, 2))
    if not whole.any():
        return None
    states, actions = batch.values[state][whole], batch.values[action][whole]
    truth = states[:, history:]
    future = predict(states[:, :history], actions[:, :-1])
    std = normalizer.statistics[state].std
    axes = (0, *range(2, truth.ndim))
    copied = states[:, history - 1 : history]
    return OpenLoopErrors(
        *(
            np.mean(((found - truth) / std) ** 2, axis=axes, dtype=float)
            for found in (future, copied)
        )
    )
