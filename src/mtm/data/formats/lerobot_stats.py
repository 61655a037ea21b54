"""Statistics of features as LeRobot keeps them, of an episode and of a data set.

Those of a data set are put together from the episodes' as LeRobot does it: quantiles are the mean
of the episodes' quantiles, all others are exact. What is NaN is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

QUANTILES = {"q01": 0.01, "q10": 0.1, "q50": 0.5, "q90": 0.9, "q99": 0.99}

Statistics: TypeAlias = Mapping[str, NDArray[Any]]


def statistics(values: NDArray[Any]) -> Statistics:
    """Of an episode's values, (length, *shape): each (last axis,), and `count` (1,)."""
    rows = values.reshape(-1, values.shape[-1] if values.ndim > 1 else 1).astype(np.float64)
    rows = rows[~np.isnan(rows).any(axis=1)]
    if not len(rows):
        nothing = np.zeros(rows.shape[1])
        found = dict.fromkeys(("min", "max", "mean", "std", *QUANTILES), nothing)
        return found | {"count": np.array([0])}
    quantiles = np.quantile(rows, list(QUANTILES.values()), axis=0)
    return {
        "min": rows.min(axis=0),
        "max": rows.max(axis=0),
        "mean": rows.mean(axis=0),
        "std": rows.std(axis=0),
        **dict(zip(QUANTILES, quantiles, strict=True)),
        "count": np.array([len(rows)]),
    }


def aggregate(before: Statistics | None, more: Statistics) -> Statistics:
    """The statistics of two pieces together."""
    if before is None or not before["count"][0]:
        return more
    if not more["count"][0]:
        return before
    count = before["count"] + more["count"]
    share = more["count"] / count
    found = {
        "min": np.minimum(before["min"], more["min"]),
        "max": np.maximum(before["max"], more["max"]),
        "count": count,
    }
    for key in ("mean", *QUANTILES):
        found[key] = before[key] + share * (more[key] - before[key])
    apart = share * (1 - share) * (more["mean"] - before["mean"]) ** 2
    found["std"] = np.sqrt((1 - share) * before["std"] ** 2 + share * more["std"] ** 2 + apart)
    return found
