"""What can be earned from a state on, as the model sees it: as a rule, and at best.

Both are in the units of the modality of role return: by default an average per remaining step of
the horizon. `mtm.control.return_targets.sum_to_come` makes sums of rewards of them.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mtm.core.errors import ConfigError
from mtm.inference.certainty import ask_how_sure
from mtm.inference.engine import dtype_of
from mtm.inference.inputs import as_values
from mtm.runs.run import Run


def expected_returns(run: Run, states: ArrayLike) -> NDArray[np.float32]:
    """The return that the data's policies have from a state on, in the mean.

    Args:
        run: A trained run with returns.
        states: (..., *shape): any leading axes, each state asked alone.

    Returns:
        (...), a number for each state.

    Raises:
        ConfigError: The run has no modality of role return, or several.
        DataError: Values do not fit the model.
    """
    return _asked(run, states, "values")


def reachable_returns(run: Run, states: ArrayLike) -> NDArray[np.float32]:
    """The return that can be reached from a state on: an upper expectile of those in the data.

    What a return-conditioned policy can ask for where no target is known (Reinformer's idea).
    Arguments and results as for `expected_returns`.

    Raises:
        ConfigError: As there, or the run was trained without `model.values`.
        DataError: Values do not fit the model.
    """
    if not run.description.train.model.values:
        raise ConfigError(
            f"{run.path} was trained without model.values, so which return can be reached is not "
            "known. Train with --model.values 0.9, or use expected_returns."
        )
    return _asked(run, states, "expectiles")


def _asked(
    run: Run, states: ArrayLike, kind: Literal["values", "expectiles"]
) -> NDArray[np.float32]:
    """The return at the first step of segments that show the state there and nothing else."""
    state, returns = run.modalities.only("state"), run.modalities.only("return")
    if returns.size != 1:
        raise ConfigError(f"{returns.name!r} has {returns.size} numbers per step; this needs one.")
    values = as_values(run, state.name, states)
    flat = values.reshape(-1, *state.shape)
    B, T = len(flat), run.segment_length
    window = np.zeros((B, T, *state.shape), dtype_of(state))
    window[:, 0] = flat
    visible = np.zeros((B, T, len(run.modalities)), bool)
    wanted = visible.copy()
    visible[:, 0, run.modalities.place(state.name)] = True
    wanted[:, 0, run.modalities.place(returns.name)] = True
    answers = ask_how_sure(run, {state.name: window}, visible, [returns.name], wanted)
    found: NDArray[np.float32] = getattr(answers, kind)[returns.name][:, 0]
    return found.reshape(values.shape[: values.ndim - len(state.shape)])
