"""Return-conditioned acting, in a process of its own that waits for its turns.

The code that acts may be of another checkout, so what is imported here is what both have.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.timing import take_turn

TOGETHER = {1: 100, 256: 5}
"""Batch -> actions in a turn."""


def shortened(config: Any) -> Any:
    """The same settings for two steps: how good a model is does not matter here."""
    few = dict.fromkeys(("steps", "validate_every", "checkpoint_every", "log_every"), 2)
    optimizer = replace(config.optimizer, warmup_steps=1)
    return replace(config, **few, validation_segments=64, optimizer=optimizer)


def main() -> None:
    """Act whenever it is this program's turn, and tell the seconds of an action."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("run", "exported"))
    parser.add_argument("batch", type=int)
    parser.add_argument("--folder", type=Path, help="the run, or what was exported of it")
    parser.add_argument("--source", type=Path, help="a checkout whose code trains and acts instead")
    arguments = parser.parse_args()
    if arguments.source is not None:
        sys.path.insert(0, str(arguments.source / "src"))
    import numpy as np

    policy = _policy(arguments)
    policy.reset(arguments.batch)
    states = np.random.default_rng(0).normal(size=(arguments.batch, 11)).astype(np.float32)
    rewards, dones = np.ones(arguments.batch), np.zeros(arguments.batch, bool)
    count = TOGETHER[arguments.batch]
    seconds = 0.0
    while True:
        take_turn(seconds)
        began = time.perf_counter()
        for _ in range(count):
            policy.act(states)
            policy.observe(rewards, dones)
        seconds = (time.perf_counter() - began) / count


def _policy(arguments: argparse.Namespace) -> Any:
    mtm: Any = importlib.import_module("mtm")
    if arguments.source is not None:
        assert Path(mtm.__file__).is_relative_to(arguments.source.resolve()), mtm.__file__
    if arguments.what == "exported":
        threads = 1 if arguments.batch == 1 else os.cpu_count() or 1
        return mtm.deploy.load(arguments.folder, threads=threads)
    if arguments.folder is not None:
        run = mtm.load_run(arguments.folder)
    else:  # another version may not read the runs of this one
        with tempfile.TemporaryDirectory() as folder:
            config = shortened(mtm.preset("cpu"))
            run = mtm.train("builtin:hopper", config, Path(folder) / "run", silent=True)
    policies = getattr(mtm, "policies", None) or importlib.import_module("mtm.policies")
    return policies.return_conditioned(run)


if __name__ == "__main__":
    main()
