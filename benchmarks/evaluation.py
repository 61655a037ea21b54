"""Acting: lockstep against one environment at a time, and against no model at all."""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.timing import Row, seconds_per_call
from mtm import policies, queries
from mtm.config import preset
from mtm.environment_pool import EnvironmentPool
from mtm.policies import MaskedPolicy
from mtm.rollout import rollout
from mtm.run import Run
from mtm.training import train

ENV, POLICIES, EPISODES = "Hopper-v5", 7, 20


def measure(peak: float) -> list[Row]:
    """Environment steps per second of 7 policies x 20 episodes, and inference latency."""
    with tempfile.TemporaryDirectory() as folder:
        config = replace(preset("cpu"), steps=300, validate_every=300, checkpoint_every=300)
        run = train("builtin:hopper", config, Path(folder) / "run", silent=True)
    lockstep = _steps_per_second(run, POLICIES * EPISODES, 150, with_model=True)
    single = _steps_per_second(run, 1, 300, with_model=True)
    without = _steps_per_second(run, POLICIES * EPISODES, 150, with_model=False)
    whole = _whole_evaluation(run)
    rows = [
        Row("evaluation", "lockstep, 140 environments", lockstep, "env steps/s"),
        Row("evaluation", "one environment, batch 1", single, "env steps/s"),
        Row("evaluation", "random actions, no model", without, "env steps/s"),
        Row("evaluation", "lockstep / batch 1", lockstep / single, "times"),
        Row("evaluation", "lockstep / no model", lockstep / without, "times"),
        Row("evaluation", "whole evaluation, episodes dropping out", whole, "env steps/s"),
    ]
    for batch in (1, 256):
        states = np.zeros((batch, 4, 11), np.float32)
        seconds = seconds_per_call(lambda s=states: queries.inverse_dynamics(run, s))  # type: ignore[misc]
        rows.append(Row("inference", f"one query, batch {batch}", seconds * 1e3, "ms"))
    return rows


def _ways(run: Run) -> MaskedPolicy:
    targets = [policies.return_conditioned(run, f"fraction:{f}") for f in np.linspace(0.5, 1.0, 6)]
    return policies.join([policies.behavior_cloning(run), *targets])


def _steps_per_second(run: Run, count: int, steps: int, *, with_model: bool) -> float:
    """Full lockstep: environments are stepped on when an episode is over, so none drops out."""
    policy = _ways(run) if count > 1 else policies.return_conditioned(run)
    policy.reset(count)
    rng, rows = np.random.default_rng(0), np.arange(count)
    with EnvironmentPool(ENV, count) as pool:
        states = pool.reset(rows).states
        began = 0.0
        for step in range(steps + 10):
            if step == 10:
                began = time.perf_counter()
            if with_model:
                actions = policy.act(states)
            else:
                actions = rng.uniform(-1, 1, (count, 3)).astype(np.float32)
            reports = pool.step(rows, actions)
            states = reports.states
            if with_model:
                policy.observe(reports.rewards, np.zeros(count, bool))
        return count * steps / (time.perf_counter() - began)


def _whole_evaluation(run: Run) -> float:
    named = {"bc": policies.behavior_cloning(run)}
    for fraction in np.linspace(0.5, 1.0, 6):
        named[f"{fraction:.1f}"] = policies.return_conditioned(run, f"fraction:{fraction}")
    began = time.perf_counter()
    result = rollout(named, ENV, episodes=EPISODES)
    steps = sum(int(episodes.lengths.sum()) for episodes in result.values())
    return steps / (time.perf_counter() - began)
