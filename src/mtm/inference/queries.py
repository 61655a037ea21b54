"""Questions to a trained model: given these tokens, what are those?

`predict` asks anything. The named capabilities below it are the same call with another choice of
what is given. All take and give raw units as NumPy arrays: `(S, *shape)` for one trajectory of S
steps, `(B, S, *shape)` for a batch.

A trajectory longer than the model's segment is asked in windows (see `mtm.inference.windowing`);
`forward_dynamics` chains: each predicted state becomes part of the history of the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from mtm.core.errors import ConfigError, DataError
from mtm.inference.engine import Arrays, ask_capability, batches
from mtm.inference.inputs import Given, as_batch, as_goals, as_returns, as_values
from mtm.inference.overflow import check_answers
from mtm.inference.windowing import fill
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
    names = [want] if isinstance(want, str) or not isinstance(want, Iterable) else list(want)
    for name in names:
        if not isinstance(name, str):
            raise DataError(f"want must be names of modalities, got {name!r}.")
        run.modalities.named(name)
    known = Given.of(run, given, present or {})
    filled = fill(run, known, names)
    check_answers(run, known.values, filled, known.visible)
    return filled if known.batched else {name: values[0] for name, values in filled.items()}


def impute(
    run: Run, given: Mapping[str, ArrayLike], *, present: Mapping[str, ArrayLike] | None = None
) -> Arrays:
    """Fill the gaps (NaN, or not `present`) of every modality that is given in part."""
    return predict(run, given, list(given), present=present)


def inverse_dynamics(run: Run, states: ArrayLike) -> NDArray[Any]:
    """The actions that lead through a sequence of states; the last one leads beyond it."""
    state, action = (run.modalities.only(role).name for role in ("state", "action"))
    return predict(run, {state: states}, action)[action]


def behavior_cloning(
    run: Run,
    states: ArrayLike,
    actions: ArrayLike | None = None,
    *,
    history: int | None = 0,
) -> NDArray[Any]:
    """The action at the last of some states (..., S, *shape), as the data's policies would act.

    It is what `mtm.policies.behavior_cloning` does at that step.

    Args:
        run: A trained run.
        states: The past states with the current one last.
        actions: The past actions (..., S - 1, *shape), if known; shown within `history`.
        history: Past steps to show; None: as many as fit.
    """
    return _act(run, "bc", states, actions, None, history)


def return_conditioned(
    run: Run,
    states: ArrayLike,
    returns: ArrayLike,
    actions: ArrayLike | None = None,
    *,
    history: int | None = 0,
) -> NDArray[Any]:
    """The action at the last of some states that goes with a return.

    It is what `mtm.policies.return_conditioned` does at that step.

    Args:
        run: A trained run.
        states: The past states with the current one last, (..., S, *shape).
        returns: The return-to-go to ask for at the last step: one number, or for a batch one for
            each trajectory, (B,); or at each step, (S,) or (B, S). In the units of the modality
            `returns` (an average per step unless configured otherwise).
        actions: The past actions (..., S - 1, *shape), if known; shown within `history`.
        history: Past steps to show; None: as many as fit.
    """
    return _act(run, "rcbc", states, actions, returns, history)


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
    state, action = (run.modalities.only(role).name for role in ("state", "action"))
    known, batched = as_batch(run, state, states)
    taken, _ = as_batch(run, action, actions)
    H = taken.shape[1] - known.shape[1] + 1
    if H < 1 or len(taken) != len(known):
        raise DataError(
            f"{known.shape[1]} states need at least as many actions in each of {len(known)} "
            f"trajectories, got {taken.shape[1]} in {len(taken)}."
        )
    for step in range(known.shape[1], known.shape[1] + H):
        past = slice(max(step - (run.segment_length - 1), 0), step)
        window = {state: known[:, past], action: taken[:, past]}
        answer = _ask_at_the_end(run, "fd", window)[state]
        now = window[state].shape[1] - 1
        known = np.concatenate([known, answer[:, now + 1 : now + 2]], axis=1)
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
    name, action = (run.modalities.only(role).name for role in ("state", "action"))
    T = run.segment_length
    if not 1 <= steps < T:
        raise ConfigError(
            f"a goal must be 1 to {T - 1} steps ahead, got {steps}: the model sees {T} steps at "
            "once. Give waypoints with `predict`, or train with a longer segment_length."
        )
    history, batched = as_batch(run, name, states)
    kept = history[:, -(T - steps) :]
    ahead = np.zeros((len(kept), steps, *kept.shape[2:]), kept.dtype)
    ahead[:, -1] = as_goals(run, name, goal, len(kept) if batched else None)
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
        (..., D) for states; (..., 2 * D) for states and actions, one after the other. K members
        give K times as many features, those of each token side by side.

    Raises:
        ConfigError: The run's network is not the transformer.
        DataError: Values do not fit the model.
    """
    model = run.transformer
    state, given = run.modalities.only("state"), {"state": states}
    if actions is not None:
        given["action"] = actions
    parts: Arrays = {}
    for role, values in given.items():
        m = run.modalities.only(role)  # type: ignore[arg-type]
        parts[m.name] = as_values(run, m.name, values).reshape(-1, *m.shape)
    leading = np.shape(states)[: np.ndim(states) - len(state.shape)]
    if len({len(p) for p in parts.values()}) > 1:
        raise DataError("represent needs as many actions as states.")
    pieces = [np.zeros((0, len(parts) * model.members * model.config.width), np.float32)]
    for part in batches(len(parts[state.name]), run.members):
        with torch.inference_mode():
            raw = {name: torch.from_numpy(p[part]).to(run.device) for name, p in parts.items()}
            inputs = {name: run.normalizer.normalize(name, v) for name, v in raw.items()}
            pieces.append(model.encode_step(inputs).flatten(1).cpu().numpy())
    latent = np.concatenate(pieces)
    return latent.reshape(*leading, latent.shape[1])


