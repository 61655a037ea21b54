"""Acting: lockstep against one environment at a time, and against no model at all."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.acting_process import EPISODES, RandomActions, seven_policies
from benchmarks.endless_hopper import ENV_ID, STEPS
from benchmarks.timing import Row, seconds_per_call
from mtm.control import policies
from mtm.control.policies import Policy
from mtm.control.rollout import rollout
from mtm.core.config import preset
from mtm.inference import queries
from mtm.training.train import train

ROUNDS = 3
"""Each kind of acting is measured so often, in turns: a shared machine is not always as fast."""


def measure() -> list[Row]:
    """Environment steps per second of 7 policies x 20 episodes, and inference latency."""
    with tempfile.TemporaryDirectory() as folder:
        config = replace(preset("cpu"), steps=100, validate_every=100, checkpoint_every=100)
        config = replace(config, optimizer=replace(config.optimizer, warmup_steps=10))
        run = train("builtin:hopper", config, Path(folder) / "run", silent=True)
    seven = seven_policies(policies, run)
    chance: dict[str, Policy] = {name: RandomActions(i) for i, name in enumerate(seven)}
    alone: dict[str, Policy] = {"auto": policies.return_conditioned(run)}
    lockstep, single, without = _steps_per_second((seven, EPISODES), (alone, 1), (chance, EPISODES))
    rows = [
        Row("evaluation", "7 policies x 20 episodes", lockstep, "env steps/s"),
        Row("evaluation", "one environment, batch 1", single, "env steps/s"),
        Row("evaluation", "random actions, no model", without, "env steps/s"),
        Row("evaluation", "7 x 20 / batch 1", lockstep / single, "times", "at least 15"),
        Row("evaluation", "7 x 20 / no model", lockstep / without, "times", "at least 0.75"),
    ]
    for batch in (1, 256):
        states = np.zeros((batch, 4, 11), np.float32)
        seconds = seconds_per_call(lambda s=states: queries.inverse_dynamics(run, s))  # type: ignore[misc]
        rows.append(Row("inference", f"one query, batch {batch}", seconds * 1e3, "ms"))
    return rows


def _steps_per_second(*evaluations: tuple[Mapping[str, Policy], int]) -> list[float]:
    """Environment steps per second of whole evaluations (policies, episodes of each).

    The start of processes is included.
    """
    seconds = [0.0] * len(evaluations)
    for _ in range(ROUNDS):
        for i, (acting, episodes) in enumerate(evaluations):
            began = time.perf_counter()
            rollout(acting, ENV_ID, episodes=episodes)
            seconds[i] += time.perf_counter() - began
    return [
        ROUNDS * len(acting) * episodes * STEPS / took
        for (acting, episodes), took in zip(evaluations, seconds, strict=True)
    ]
