"""An exported policy: the graph of a capability, and the little that is not network.

It acts as `mtm.control.masked_policy.MaskedPolicy` does, with NumPy and onnxruntime alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mtm.core.errors import ConfigError, DataError
from mtm.deploy.graph import Graph
from mtm.deploy.policy_file import PolicyFile, read_policy_file
from mtm.inference.inputs import as_classes


class ExportedPolicy:
    """Acts in n environments at once; `mtm.control.policy` has the contract.

    Args:
        exported: What the directory holds.
        capability: `rcbc` or `bc`.
        threads: As for `Graph`.

    Attributes:
        states: What it takes.
        actions: What it gives.
        history: Past steps that it shows.
        target: The return that it asks for first; None for cloning.
    """

    def __init__(self, exported: PolicyFile, capability: str, threads: int = 1) -> None:
        graphs = exported.named(capability)
        if capability not in exported.acting:
            raise ConfigError(
                f"{capability!r} is no policy: it takes and gives whole segments. Load it with "
                "mtm.deploy.load_model."
            )
        acting, known = exported.acting[capability], exported.modalities
        self.path, self.capability = exported.path, capability
        self.states, self.actions = known.only("state"), known.only("action")
        self.history, self.target = acting.history, acting.target
        self._rule = acting.returns
        self._returns = None if acting.returns is None else known.only("return")
        self._graphs = [Graph(exported, graph, threads) for graph in graphs]
        self._is_class = self.states.kind == "discrete"
        self.reset(1)

    def reset(self, n: int) -> None:
        """Begin n episodes."""
        if n < 1:
            raise ConfigError(f"a policy acts in at least one environment, got {n}.")
        memory, dtypes = self.history + 1, {"discrete": np.int64, "continuous": np.float32}
        states, actions = (
            np.zeros((n, memory, *m.shape), dtypes[m.kind]) for m in (self.states, self.actions)
        )
        returns = np.full((n, 1), self.target or 0.0, np.float32)
        filled, steps = np.zeros((2, n), np.int64)
        self._begin(states, actions, returns, filled, steps, np.zeros(n))

    def act(self, states: ArrayLike) -> NDArray[Any]:
        """Remember the states and choose an action for each row."""
        if np.shape(states) != self._expected:
            raise DataError(
                f"{self._expected[0]} states of shape {self.states.shape} are expected, got "
                f"{np.shape(states)}; call reset(n) first."
            )
        if self._is_class:
            states = as_classes(self.states, np.asarray(states))
        if self._rule is not None and self._rule.counts_down:
            self._asked[:, 0] = self._rule.left(self._targets, self._gained, self._steps)
        if self.history:
            return self._act_with_history(np.asarray(states))
        self._states[:, 0] = states
        return self._graphs[0](self._feed)[0][:, 0]

    def observe(self, rewards: ArrayLike, dones: ArrayLike) -> None:
        """Count rewards; rows that are done begin a new episode with the next `act`."""
        gained, done = np.asarray(rewards, np.float64), np.asarray(dones, bool)
        n = len(self._steps)
        if gained.shape not in ((n,), ()) or done.shape not in ((n,), ()):
            raise DataError(
                f"{n} rewards and {n} dones are expected, got shapes {gained.shape} and "
                f"{done.shape}; call reset(n) first."
            )
        if self._rule is not None and self._rule.counts_down:
            self._gained += self._rule.worth(self._steps) * gained
        self._steps += 1
        self._filled += 1
        if done.any():
            self._filled[done] = self._steps[done] = 0
            self._gained[done] = 0.0

    def keep(self, rows: NDArray[np.int64]) -> None:
        """Go on with these rows only."""
        self._begin(
            self._states[rows],
            self._actions[rows],
            self._asked[rows],
            self._filled[rows],
            self._steps[rows],
            self._gained[rows],
        )

    def _begin(
        self,
        states: NDArray[Any],
        actions: NDArray[Any],
        returns: NDArray[np.float32],
        filled: NDArray[np.int64],
        steps: NDArray[np.int64],
        gained: NDArray[np.float64],
    ) -> None:
        """Go on with this memory, and hold what every step needs, so that none makes it anew."""
        self._states, self._actions, self._asked = states, actions, returns
        self._filled, self._steps, self._gained = filled, steps, gained
        self._targets = np.full(len(steps), self.target or 0.0)
        self._expected = (len(states), *self.states.shape)
        self._feed: dict[str, NDArray[Any]] = {self.states.name: states}
        if self._returns is not None:
            self._feed[self._returns.name] = returns.reshape(-1, 1, *self._returns.shape)

    def _act_with_history(self, states: NDArray[Any]) -> NDArray[Any]:
        """Rows that remember as many steps share a graph."""
        crowded = self._filled > self.history
        for past in (self._states, self._actions):
            past[crowded] = np.roll(past[crowded], -1, axis=1)
        self._filled[crowded] -= 1
        rows = np.arange(len(states))
        self._states[rows, self._filled] = states
        chosen = np.empty((len(states), *self.actions.shape), self._actions.dtype)
        for past_steps in np.unique(self._filled):
            mine = np.flatnonzero(self._filled == past_steps)
            graph = self._graphs[past_steps]
            known = {
                self.states.name: self._states[mine, : past_steps + 1],
                self.actions.name: self._actions[mine, :past_steps],
            }
            if self._returns is not None:
                name = self._returns.name
                known[name] = self._feed[name][mine]
            chosen[mine] = graph({port.name: known[port.name] for port in graph.inputs})[0][:, 0]
        self._actions[rows, self._filled] = chosen
        return chosen


def load(path: str | Path, capability: str | None = None, *, threads: int = 1) -> ExportedPolicy:
    """Load a policy that `mtm export` wrote.

    Args:
        path: The directory.
        capability: `rcbc` or `bc`; None: the policy that was named first when it was exported.
        threads: That share the work of one step; one is the fastest for few environments.

    Raises:
        RunError: The directory holds nothing that was exported, or something in it has changed.
        ConfigError: It holds no such policy.
        MissingExtraError: onnxruntime is not installed.
    """
    exported = read_policy_file(path)
    if capability is None:
        if not exported.acting:
            raise ConfigError(
                f"{path} holds no policy, but {', '.join(exported.graphs)}: load that with "
                "mtm.deploy.load_model, or export rcbc or bc."
            )
        capability = next(name for name in exported.graphs if name in exported.acting)
    return ExportedPolicy(exported, capability, threads)
