"""Questions to a trained model: given these tokens, what are those?

`predict` asks anything. The named capabilities below it are the same call with another choice of
what is given. All take and give raw units as NumPy arrays: `(S, *shape)` for one trajectory of S
steps, `(B, S, *shape)` for a batch.

A trajectory longer than the model's segment is covered by windows that overlap by half; a token's
answer comes from the window in which it lies most central. `forward_dynamics` chains instead: each
predicted state becomes part of the history of the next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from mtm.errors import ConfigError, DataError, unknown
from mtm.model import Layout
from mtm.run import Run
from mtm.trajectories import BoolArray, Modality, Role

Arrays: TypeAlias = dict[str, NDArray[Any]]

LARGEST_BATCH = 4096
"""Windows in one forward pass; more are asked in several."""


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
        given: Modality -> values (S, *shape) or (B, S, *shape). NaN marks a gap.
        want: Names of the modalities to return.
        present: Modality -> booleans (S,) or (B, S), False at gaps; the only way to mark gaps of a
            discrete modality.

    Returns:
        Each wanted modality at every step: what was given where it was, predictions elsewhere.

    Raises:
        DataError: Nothing is given, a name is unknown, or a shape does not fit the model.
    """
    names = [want] if isinstance(want, str) else list(want)
    for name in names:
        modality_of(run, name)
    question = _Question.of(run, given, present or {})
    filled = _fill(run, question, names)
    return filled if question.batched else {name: values[0] for name, values in filled.items()}


def impute(
    run: Run, given: Mapping[str, ArrayLike], *, present: Mapping[str, ArrayLike] | None = None
) -> Arrays:
    """Fill the gaps (NaN, or not `present`) of every modality that is given in part."""
    return predict(run, given, list(given), present=present)


def inverse_dynamics(run: Run, states: ArrayLike) -> NDArray[Any]:
    """The actions that lead through a sequence of states; the last one leads beyond it."""
    return predict(run, {_only(run, "state"): states}, _only(run, "action"))[_only(run, "action")]


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
        returns: Return-to-go at each of these steps, or one number for all, in the units of the
            modality `returns` (an average per step unless configured otherwise).
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
    state, action = _only(run, "state"), _only(run, "action")
    known, batched = _as_batch(run, state, states)
    taken, _ = _as_batch(run, action, actions)
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
            visible[:, :-1, _index(run, name)] = True
        answer = ask(run, window, visible, [state])[state][:, -1:]
        known = np.concatenate([known, answer], axis=1)
    future = known[:, -H:]
    return future if batched else future[0]