def _act(
    run: Run,
    capability: str,
    states: ArrayLike,
    actions: ArrayLike | None,
    returns: ArrayLike | None,
    history: int | None,
) -> NDArray[Any]:
    """The action at the last state, by a capability that wants it."""
    state, action = (run.modalities.only(role).name for role in ("state", "action"))
    seen, batched = as_batch(run, state, states)
    B, S = seen.shape[:2]
    shown = _steps_to_show(run, S, history)
    window: Arrays = {state: seen[:, -shown:]}
    if actions is not None and S > 1:
        past, _ = as_batch(run, action, actions)
        if past.shape[:2] != (B, S - 1):
            raise DataError(f"{S} states go with {S - 1} past actions, got {past.shape[1]}.")
        window[action] = np.concatenate([past, past[:, :1]], axis=1)[:, -shown:]  # now is hidden
    per_step = True
    if returns is not None:
        name = run.modalities.only("return").name
        asked, per_step = as_returns(run, name, returns, (B, S), batched=batched)
        window[name] = asked[:, -shown:]
    last_only = () if per_step else (run.modalities.only("return").name,)
    answer = _ask_at_the_end(run, capability, window, last_only)[action][:, shown - 1]
    return answer if batched else answer[0]


def _ask_at_the_end(
    run: Run, capability: str, window: Arrays, last_only: Sequence[str] = ()
) -> Arrays:
    """Ask a capability at the last step of a window, all of which is known.

    Args:
        run: A trained run.
        capability: Which.
        window: Modality -> (B, S, *shape).
        last_only: Modalities of which only the last step is known.
    """
    B, S = next(iter(window.values())).shape[:2]
    known = np.zeros((B, S, len(run.modalities)), bool)
    for name in window:
        known[:, S - 1 if name in last_only else 0 :, run.modalities.place(name)] = True
    answers = ask_capability(run, capability, window, known, np.full(B, S - 1))
    check_answers(run, window, answers, known)
    return answers


def _steps_to_show(run: Run, steps: int, history: int | None) -> int:
    """How many of the last steps the model sees: the current one, and some before it."""
    if history is not None and not 0 <= history < run.segment_length:
        raise ConfigError(
            f"history must be 0 to {run.segment_length - 1} (the model sees {run.segment_length} "
            f"steps, the current one among them), got {history}."
        )
    fits = run.segment_length if history is None else history + 1
    return min(fits, steps)
