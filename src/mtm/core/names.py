"""The names of masks, capabilities and tasks, each list once.

This module imports neither torch nor numpy: settings and the command line are checked with it. What
a mask shows is in `mtm.masks`, under the same names.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

Capability: TypeAlias = Literal["bc", "rcbc", "id", "fd"]
"""What a model can be specialised in: behaviour cloning, return-conditioned behaviour cloning,
inverse and forward dynamics. The paper's, in its order."""
CAPABILITIES: tuple[Capability, ...] = get_args(Capability)

RANDOM_MASKS = ("random", "random-autoregressive", "balanced", "original")
"""Masks to train with."""
NAMED_MASKS = (
    *("bc", "rcbc", "bc-now", "rcbc-now", "id", "fd", "bd"),
    *("goal", "waypoints", "past", "plan"),
)
"""Masks that each ask one question."""
MASKS = (*RANDOM_MASKS, *NAMED_MASKS)

PredictionTask: TypeAlias = Literal["fd", "id"]
"""What is measured on held-out episodes."""
PREDICTION_TASKS: tuple[PredictionTask, ...] = get_args(PredictionTask)

ActingTask: TypeAlias = Literal["bc", "rcbc", "two_stage"]
"""What is measured in an environment; `two_stage` predicts states, then acts to reach them."""
ACTING_TASKS: tuple[ActingTask, ...] = get_args(ActingTask)

ActingPolicy: TypeAlias = Literal["bc", "rcbc", "two_stage", "plan"]
"""What `mtm rollout` can act by; `plan` tries variations of an action in imagination (the mask of
that name is the first stage of `two_stage`)."""

Acting: TypeAlias = Literal["default", "paper"]
"""What acting shows the model: as measured best here, or as the original code does."""

TASKS = (*PREDICTION_TASKS, *ACTING_TASKS)
"""What `mtm eval` measures by itself, in the order of its tables."""

ON_REQUEST: tuple[ActingPolicy, ...] = ("plan",)
"""What it measures if it is named: planning takes many times as long as other acting."""

VALIDATED = tuple(task for task in TASKS if task in CAPABILITIES)
"""Masks whose errors are measured on held-out episodes in training, in the order of tables."""

TITLES = {
    "fd": "forward dynamics",
    "id": "inverse dynamics",
    "bc": "behaviour cloning",
    "rcbc": "return-conditioned",
    "two_stage": "two-stage",
    "plan": "planning",
}
"""Task -> how tables call it."""

Exportable: TypeAlias = Literal["rcbc", "bc", "id", "fd", "represent", "impute"]
"""What `mtm export` makes graphs of; `impute` takes any mask."""
EXPORTABLE: tuple[Exportable, ...] = get_args(Exportable)