def reach_goal(run: Run, states: ArrayLike, goal: ArrayLike, steps: int) -> Arrays:
    """The way from a history to a goal state in `steps` steps.

    Args:
        run: A trained run.
        states: The history with the current state last, (..., S, *shape).
        goal: The state to be in, (..., *shape).
        steps: When to be there, counted from the current state; the model sees T steps at once.

    Returns:
        The states from the current one to the goal, (..., steps + 1, *shape), and the actions from
        the current one on, (..., steps, *shape).
    """
    name, action = _only(run, "state"), _only(run, "action")
    T = run.model.config.segment_length
    if not 1 <= steps < T:
        raise ConfigError(
            f"a goal must be 1 to {T - 1} steps ahead, got {steps}: the model sees {T} steps at "
            "once. Give waypoints with `predict`, or train with a longer segment_length."
        )
    history, batched = _as_batch(run, name, states)
    target = np.asarray(goal, np.float32)
    target = target if batched else target[None]
    kept = history[:, -(T - steps) :]
    S = kept.shape[1] + steps
    path = np.full((len(kept), S, *kept.shape[2:]), np.nan, np.float32)
    path[:, : kept.shape[1]] = kept
    path[:, -1] = target
    answer = predict(run, {name: path}, [name, action])
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
    """
    names = [_only(run, "state")] + ([] if actions is None else [_only(run, "action")])
    parts: Arrays = {}
    for name, values in zip(names, (states, actions), strict=False):
        m = modality_of(run, name)
        array = np.asarray(values, np.float32)
        if array.shape[array.ndim - len(m.shape) :] != m.shape:
            raise DataError(_misfit(run, m, array.shape))
        parts[name] = array.reshape(-1, 1, *m.shape)
    leading = np.asarray(states).shape[
        : np.asarray(states).ndim - len(modality_of(run, names[0]).shape)
    ]
    if len({len(p) for p in parts.values()}) > 1:
        raise DataError("represent needs as many actions as states.")
    visible = np.zeros((len(parts[names[0]]), 1, len(run.modalities)), bool)
    for name in names:
        visible[:, :, _index(run, name)] = True
    pieces = []
    for part in _batches(len(visible)):
        tensors = _tensors(run, {n: p[part] for n, p in parts.items()}, visible[part])
        shown = torch.from_numpy(visible[part].reshape(len(visible[part]), -1))
        with torch.inference_mode():
            layout = Layout.of(shown, _device(run))
            pieces.append(run.model.encode(tensors, shown, layout).cpu().numpy())
    latent = np.concatenate(pieces)
    return latent.reshape(*leading, len(names) * latent.shape[1])


def ask(
    run: Run,
    window: Arrays,
    visible: BoolArray,
    want: Sequence[str],
    wanted: BoolArray | None = None,
) -> Arrays:
    """One window per sample, in raw units: the call that everything comes down to.

    A window shorter than a segment is answered as one whose later steps are hidden, because whole
    segments are what the model was trained on.

    Args:
        run: A trained run.
        window: Modality -> (B, T, *shape); modalities that are left out must not be visible.
        visible: (B, T, M).
        want: Names.
        wanted: The tokens that matter, (B, T, M); all of the wanted modalities if None.

    Returns:
        Each wanted modality, (B, T, *shape); the likeliest class of a discrete one.
    """
    T = visible.shape[1]
    if wanted is None:
        wanted = np.zeros_like(visible)
        wanted[:, :, [_index(run, name) for name in want]] = True
    lacking = run.model.config.segment_length - T
    if lacking > 0:
        visible, wanted = _lengthen(visible, lacking), _lengthen(wanted, lacking)
        window = {name: _lengthen(values, lacking) for name, values in window.items()}
    answers: dict[str, list[NDArray[Any]]] = {name: [] for name in want}
    for part in _batches(len(visible)):
        tensors = _tensors(run, {n: v[part] for n, v in window.items()}, visible[part])
        flat = (len(visible[part]), -1)
        shown = torch.from_numpy(visible[part].reshape(flat))
        asked = torch.from_numpy(wanted[part].reshape(flat))
        with torch.inference_mode():
            out = run.model(tensors, shown, asked)
        for name in want:
            if modality_of(run, name).kind == "discrete":
                answers[name].append(out[name].argmax(dim=-1).cpu().numpy())
            else:
                answers[name].append(run.normalizer.denormalize(name, out[name]).cpu().numpy())
    return {name: np.concatenate(parts)[:, :T] for name, parts in answers.items()}


def modality_of(run: Run, name: str) -> Modality:
    """The run's modality of a name.

    Raises:
        DataError: It has none; the message lists the near ones.
    """
    for m in run.modalities:
        if m.name == name:
            return m
    raise DataError(unknown("modality", name, [m.name for m in run.modalities]))


class _Question:
    """Given values as a full batch: an array and a presence for every modality."""

    def __init__(self, values: Arrays, visible: BoolArray, batched: bool) -> None:
        self.values, self.visible, self.batched = values, visible, batched

    @classmethod
    def of(
        cls, run: Run, given: Mapping[str, ArrayLike], present: Mapping[str, ArrayLike]
    ) -> _Question:
        if not given:
            raise DataError(
                "the question gives nothing; give at least one modality of "
                f"{', '.join(m.name for m in run.modalities)}."
            )
        arrays, batched = {}, set()
        for name, values in given.items():
            arrays[name], is_batch = _as_batch(run, name, values)
            batched.add(is_batch)
        sizes = {name: a.shape[:2] for name, a in arrays.items()}
        if len(set(sizes.values())) > 1 or len(batched) > 1:
            listed = ", ".join(f"{n} {b} x {s}" for n, (b, s) in sizes.items())
            raise DataError(f"all given modalities need the same batch and steps, got {listed}.")
        B, S = next(iter(sizes.values()))
        visible = np.zeros((B, S, len(run.modalities)), bool)
        for name, array in arrays.items():
            visible[:, :, _index(run, name)] = _known(name, array, present.get(name))
        for name in present:
            if name not in arrays:
                raise DataError(unknown("modality in `present`:", name, arrays))
        if not visible.any():
            raise DataError("the question gives nothing: every value is a gap.")
        return cls(arrays, visible, batched.pop())


def _fill(run: Run, question: _Question, names: Sequence[str]) -> Arrays:
    """Cover the steps with windows, ask them all at once, keep the most central answers."""
    B, S, M = question.visible.shape
    T = min(run.model.config.segment_length, S)
    starts = _window_starts(S, T)
    steps = starts[:, None] + np.arange(T)  # (W, T)
    visible = question.visible[:, steps].reshape(B * len(starts), T, M)
    window = {
        name: values[:, steps].reshape(B * len(starts), T, *values.shape[2:])
        for name, values in question.values.items()
    }
    answers = ask(run, window, visible, names)
    best, place = _most_central(starts, S, T)
    filled = {}
    for name in names:
        m = modality_of(run, name)
        answer = answers[name].reshape(B, len(starts), T, *m.shape)[:, best, place]
        if name in question.values:
            known = question.visible[:, :, _index(run, name)].reshape(B, S, *[1] * len(m.shape))
            answer = np.where(known, question.values[name], answer)
        filled[name] = answer
    return filled


def _window_starts(steps: int, length: int) -> NDArray[np.int64]:
    """Starts of windows that overlap by half and cover all steps."""
    stride = max(length // 2, 1)
    starts = np.arange(0, max(steps - length, 0) + 1, stride)
    if starts[-1] + length < steps:
        starts = np.append(starts, steps - length)
    return starts


def _most_central(
    starts: NDArray[np.int64], steps: int, length: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For each step the window in which it lies furthest from an edge, and its place there."""
    place = np.arange(steps)[:, None] - starts[None, :]  # (S, W)
    margin = np.minimum(place, length - 1 - place)
    best = margin.argmax(axis=1)
    return best, place[np.arange(steps), best]


