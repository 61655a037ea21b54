"""Questions to a trained model: given these tokens, what are those?

`predict` asks anything. The named capabilities below it are the same call with another choice of
what is given. All take and give raw units as NumPy arrays: `(S, *shape)` for one trajectory of S
steps, `(B, S, *shape)` for a batch.

A trajectory longer than the model's segment is asked in windows (see `mtm.inference.windowing`);
`forward_dynamics` chains: each predicted state becomes part of the history of the next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from mtm.core.errors import ConfigError, DataError
from mtm.inference.engine import (
    Arrays,
    as_batch,
    as_classes,
    as_numbers,
    ask,
    batches,
    device,
    index,
    misfit,
    modality_of,
    only,
)
from mtm.inference.windowing import Given, fill
from mtm.runs.run import Run


def predict(
    run: Run,
    given: Mapping[str, ArrayLike],
    want: str | Sequence[str],
    *,
    present: Mapping[str, ArrayLike] | None = None,
) -> Arrays:
    """Fill in what is not given.

    Args:
        run: A trained run.
        given: Modality -> values (S, *shape) or (B, S, *shape). NaN marks a gap, and so does a
            mask (`numpy.ma`), for integers have no NaN; `TrajectoryDataset.episode` gives both.
        want: Names of the modalities to return.
        present: Modality -> booleans (S,) or (B, S), False at gaps: another way to mark them.

    Returns:
        Each wanted modality at every step: what was given where it was, predictions elsewhere.

    Raises:
        DataError: Nothing is given, a name is unknown, or values do not fit the model.
    """
    names = [want] if isinstance(want, str) else list(want)
    for name in names:
        modality_of(run, name)
    known = Given.of(run, given, present or {})
    filled = fill(run, known, names)
    return filled if known.batched else {name: values[0] for name, values in filled.items()}


def impute(
    run: Run, given: Mapping[str, ArrayLike], *, present: Mapping[str, ArrayLike] | None = None
) -> Arrays:
    """Fill the gaps (NaN, or not `present`) of every modality that is given in part."""
    return predict(run, given, list(given), present=present)


def inverse_dynamics(run: Run, states: ArrayLike) -> NDArray[Any]:
    """The actions that lead through a sequence of states; the last one leads beyond it."""
    return predict(run, {only(run, "state"): states}, only(run, "action"))[only(run, "action")]


def behavior_cloning(run: Run, states: ArrayLike, actions: ArrayLike | None = None) -> NDArray[Any]:
    """The action at the last of some states (..., S, *shape), as the data's policies would act.

    Args:
        run: A trained run.
        states: The history with the current state last; the model sees its last T steps.
        actions: The past actions (..., S - 1, *shape), if known.
    """
    return _act(run, states, actions, None)


def return_conditioned(
    run: Run, states: ArrayLike, returns: ArrayLike, actions: ArrayLike | None = None
) -> NDArray[Any]:
    """The action at the last of some states that goes with a return.

    Args:
        run: A trained run.
        states: The history with the current state last, (..., S, *shape).
        returns: Return-to-go at each of these steps, or one number, asked for at the last of them,
            in the units of the modality `returns` (an average per step unless configured
            otherwise).
        actions: The past actions (..., S - 1, *shape), if known.
    """
    return _act(run, states, actions, returns)


def forward_dynamics(run: Run, states: ArrayLike, actions: ArrayLike) -> NDArray[Any]:
    """The states that follow when some actions are taken, open loop.

    Args:
        run: A trained run.
        states: The history, at least the current state: (..., S, *shape).
        actions: The actions at these states and after them, (..., S - 1 + H, *shape): the first
            S - 1 belong to the history, the others are taken one by one.

    Returns:
        The H states after the history, (..., H, *shape).

    Raises:
        DataError: There is no action to take, or a shape does not fit.
    """
    state, action = only(run, "state"), only(run, "action")
    known, batched = as_batch(run, state, states)
    taken, _ = as_batch(run, action, actions)
    H = taken.shape[1] - known.shape[1] + 1
    if H < 1 or len(taken) != len(known):
        raise DataError(
            f"{known.shape[1]} states need at least as many actions in each of {len(known)} "
            f"trajectories, got {taken.shape[1]} in {len(taken)}."
        )
    T = run.model.config.segment_length
    _need_length(run, 2)
    for step in range(known.shape[1], known.shape[1] + H):
        history = slice(max(step - (T - 1), 0), step)
        blank = np.zeros_like(known[:, :1])
        window = {
            state: np.concatenate([known[:, history], blank], axis=1),
            action: np.concatenate([taken[:, history], np.zeros_like(taken[:, :1])], axis=1),
        }
        visible = np.zeros((len(known), window[state].shape[1], len(run.modalities)), bool)
        for name in window:
            visible[:, :-1, index(run, name)] = True
        answer = ask(run, window, visible, [state])[state][:, -1:]
        known = np.concatenate([known, answer], axis=1)
    future = known[:, -H:]
    return future if batched else future[0]


def reach_goal(run: Run, states: ArrayLike, goal: ArrayLike, steps: int) -> Arrays:
    """The way from a history to a goal state in `steps` steps.

    Args:
        run: A trained run.
        states: The history with the current state last, (..., S, *shape).
        goal: The state to be in, (..., *shape), or one for all, (*shape).
        steps: When to be there, counted from the current state; the model sees T steps at once.

    Returns:
        The states from the current one to the goal, (..., steps + 1, *shape), and the actions from
        the current one on, (..., steps, *shape).

    Raises:
        ConfigError: The goal is too far ahead.
        DataError: The history or the goal does not fit the model.
    """
    name, action = only(run, "state"), only(run, "action")
    T = run.model.config.segment_length
    if not 1 <= steps < T:
        raise ConfigError(
            f"a goal must be 1 to {T - 1} steps ahead, got {steps}: the model sees {T} steps at "
            "once. Give waypoints with `predict`, or train with a longer segment_length."
        )
    history, batched = as_batch(run, name, states)
    kept = history[:, -(T - steps) :]
    ahead = np.zeros((len(kept), steps, *kept.shape[2:]), kept.dtype)
    ahead[:, -1] = _goals(run, name, goal, len(kept) if batched else None)
    path = np.concatenate([kept, ahead], axis=1)
    known = np.ones(path.shape[:2], bool)
    known[:, -steps:-1] = False
    answer = predict(run, {name: path}, [name, action], present={name: known})
    way = {name: answer[name][:, -steps - 1 :], action: answer[action][:, -steps - 1 : -1]}
    return way if batched else {k: v[0] for k, v in way.items()}


def represent(run: Run, states: ArrayLike, actions: ArrayLike | None = None) -> NDArray[np.float32]:
    """The encoder's output for states, each encoded alone, or for states and actions jointly.

    Args:
        run: A trained run.
        states: (..., *shape): any leading axes.
        actions: (..., *shape), encoded together with their states.

    Returns:
        (..., D) for states; (..., 2 * D) for states and actions, one after the other.

    Raises:
        ConfigError: The run's network is not the transformer.
        DataError: Values do not fit the model.
    """
    model = run.transformer
    given = {only(run, "state"): states}
    if actions is not None:
        given[only(run, "action")] = actions
    parts: Arrays = {}
    for name, values in given.items():
        m = modality_of(run, name)
        array = as_numbers(m, values)
        if array.shape[array.ndim - len(m.shape) :] != m.shape:
            raise DataError(misfit(run, m, array.shape))
        parts[name] = as_classes(m, array).reshape(-1, *m.shape)
    state = modality_of(run, only(run, "state"))
    leading = np.shape(states)[: np.ndim(states) - len(state.shape)]
    if len({len(p) for p in parts.values()}) > 1:
        raise DataError("represent needs as many actions as states.")
    pieces = [np.zeros((0, len(parts) * model.config.width), np.float32)]
    for part in batches(len(parts[state.name])):
        with torch.inference_mode():
            raw = {name: torch.from_numpy(p[part]).to(device(run)) for name, p in parts.items()}
            inputs = {name: run.normalizer.normalize(name, v) for name, v in raw.items()}
            pieces.append(model.encode_step(inputs).flatten(1).cpu().numpy())
    latent = np.concatenate(pieces)
    return latent.reshape(*leading, latent.shape[1])


def _goals(run: Run, name: str, goal: ArrayLike, count: int | None) -> NDArray[Any]:
    """One goal for all histories, (*shape), or for each of `count`, (count, *shape), if a batch."""
    m = modality_of(run, name)
    array = as_numbers(m, goal)
    allowed = [m.shape] if count is None else [m.shape, (count, *m.shape)]
    if array.shape not in allowed:
        listed = " or ".join(map(str, allowed))
        raise DataError(f"a goal is a value of {name!r}, of shape {listed}; got {array.shape}.")
    return as_classes(m, array)


def _need_length(run: Run, length: int) -> None:
    if run.model.config.segment_length < length:
        raise ConfigError(
            f"this capability needs a segment_length of at least {length}, the run was trained "
            f"with {run.model.config.segment_length}."
        )


def _act(
    run: Run, states: ArrayLike, actions: ArrayLike | None, returns: ArrayLike | None
) -> NDArray[Any]:
    state, action = only(run, "state"), only(run, "action")
    history, batched = as_batch(run, state, states)
    T = min(run.model.config.segment_length, history.shape[1])
    B, S = history.shape[:2]
    given: Arrays = {state: history[:, -T:]}
    visible = np.zeros((B, T, len(run.modalities)), bool)
    visible[:, :, index(run, state)] = True
    if actions is not None and S > 1:
        past, _ = as_batch(run, action, actions)
        if past.shape[:2] != (B, S - 1):
            raise DataError(f"{S} states go with {S - 1} past actions, got {past.shape[1]}.")
        given[action] = np.concatenate([past, past[:, :1]], axis=1)[:, -T:]  # the last is hidden
        visible[:, :-1, index(run, action)] = True
    if returns is not None:
        name = only(run, "return")
        asked = np.asarray(returns, np.float32)
        given[name] = np.ascontiguousarray(np.broadcast_to(asked, (B, S))[:, -T:])
        visible[:, -1 if asked.ndim == 0 else 0 :, index(run, name)] = True
    answer = ask(run, given, visible, [action])[action][:, -1]
    return answer if batched else answer[0]
