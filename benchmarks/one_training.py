"""A short training, whole, in a process of its own.

It is `mtm.train` as a user calls it (data, masks, step, optimizer, logging), without validation.
Logging is more frequent than in the presets, so its share is rather overstated.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks.timing import result_of, take_turn
from mtm.core.config import PRESETS, DeviceConfig, preset
from mtm.training import masked_model
from mtm.training.train import train

WARMUP, LOG_EVERY = 8, 5


def measured(preset_name: str, steps: int, **settings: int) -> dict[str, float]:
    """Seconds per step, the share outside of the step proper, the batch and the peak memory.

    Args:
        preset_name: Settings to train with.
        steps: How many to count.
        settings: Flags of this program.
    """
    words = [f"--{name}={value}" for name, value in settings.items()]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        return result_of("one_training", out, f"--preset={preset_name}", f"--steps={steps}", *words)


def main() -> None:
    """Train and print as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--preset", choices=PRESETS, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--length", type=int, default=4)
    parser.add_argument("--in-turns", action="store_true", help="see seconds_in_turns")
    arguments = parser.parse_args()
    base = preset(arguments.preset)
    config = replace(
        base,
        steps=WARMUP + arguments.steps + 1,
        log_every=LOG_EVERY,
        validation_fraction=0.0,
        checkpoint_every=10**9,
        model=replace(base.model, segment_length=arguments.length),
        optimizer=replace(base.optimizer, warmup_steps=0),
    )
    device = DeviceConfig(
        accelerator="cpu",
        devices=arguments.processes,
        strategy="ddp" if arguments.processes > 1 else "auto",
        threads=arguments.threads,
    )
    steps = _TimedSteps(arguments.in_turns)
    with patch.object(masked_model, "train_step", steps):
        train("builtin:hopper", config, arguments.out, device=device, silent=True)
    if os.environ.get("LOCAL_RANK", "0") != "0":
        return  # the first of several processes speaks for all
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    memory = used if sys.platform == "darwin" else used * 1024
    print(json.dumps(steps.result() | {"batch": config.batch_size, "memory": memory}))


class _TimedSteps:
    """Takes steps of training and notes when each began and ended."""

    def __init__(self, in_turns: bool) -> None:
        self._step, self._in_turns = masked_model.train_step, in_turns
        self._times: list[tuple[float, float]] = []

    def __call__(self, *arguments: Any) -> Any:
        if self._in_turns:
            take_turn(self._times[-1][1] - self._times[-1][0] if self._times else 0.0)
        began = time.perf_counter()
        result = self._step(*arguments)
        self._times.append((began, time.perf_counter()))
        return result

    def result(self) -> dict[str, float]:
        """From the beginning of one step to that of another, all between included."""
        counted = self._times[WARMUP:]
        whole = counted[-1][0] - counted[0][0]
        inside = sum(ended - began for began, ended in counted[:-1])
        return {"seconds": whole / (len(counted) - 1), "outside": 1 - inside / whole}


if __name__ == "__main__":
    main()
