"""What comes of actions, as the model sees it: forward dynamics, one batch for all sequences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mtm.data.modalities import Modality
from mtm.inference.certainty import Answers, ask_how_sure
from mtm.inference.engine import Arrays, dtype_of
from mtm.masks import NAMED_MASKS
from mtm.runs.run import Run


@dataclass(frozen=True)
class Imagined:
    """What the model expects to follow, for B sequences of H actions.

    Attributes:
        states: After each action, (B, H, *shape).
        doubt: How unsure the model is of each of them, (B, H): the mean variance of a state's
            numbers, where the variance of the data is 1. Zero if the run does not predict it.
        rewards: For each action, (B, H); None if the run does not model them.
    """

    states: NDArray[Any]
    doubt: NDArray[np.float32]
    rewards: NDArray[np.float32] | None


def imagine(
    run: Run, states: NDArray[Any], actions: NDArray[Any], *, per_pass: int | None = 1
) -> Imagined:
    """The states that follow when some actions are taken, open loop.

    Imagined states become part of the history of the next ones.

    Args:
        run: A trained run with one modality each of role state and action.
        states: The history with the current state last, (B, S, *shape).
        actions: Those at these states and after them, (B, S - 1 + H, *shape).
        per_pass: How many states one forward pass predicts. With one, each is predicted from the
            one before it; with more, only the last of a pass is, by what the actions say; None: as
            many as fit.
    """
    action, state = run.modalities.only("action"), run.modalities.only("state")
    reward, length = reward_modality(run), run.segment_length
    B, past, total = len(states), states.shape[1], actions.shape[1] + 1
    stride = length - 1 if per_pass is None else min(per_pass, length - 1)
    known = np.zeros((B, total, *state.shape), dtype_of(state))
    known[:, :past] = states
    doubt, rewards = np.zeros((B, total), np.float32), np.zeros((B, total), np.float32)
    for now in range(past, total, stride):  # states before it are known
        end = min(now + stride, total)
        first = max(end - length, 0)
        window = {state.name: known[:, first:now], action.name: actions[:, first : end - 1]}
        answers = _forward_dynamics(run, window)
        ahead = slice(now - first, end - first)
        known[:, now:end] = answers.values[state.name][:, ahead]
        doubt[:, now:end] = _doubt(run, state, answers)[:, ahead]
        if reward is not None:  # of the action that leads to a state
            earned = answers.values[reward.name].reshape(B, length)
            rewards[:, now:end] = earned[:, ahead.start - 1 : ahead.stop - 1]
    new = slice(past, None)
    return Imagined(known[:, new], doubt[:, new], None if reward is None else rewards[:, new])


def reward_modality(run: Run) -> Modality | None:
    """The modality of role reward, if the run models one: one number per step."""
    found = run.modalities.of_role("reward")
    return found[0] if len(found) == 1 and found[0].size == 1 else None


def _forward_dynamics(run: Run, window: Arrays) -> Answers:
    """Ask for the states that the actions lead to after those of the window, and for rewards."""
    action, state = (run.modalities.only(role).name for role in ("action", "state"))
    B, known_states, taken = *window[state].shape[:2], window[action].shape[1]
    place, reward = run.modalities.place, reward_modality(run)
    known = np.zeros((B, run.segment_length, len(run.modalities)), bool)
    known[:, :known_states, place(state)] = True
    known[:, :taken, place(action)] = True
    visible = NAMED_MASKS["fd"].question(run.modalities, run.segment_length, taken - 1).visible
    wanted = np.zeros_like(known)
    wanted[:, known_states : taken + 1, place(state)] = True
    if reward is not None:
        wanted[:, known_states - 1 : taken, place(reward.name)] = True
    want = [state] if reward is None else [state, reward.name]
    filled = {name: _of_length(run.segment_length, values) for name, values in window.items()}
    return ask_how_sure(run, filled, visible & known, want, wanted)


def _doubt(run: Run, state: Modality, answers: Answers) -> NDArray[np.float32]:
    """How unsure the model is of states, (B, T): with members, their disagreement is a part."""
    B, T = answers.values[state.name].shape[:2]
    if state.name not in answers.deviations:
        return np.zeros((B, T), np.float32)
    shares = answers.deviations[state.name] / run.normalizer.statistics[state.name].std
    variance: NDArray[np.float32] = (shares**2).reshape(B, T, -1).mean(axis=2)
    return variance


def _of_length(length: int, values: NDArray[Any]) -> NDArray[Any]:
    """Values of so many steps; zeros where there are none."""
    padding = [(0, 0), (0, length - values.shape[1])] + [(0, 0)] * (values.ndim - 2)
    return np.pad(values, padding)
