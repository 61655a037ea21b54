"""Answers that are no numbers: an input was far outside of the data, or weights are none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mtm.core.errors import DataError
from mtm.data.modalities import BoolArray
from mtm.runs.run import Run

FAR = 1e6
"""Standard deviations from which a value may be what overflowed."""


def check_answers(
    run: Run,
    given: Mapping[str, NDArray[Any]],
    answers: Mapping[str, NDArray[Any]],
    visible: BoolArray | None = None,
) -> None:
    """See that all answers are numbers.

    Args:
        run: The run that answered.
        given: Modality -> values, (B, S, *shape); (n, *shape) if all of them were visible.
        answers: Modality -> its answers, of any shape.
        visible: What was visible of the given, (B, S, M); None: all.

    Raises:
        DataError: One is not; the message names the value that is farthest outside, if one is far.
    """
    for name, values in answers.items():
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            raise DataError(f"the answer for {name!r} is no number: {_cause(run, given, visible)}")


def _cause(run: Run, given: Mapping[str, NDArray[Any]], visible: BoolArray | None) -> str:
    worst, said = FAR, ""
    for name, values in given.items():
        known = run.normalizer.statistics.get(name)
        if visible is not None:
            values = values[visible[:, :, run.modalities.place(name)]]
        if known is None or not values.size:
            continue
        away = np.abs(np.asarray(values, np.float64) - known.mean) / known.std
        at = np.unravel_index(np.argmax(away), away.shape)
        if away[at] > worst:
            worst = float(away[at])
            said = (
                f"{name!r} holds {values[at]:.3g}, which is {worst:.3g} standard deviations from "
                "the mean of the training data. Give values in the units of the training data, "
                "and mark gaps as gaps."
            )
    return said or (
        "nothing that is visible is far from the training data, so the weights of the run may be "
        "no numbers. Load another checkpoint, or train again."
    )
