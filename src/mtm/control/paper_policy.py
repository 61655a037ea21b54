"""Acting as the original code does it, to compare with the policies of `mtm.control.policies`.

    task        shows                                                   position of now
    bc          the state now                                           0
    rcbc        past states and actions that fit, the state now,        after the past
                one return at every step, also at those to come
    two_stage   the state and the return now; then, beside them, the    0
                states and returns that the network predicts for the rest

The return is the same all along, whatever was earned.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mtm.control.return_targets import TargetSpec, parse_target, resolve_target
from mtm.core.errors import ConfigError, DataError
from mtm.core.names import ActingTask
from mtm.data.modalities import BoolArray
from mtm.inference.engine import Arrays, ask, dtype_of
from mtm.runs.run import Run


class PaperPolicy:
    """Acts with one model in one of the original's ways.

    Args:
        run: A trained run with one modality each of role state and action.
        task: `bc`, `rcbc` or `two_stage`.
        target: The return to ask for, in the units of `returns`; None, and only then, for `bc`.

    Raises:
        ConfigError: The run lacks a role, or the target does not go with the task.
    """

    def __init__(self, run: Run, task: ActingTask, target: float | None = None) -> None:
        if (target is None) != (task == "bc"):
            raise ConfigError(f"{task} with the target {target}: cloning asks for no return.")
        self.run, self.task, self.target = run, task, target
        known = run.modalities
        self.states, self.actions = known.only("state"), known.only("action")
        self.returns = None if target is None else known.only("return")
        self.length = run.segment_length
        self.reset(1)

    def reset(self, n: int) -> None:
        """Begin n episodes."""
        T = self.length
        self._past_states = np.zeros((n, T, *self.states.shape), dtype_of(self.states))
        self._past_actions = np.zeros((n, T, *self.actions.shape), dtype_of(self.actions))
        self._now = np.zeros(n, np.int64)  # position of the current step, after the past

    def act(self, states: NDArray[Any]) -> NDArray[Any]:
        """Remember the states and choose an action for each row."""
        n = len(self._now)
        if np.shape(states) != (n, *self.states.shape):
            raise DataError(
                f"{n} states of shape {self.states.shape} are expected, got {np.shape(states)}; "
                "call reset(n) first."
            )
        rows = np.arange(n)
        self._past_states[rows, self._now] = states
        window, visible = self._shown()
        if self.task == "two_stage":
            self._imagine(window, visible)
        wanted = np.zeros_like(visible)
        wanted[rows, self._now, self._place(self.actions.name)] = True
        answer = ask(self.run, window, visible, [self.actions.name], wanted)
        chosen = answer[self.actions.name][rows, self._now]
        self._past_actions[rows, self._now] = chosen
        return chosen

    def observe(self, rewards: NDArray[Any], dones: BoolArray) -> None:
        """Go on by a step; rows that are done begin a new episode with the next `act`."""
        self._now[np.asarray(dones, bool)] = -1
        if self.task == "rcbc":
            self._now += 1
        else:
            self._now[:] = 0
        crowded = self._now == self.length
        for past in (self._past_states, self._past_actions):
            past[crowded] = np.roll(past[crowded], -1, axis=1)
        self._now[crowded] -= 1

    def keep(self, rows: NDArray[np.int64]) -> None:
        """Go on with these rows only."""
        self._past_states, self._past_actions = self._past_states[rows], self._past_actions[rows]
        self._now = self._now[rows]

    def _shown(self) -> tuple[Arrays, BoolArray]:
        """What is remembered and asked for, and which tokens of it are shown, (n, T, M)."""
        time, now = np.arange(self.length)[None, :], self._now[:, None]
        visible = np.zeros((len(now), self.length, len(self.run.modalities)), bool)
        visible[:, :, self._place(self.states.name)] = time <= now
        visible[:, :, self._place(self.actions.name)] = time < now
        window: Arrays = {
            self.states.name: self._past_states.copy(),
            self.actions.name: self._past_actions,
        }
        if self.returns is not None:
            shape = (len(now), self.length, *self.returns.shape)
            window[self.returns.name] = np.full(shape, self.target, np.float32)
            everywhere = self.task == "rcbc"
            visible[:, :, self._place(self.returns.name)] = everywhere | (time == now)
        return window, visible

    def _imagine(self, window: Arrays, visible: BoolArray) -> None:
        """Show also what the network predicts of the states and returns to come."""
        assert self.returns is not None
        names = [self.states.name, self.returns.name]
        imagined = ask(self.run, window, visible, names)
        for name in names:
            window[name][:, 1:] = imagined[name][:, 1:]
            visible[:, :, self._place(name)] = True

    def _place(self, name: str) -> int:
        return self.run.modalities.place(name)


def paper_target(run: Run, spec: TargetSpec = "auto") -> float:
    """A target as the original says it: between the lowest and the highest return of any step.

    Args:
        run: A trained run.
        spec: `fraction:0.9` lies between the lowest (0) and the highest (1), and may lie beyond;
            `auto` is the highest. All else is as for `mtm.control.return_targets.resolve_target`.

    Raises:
        ConfigError: As `resolve_target`.
    """
    unit, number = ("fraction", 1.0) if spec == "auto" else parse_target(spec)
    if unit != "fraction":
        return resolve_target(run, spec)
    returns = run.normalizer.statistics[run.modalities.only("return").name]
    low, high = float(returns.low), float(returns.high)
    return low + number * (high - low)