def _act(
    run: Run, states: ArrayLike, actions: ArrayLike | None, returns: ArrayLike | None
) -> NDArray[Any]:
    state, action = _only(run, "state"), _only(run, "action")
    history, batched = _as_batch(run, state, states)
    T = min(run.model.config.segment_length, history.shape[1])
    B, S = history.shape[:2]
    given: Arrays = {state: history[:, -T:]}
    visible = np.zeros((B, T, len(run.modalities)), bool)
    visible[:, :, _index(run, state)] = True
    if actions is not None and S > 1:
        past, _ = _as_batch(run, action, actions)
        if past.shape[:2] != (B, S - 1):
            raise DataError(f"{S} states go with {S - 1} past actions, got {past.shape[1]}.")
        given[action] = np.concatenate([past, past[:, :1]], axis=1)[:, -T:]  # the last is hidden
        visible[:, :-1, _index(run, action)] = True
    if returns is not None:
        name = _only(run, "return")
        asked = np.asarray(returns, np.float32)
        given[name] = np.ascontiguousarray(np.broadcast_to(asked, (B, S))[:, -T:])
        visible[:, :, _index(run, name)] = True
    answer = ask(run, given, visible, [action])[action][:, -1]
    return answer if batched else answer[0]


def _only(run: Run, role: Role) -> str:
    """The one modality of a role.

    Raises:
        ConfigError: There is none, or there are several: then only `predict` can be asked.
    """
    names = [m.name for m in run.modalities if m.role == role]
    if len(names) != 1:
        raise ConfigError(
            f"this capability needs exactly one modality of role {role!r}, the run has "
            f"{', '.join(names) or 'none'}. Use predict(given, want), which takes any."
        )
    return names[0]


