"""What the page says of each run before anything is asked."""

from __future__ import annotations

import shlex
import warnings
from typing import Any

from mtm.control.return_targets import episode_return, first_returns
from mtm.core.errors import MTMError, require
from mtm.core.names import TITLES, ActingPolicy
from mtm.data.environment_ids import (
    EnvironmentMismatchError,
    check_environment,
    environment_to_act_in,
    matching_environment,
)
from mtm.data.modalities import Modality
from mtm.evaluation.studio.episodes import LONGEST_WINDOW
from mtm.evaluation.studio.questions import named_masks, training_masks
from mtm.evaluation.studio.workspace import Workspace
from mtm.runs.run import Run
from mtm.training.validation import capabilities_of

POLICIES: dict[ActingPolicy, tuple[str, ...]] = {
    "rcbc": ("rcbc",),
    "bc": ("bc",),
    "two_stage": ("rcbc", "id"),
    "plan": ("rcbc", "fd"),
}
"""Ways to act -> the capabilities that they are made of."""

WITHOUT_RETURNS = ("bc", "plan")
"""Ways to act that do not need a return to ask for."""

WINDOW_SEGMENTS, SHORTEST, LONGEST = 2, 8, 64
"""A window has so many segments at first, within these bounds."""


def summaries(workspace: Workspace) -> list[dict[str, Any]]:
    """All runs."""
    return [
        {"id": number, **summary(run, workspace.env_id), "data": own}
        for number, (run, own) in enumerate(zip(workspace.runs, workspace.own, strict=True))
    ]


def summary(run: Run, named: str | None = None) -> dict[str, Any]:
    """What a run is, what it can be asked, where it can act; `named` as in `environment_of`."""
    config = run.description.train.model
    T = run.segment_length
    return {
        "name": run.path.resolve().name,
        "path": str(run.path),
        "step": run.step,
        "members": run.members,
        "network": config.network,
        "segment_length": T,
        "default_length": min(max(min(WINDOW_SEGMENTS * T, LONGEST), SHORTEST, T), LONGEST_WINDOW),
        "predicts_variance": config.predict_variance or run.members > 1,
        "modalities": [modality_summary(run, m) for m in run.modalities],
        "masks": named_masks(run),
        "training_mask": training_masks(run),
        "acting": acting_summary(run, named),
    }


def modality_summary(run: Run, m: Modality) -> dict[str, Any]:
    """A modality with the scale of its numbers and the names of its features."""
    statistics = run.normalizer.statistics.get(m.name)
    scale: dict[str, Any] = {}
    for key in ("mean", "std", "low", "high"):
        scale[key] = None if statistics is None else getattr(statistics, key).reshape(-1).tolist()
    return {**m.to_json(), "size": m.size, "class_names": None, **_words(run, m), **scale}


def acting_summary(run: Run, named: str | None = None) -> dict[str, Any]:
    """Where a run can act and in which ways, or why it cannot."""
    env_id, problem = environment_of(run, named)
    try:
        quantiles = first_returns(run)
        returns = {
            "low": episode_return(run, float(quantiles[0])),
            "high": episode_return(run, float(quantiles[-1])),
        }
    except MTMError:
        returns = None
    return {
        "environment": env_id,
        "problem": problem,
        "policies": [
            {
                "name": name,
                "title": TITLES[name],
                "asks_return": name != "bc" and returns is not None,
                "problem": policy_problem(run, name, returns is not None),
            }
            for name in POLICIES
        ],
        "returns": returns,
    }


def environment_of(run: Run, named: str | None = None) -> tuple[str | None, str | None]:
    """The environment that a run can act in, and what is in the way if it cannot.

    Args:
        run: It is to act.
        named: The environment that the user named, if any. A run whose data belong to another
            keeps to that.
    """
    for role in ("state", "action"):
        if len(run.modalities.of_role(role)) != 1:
            return None, f"To act, a run needs one modality of role {role}."
    command = f"mtm studio {shlex.quote(str(run.path))} --env"
    if named is not None and _belongs(run, named):
        env_id: str | None = named
    else:
        try:
            env_id = environment_to_act_in(run.description.metadata)
        except MTMError as error:
            env_id = matching_environment(run.description.metadata)
            return env_id, (
                f"Not yet: {error}\nTo do so here, end the studio and start it again:\n"
                f"{command} {shlex.quote(str(env_id))}"
            )
    if env_id is None:
        return None, (
            "The run's data name no environment, so there is nowhere to act. If there is one, "
            f"end the studio and name it:\n{command} ID"
        )
    try:
        require("gymnasium", extra="sim")
    except MTMError as error:
        return env_id, str(error)
    return env_id, None


def policy_problem(run: Run, policy: ActingPolicy, has_returns: bool) -> str | None:
    """Why a run cannot act in a way."""
    able = capabilities_of(run.description.train)
    if not set(POLICIES[policy]) <= {*able, *(() if has_returns else ("rcbc",))}:
        return f"The run is a perceptron trained for {able[0]} alone."
    if not has_returns and policy not in WITHOUT_RETURNS:
        return "The run has no returns to ask for."
    return None


def _belongs(run: Run, env_id: str) -> bool:
    """Whether a run's data can have come from an environment; doubts are told when it acts."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            check_environment(run.description.metadata, env_id)
        except EnvironmentMismatchError:
            return False
    return True


def _words(run: Run, m: Modality) -> dict[str, Any]:
    """Names of features, where the data say them, and the unit, where it is known."""
    columns = run.description.train.reading.columns_of().get(m.name, ())
    if len(columns) == m.size and m.size > 1:
        features = list(columns)
    elif m.size == 1:
        features = [m.name]
    else:
        features = [f"{m.name}[{i}]" for i in range(m.size)]
    unit = None
    summary = run.description.data
    if m.role == "return" and summary.get("returns_made"):
        horizon = summary.get("returns_horizon")
        unit = "reward to come" if not horizon else f"reward per remaining step of {horizon:,}"
    return {"features": features, "unit": unit}
