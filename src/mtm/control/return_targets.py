"""What a return-conditioned policy asks for, from what the run knows of its data.

A target can be said as an episode's return, as a normalised score, as a fraction of the range of
the data's episodes (0 the worst, 1 the best), or be left to `auto`, which is the best of them. No
environment is touched.

Where the run's returns are discounted, an episode's return or score says nothing of when it is
earned, so only the last two can be asked for.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mtm.control.scores import REFERENCES
from mtm.core.errors import ConfigError
from mtm.data.environment_ids import family, is_adroit
from mtm.data.trajectories import Metadata
from mtm.runs.run import Run

TargetSpec: TypeAlias = str | float
"""`auto`, `fraction:0.9`, `score:100`, `return:3000`; a plain number is a return."""


class _Described(Protocol):
    @property
    def data(self) -> Mapping[str, Any]:
        """The summary of the data that `mtm.runs.description.summarize` makes."""

    @property
    def metadata(self) -> Metadata:
        """Source, environment and horizon of the data."""


class KnowsReturns(Protocol):
    """What a target is asked of: a run, or an agent of `mtm.research.baselines`."""

    @property
    def path(self) -> Path:
        """The directory."""

    @property
    def description(self) -> _Described:
        """What is known of the data."""


def resolve_target(run: KnowsReturns, spec: TargetSpec) -> float:
    """A target in the units of the modality `returns`, which is what the model is shown.

    Warns when it lies beyond anything that the data reached.

    Raises:
        ConfigError: The spec cannot be understood, or the data lack what it needs.
    """
    quantiles = first_returns(run)
    value = _value(run, spec, quantiles)
    low, high = quantiles[0], quantiles[-1]
    if not low <= value <= high:
        what = "an episode return" if discount_of(run) == 1 else "a discounted episode return"
        warnings.warn(
            f"the target {spec} asks for {what} of {episode_return(run, value):,.1f}; "
            f"episodes of the data returned {episode_return(run, low):,.1f} to "
            f"{episode_return(run, high):,.1f}.",
            stacklevel=2,
        )
    return value


def parse_target(spec: TargetSpec) -> tuple[str, float]:
    """The unit of a target, which is return if it names none, and its number.

    Raises:
        ConfigError: It cannot be understood.
    """
    unit, colon, text = str(spec).rpartition(":")
    unit = unit if colon else "return"
    try:
        number = float(text)
    except ValueError:
        number = np.nan
    if unit not in ("return", "score", "fraction") or not np.isfinite(number):
        raise ConfigError(
            f"cannot understand the target {spec!r}. Allowed: auto, fraction:NUMBER, score:NUMBER, "
            "return:NUMBER or a plain number, which is a return."
        )
    return unit, number


def fraction_of_range(run: KnowsReturns, fraction: float) -> float:
    """A target between the worst (0) and the best (1) episode of the data, or beyond."""
    quantiles = first_returns(run)
    return float(quantiles[0] + fraction * (quantiles[-1] - quantiles[0]))


def episode_return(run: KnowsReturns, value: float) -> float:
    """The episode's return that a value of `returns` at its first step stands for.

    It is discounted if the run's returns are.
    """
    return value * _scale(run)


def sum_to_come(run: KnowsReturns, values: ArrayLike, steps: ArrayLike) -> NDArray[np.float64]:
    """The sum of rewards that values of `returns` at some steps of an episode stand for.

    Averages per remaining step of the horizon are multiplied by those steps. The sum is discounted
    from that step on if the run's returns are. Returns that the data brought are taken as they are.

    Args:
        run: What made the returns.
        values: Of the modality `returns`, any shape.
        steps: Of the episode at which they stand, from 0; same shape, or one that broadcasts.
    """
    horizon = run.description.data.get("returns_horizon")
    left = np.maximum(horizon - np.asarray(steps), 0) if horizon else 1.0
    return np.asarray(values, np.float64) * left


def discount_of(run: KnowsReturns) -> float:
    """The factor per step of the run's returns; those of an agent are plain sums."""
    return run.description.train.returns.discount if isinstance(run, Run) else 1.0


def first_returns(run: KnowsReturns) -> np.ndarray:
    """Quantiles 0, 1, ... 100 % of `returns` at the first step of the data's episodes.

    Raises:
        ConfigError: The run was trained without returns.
    """
    quantiles = run.description.data.get("first_returns")
    if quantiles == []:
        raise ConfigError(
            f"{run.path} was trained on data in which no first step has a return (each lacks a "
            "reward after it), so what can be asked for is not known. Fill in the rewards, or act "
            "by behaviour cloning."
        )
    if not quantiles:
        raise ConfigError(
            f"{run.path} was trained without returns, so none can be asked for. Train on data with "
            "rewards, or act by behaviour cloning."
        )
    return np.asarray(quantiles, np.float64)


def _value(run: KnowsReturns, spec: TargetSpec, quantiles: np.ndarray) -> float:
    if spec == "auto":
        return float(quantiles[-1])
    unit, number = parse_target(spec)
    if unit == "fraction":
        return fraction_of_range(run, number)
    if (discount := discount_of(run)) < 1:
        raise ConfigError(
            f"the target {spec} is an episode's {unit}, which is not discounted; the returns of "
            f"{run.path} are (returns.discount {discount}), and one does not give the other. Say "
            "auto or fraction:NUMBER, where 1 is the best episode of the data."
        )
    if unit == "score":
        env_id = run.description.metadata.env_id
        key = family(env_id)
        if is_adroit(env_id):  # scored by steps with the goal achieved, which the return counts
            return number / _scale(run)
        if key is None:
            raise ConfigError(
                f"a target as score needs reference returns, and there are none for "
                f"{env_id or 'data that name no environment'}. Say "
                "return:VALUE or fraction:VALUE."
            )
        low, high = REFERENCES[key]
        number = low + number / 100 * (high - low)
    return number / _scale(run)


def _scale(run: KnowsReturns) -> float:
    """An episode's return divided by what `returns` says at its first step."""
    horizon = run.description.data.get("returns_horizon")
    return float(horizon) if horizon else 1.0
