"""Settings of planning; what they do is in `mtm.control.planning`.

This module imports neither torch nor numpy: the command line is built from it.
"""

from __future__ import annotations

from dataclasses import dataclass

from mtm.core.config_io import report
from mtm.core.validators import (
    COUNT,
    NOT_NEGATIVE,
    POSITIVE,
    SEED,
    SHARE_BELOW_ALL,
    Range,
    outside,
)


@dataclass(frozen=True)
class PlanConfig:
    """How far, how widely and by what to plan.

    Scores are in units of the standard deviation of the data's returns, so that the numbers below
    mean the same for every task.

    Raises:
        ConfigError: Listing every fault.
    """

    horizon: int | None = None
    """Steps to look ahead; None: one less than a segment has. More are chained."""
    candidates: int = 64
    """Sequences of actions to try in each environment, the plain one among them; 1: no planning."""
    iterations: int = 1
    """Rounds of candidates, each drawn around the best of the last one."""
    noise: float = 1.0
    """How far candidates lie from the plain actions, in predicted standard deviations."""
    correlation: float = 0.5
    """Of the noise from one step to the next."""
    best: float = 0.25
    """Share of the candidates whose weighted mean is taken."""
    temperature: float = 0.05
    """Difference of scores that makes a candidate count e times as much."""
    per_pass: int | None = 1
    """States that one forward pass imagines; None: all that fit, which is faster and less exact."""
    rewards: bool = True
    """Count the rewards on the way, if the run models them."""
    tail: bool = True
    """Count the return after the last step: the reachable one if the run has model.values, else the
    expected one."""
    disagreement: float = 0.0
    """How much to take off for doubt: the predicted variance of the imagined states."""
    seed: int = 0
    """Makes the noise, which is the same at every step and in every environment."""

    def __post_init__(self) -> None:
        counts = dict.fromkeys(("horizon", "candidates", "iterations"), COUNT)
        ranges = {
            "noise": NOT_NEGATIVE,
            "correlation": SHARE_BELOW_ALL,
            "best": Range(0, 1, open_low=True),
            "temperature": POSITIVE,
            "disagreement": NOT_NEGATIVE,
            "seed": SEED,
        }
        faults = outside(self, "plan.", counts | ranges)
        if self.per_pass is not None and (fault := COUNT.fault("plan.per_pass", self.per_pass)):
            faults.append(fault)
        report(faults)
