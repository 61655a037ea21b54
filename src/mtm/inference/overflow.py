"""What to say where a network overflows: its answer is no number, as its input is far outside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mtm.core.errors import DataError
from mtm.runs.run import Run


def overflow(run: Run, wanted: str, shown: Mapping[str, NDArray[Any]]) -> DataError:
    """The error, which names the value that is farthest from the training data.

    Args:
        run: The run that answered.
        wanted: The modality of the answer.
        shown: Modality -> what was visible of it, (n, *shape) with any axes before.
    """
    worst, said = 0.0, "nothing that is visible is far from the training data"
    for name, values in shown.items():
        known = run.normalizer.statistics.get(name)
        if known is None or not values.size:
            continue
        away = np.abs(np.asarray(values, np.float64) - known.mean) / known.std
        at = np.unravel_index(np.argmax(away), away.shape)
        if not away[at] <= worst:
            worst = float(away[at])
            said = (
                f"{name!r} holds {values[at]:.3g}, which is {worst:.3g} standard deviations from "
                "the mean of the training data"
            )
    return DataError(
        f"the answer for {wanted!r} is no number: {said}. Give values in the units of the training "
        "data, and mark gaps as gaps."
    )
