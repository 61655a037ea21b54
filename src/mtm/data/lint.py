"""What is no fault of a data set but deserves a look before training on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mtm.core.errors import MTMError
from mtm.data.environment_ids import module_of
from mtm.data.modalities import Modality
from mtm.data.trajectories import TrajectoryDataset

TOLERANCE = 1e-4
"""How far beyond its bounds an action may be: rounding to float32 is no oddity."""

MOST_LISTED = 8
"""Features or modalities that a line lists."""


ActionBounds: TypeAlias = Callable[[str], "tuple[NDArray[Any], NDArray[Any]] | None"]
"""Least and greatest action of the environment with an id; None if its actions have no bounds."""


def lint(dataset: TrajectoryDataset, action_bounds: ActionBounds | None = None) -> Iterator[str]:
    """A line for each thing that looks odd, with its place and a cure.

    Args:
        dataset: The data.
        action_bounds: Asks the environment that the data name, such as
            `mtm.control.environments.action_bounds`; None: nobody is asked.
    """
    yield from _roles(dataset)
    yield from _lengths(dataset)
    for m in dataset.modalities:
        if m.kind == "continuous":
            yield from _constant_features(dataset, m)
    if action_bounds is not None:
        yield from _environment(dataset, action_bounds)


def _roles(dataset: TrajectoryDataset) -> Iterator[str]:
    states = [m.name for m in dataset.modalities if m.role == "state"]
    if len(states) > 1 and all(m.role != "action" for m in dataset.modalities):
        yield (
            f"no modality of role action; {len(states)} of role state ({_listed(states)}): join "
            "columns with --reading.columns, name roles with --reading.roles."
        )
    rewards = dataset.modalities.of_role("reward")
    if len(rewards) > 1 or any(m.size != 1 for m in rewards):
        listed = _listed([f"{m.name}{list(m.shape)}" for m in rewards])
        yield (
            f"no returns can be made of {listed}: one modality of role reward with one number per "
            "step is needed. Name columns and roles with --reading.columns and --reading.roles."
        )


def _lengths(dataset: TrajectoryDataset) -> Iterator[str]:
    lengths, horizon = dataset.lengths, dataset.metadata.horizon
    short = np.flatnonzero(lengths == 1)
    if len(short):
        yield (
            f"{len(short):,} episode(s) have one step, the first is episode {short[0]}: a single "
            "step shows no dynamics."
        )
    if horizon is not None and lengths.max() > horizon:
        episode = int(lengths.argmax())
        yield (
            f"episode {episode} has {lengths[episode]:,} steps, the environment stops at "
            f"{horizon:,}: perhaps the ends of episodes are not marked."
        )


def _constant_features(dataset: TrajectoryDataset, m: Modality) -> Iterator[str]:
    low, high = np.full(m.shape, np.inf), np.full(m.shape, -np.inf)
    for chunk in dataset.chunks(m.name):
        low, high = np.minimum(low, chunk.min(axis=0)), np.maximum(high, chunk.max(axis=0))
    constant = np.flatnonzero((low == high).reshape(-1))
    if len(constant):
        yield f"modality {m.name!r}: feature(s) {_listed(constant)} never change."


def _listed(items: Sequence[object] | np.ndarray) -> str:
    """The first of many."""
    return ", ".join(map(str, items[:MOST_LISTED])) + ", ..." * (len(items) > MOST_LISTED)


def _environment(dataset: TrajectoryDataset, action_bounds: ActionBounds) -> Iterator[str]:
    """Whether actions fit the environment that the data name."""
    env_id = dataset.metadata.env_id
    actions = [m for m in dataset.modalities if m.role == "action"]
    if env_id is None or len(actions) != 1 or actions[0].kind != "continuous":
        return
    if module_of(env_id) is not None:
        yield (
            f"the environment {env_id} names a module, which is not imported on the word of a data "
            "file, so bounds were not compared."
        )
        return
    try:
        bounds = action_bounds(env_id)
    except MTMError as error:
        yield f"the environment {env_id} could not be made, so bounds were not compared: {error}"
        return
    shape = None if bounds is None else bounds[0].shape
    if bounds is None or shape != actions[0].shape:
        offered = "are not numbers" if shape is None else f"have shape {shape}"
        yield (
            f"modality {actions[0].name!r} has shape {actions[0].shape}, the actions of {env_id} "
            f"{offered}: data and environment do not belong together."
        )
        return
    low, high = bounds
    yield from _out_of_bounds(dataset, actions[0], env_id, low - TOLERANCE, high + TOLERANCE)


def _out_of_bounds(
    dataset: TrajectoryDataset, m: Modality, env_id: str, low: np.ndarray, high: np.ndarray
) -> Iterator[str]:
    values, known = dataset.arrays[m.name], dataset.known(m.name)
    for episode in range(dataset.num_episodes):
        steps = slice(int(dataset.starts[episode]), int(dataset.ends[episode]))
        part = values[steps]
        outside = ((part < low) | (part > high)).reshape(len(part), -1).any(axis=1) & known[steps]
        if outside.any():
            step = int(outside.argmax())
            yield (
                f"modality {m.name!r}, episode {episode}, step {step}: {part[step]} is outside the "
                f"bounds of {env_id}, as are {int(outside.sum()):,} step(s) of this episode. Scale "
                "or clip the actions; environments clip them silently."
            )
            return