def _need_length(run: Run, length: int) -> None:
    if run.model.config.segment_length < length:
        raise ConfigError(
            f"this capability needs a segment_length of at least {length}, the run was trained "
            f"with {run.model.config.segment_length}."
        )


def _as_batch(run: Run, name: str, values: ArrayLike) -> tuple[NDArray[Any], bool]:
    """Values as (B, S, *shape), and whether they came as a batch."""
    m = modality_of(run, name)
    kind = np.int64 if m.kind == "discrete" else np.float32
    try:
        array = np.asarray(values, kind)
    except (TypeError, ValueError) as error:
        raise DataError(f"modality {name!r} must be numbers: {error}.") from error
    extra = array.ndim - len(m.shape)
    if array.shape[max(extra, 0) :] != m.shape or extra not in (1, 2):
        raise DataError(_misfit(run, m, array.shape))
    if 0 in array.shape[:extra]:
        raise DataError(f"modality {name!r} has no steps: shape {array.shape}.")
    return (array, True) if extra == 2 else (array[None], False)


def _misfit(run: Run, m: Modality, shape: tuple[int, ...]) -> str:
    return (
        f"modality {m.name!r} has shape {shape}; this model was trained on values of shape "
        f"{m.shape} per step ({run.path / 'config.json'}), with one axis for steps and an optional "
        "one for a batch before it."
    )


def _known(name: str, array: NDArray[Any], present: ArrayLike | None) -> BoolArray:
    known = np.ones(array.shape[:2], bool)
    if array.dtype.kind == "f":
        known = ~np.isnan(array).reshape(*array.shape[:2], -1).any(axis=2)
        if np.isinf(array).any():
            raise DataError(f"modality {name!r} holds infinite values; use NaN for a gap.")
    if present is not None:
        mask = np.asarray(present)
        if mask.dtype != np.bool_ or mask.shape not in (array.shape[:2], array.shape[1:2]):
            raise DataError(
                f"present[{name!r}] must be booleans of shape {array.shape[:2]}, got {mask.dtype} "
                f"of shape {mask.shape}."
            )
        known &= mask
    return known


def _lengthen(values: NDArray[Any], steps: int) -> NDArray[Any]:
    """More steps of zeros at the end of axis 1."""
    return np.pad(values, [(0, 0), (0, steps)] + [(0, 0)] * (values.ndim - 2))


def _tensors(run: Run, window: Arrays, visible: BoolArray) -> dict[str, torch.Tensor]:
    """Normalised tensors of every modality; zeros for those that are not in the window."""
    B, T = visible.shape[:2]
    tensors = {}
    for m in run.modalities:
        if m.name in window:
            raw = torch.from_numpy(np.ascontiguousarray(window[m.name])).to(_device(run))
            tensors[m.name] = run.normalizer.normalize(m.name, raw)
        else:
            kind = torch.int64 if m.kind == "discrete" else torch.float32
            tensors[m.name] = torch.zeros(B, T, *m.shape, dtype=kind, device=_device(run))
    return tensors


def _device(run: Run) -> torch.device:
    return run.model.mask_tokens.device


def _index(run: Run, name: str) -> int:
    return [m.name for m in run.modalities].index(name)


def _batches(count: int) -> list[slice]:
    return [slice(i, i + LARGEST_BATCH) for i in range(0, count, LARGEST_BATCH)]
