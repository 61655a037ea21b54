"""Acting in a process of its own, with this code or an older one."""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.timing import take_turn

CALLS = 30
"""Actions of a turn; their median counts."""


EPISODES = 20
"""Of each of the seven policies."""


class RandomActions:
    """Uniform actions, without a model."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def reset(self, n: int) -> None:
        """Nothing to forget."""

    def act(self, states: NDArray[Any]) -> NDArray[Any]:
        """Three numbers for each row."""
        return self._rng.uniform(-1, 1, (len(states), 3)).astype(np.float32)

    def observe(self, rewards: NDArray[Any], dones: NDArray[np.bool_]) -> None:
        """Nothing to learn."""

    def keep(self, rows: NDArray[np.int64]) -> None:
        """Nothing to drop."""


def seven_policies(ways: Any, run: Any) -> dict[str, Any]:
    """Cloning and six targets, made by `mtm.policies`, or by that of older code."""
    named: dict[str, Any] = {"bc": ways.behavior_cloning(run)}
    for fraction in np.linspace(0.5, 1.0, 6):
        named[f"{fraction:.1f}"] = ways.return_conditioned(run, f"fraction:{fraction}")
    return named


def main() -> None:
    """Take a turn whenever `seconds_in_turns` wants one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("action", "rollout"))
    parser.add_argument("--batch", type=int, default=1, help="environments of an action")
    parser.add_argument("--random", action="store_true", help="roll out without a model")
    parser.add_argument("--exported", type=Path, help="act with what was exported into a folder")
    parser.add_argument("--source", type=Path, help="a checkout; this code's if none is given")
    arguments = parser.parse_args()
    if arguments.source is not None:
        sys.path.insert(0, str(arguments.source / "src"))
        os.environ["PYTHONPATH"] = sys.path[0]  # older code starts its processes by module name
    if arguments.what == "action":
        torch.set_num_threads(1)
        turn = _action(_policy(arguments.exported), arguments.batch)
    else:
        turn = _rollout(small_training(), random=arguments.random)
    seconds = 0.0
    while True:
        take_turn(seconds)
        seconds = turn()


def small_training() -> Any:
    """A run of the `cpu` size; what it has learned does not matter."""
    import mtm

    config = mtm.preset("cpu")
    config = replace(config, steps=2, batch_size=64, validate_every=2, checkpoint_every=2)
    config = replace(config, validation_segments=64)
    config = replace(config, optimizer=replace(config.optimizer, warmup_steps=1))
    with tempfile.TemporaryDirectory() as folder:
        return mtm.train("builtin:hopper", config, Path(folder) / "run", silent=True)


def _policy(exported: Path | None) -> Any:
    if exported is None:
        return _module("policies").return_conditioned(small_training(), "fraction:0.9")
    from mtm import deploy

    return deploy.load(exported)


def _action(policy: Any, batch: int) -> Callable[[], float]:
    """Seconds of a return-conditioned action in so many environments, amid their episodes."""
    policy.reset(batch)
    states = np.random.default_rng(0).normal(size=(batch, 11)).astype(np.float32)
    rewards, dones = np.ones(batch), np.zeros(batch, bool)

    def turn() -> float:
        taken = []
        for _ in range(CALLS):
            began = time.perf_counter()
            policy.act(states)
            taken.append(time.perf_counter() - began)
            policy.observe(rewards, dones)
        return statistics.median(taken)

    return turn


def _rollout(run: Any, *, random: bool) -> Callable[[], float]:
    """Seconds of a step of 7 policies in 20 environments each, the start of processes included."""
    from benchmarks.endless_hopper import ENV_ID, STEPS

    roll_out = _module("rollout").rollout
    acting = seven_policies(_module("policies"), run)
    if random:
        acting = {name: RandomActions(i) for i, name in enumerate(acting)}

    def turn() -> float:
        began = time.perf_counter()
        roll_out(acting, ENV_ID, episodes=EPISODES)
        return (time.perf_counter() - began) / STEPS

    return turn


def _module(name: str) -> Any:
    """A module of the room `control`, which older code does not have."""
    control = importlib.util.find_spec("mtm.control") is not None
    return importlib.import_module(f"mtm.control.{name}" if control else f"mtm.{name}")


if __name__ == "__main__":
    main()
