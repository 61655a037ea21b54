"""Whether `model.original`, the mask `original` and acting `paper` are what the original code has.

    python -m benchmarks --parts parity --reference PATH

PATH is a checkout of facebookresearch/mtm. Its modules are imported in a process of its own
(`benchmarks.parity_process`); its weights are copied onto our network, and both are asked the same.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.timing import Row

LIMITS = {
    "outputs": 1e-5,
    "loss": 1e-5,
    "gradients": 1e-5,
    "weights after 20 steps": 1e-5,
    "time encoding": 1e-6,
    "first weights": 0.05,
    "masks": 0.02,
    "acting": 1e-5,
}
"""What is compared -> the largest difference that counts as equal. Of what is drawn, laws are
compared: deviations of weights, relative to each other, and chances of a token to be visible."""

NOT_EQUAL = {
    "random numbers": "other generators: masks, batches, dropout and first weights follow the same "
    "laws, and are other draws",
    "batches": "drawn with replacement, as a function of seed and step, so that a run can resume; "
    "the original shuffles passes over the data",
    "learning rate": "a step earlier on the same curve: the first step of the original has a rate "
    "of 0 and changes nothing",
    "normalisation": "statistics of the training episodes without padding, and every feature is "
    "scaled; the original counts padding as zeros, and leaves features of a deviation below 0.1 "
    "as they are",
    "returns of D4RL": "count the current reward; the original leaves it out there, though not for "
    "Adroit; the horizon is the environment's, not always 1,000",
    "split": "episodes are shuffled; the original holds out the last ones of the file",
    "short episodes": "are padded, and padding never counts; the original drops them",
    "loss where data are absent": "absent tokens do not count; the original knows none, and trains "
    "on batches without actions in turns with whole ones",
    "past actions when acting": "are shown as the network chose them, not clipped to [-1, 1]",
}
"""What is not made equal, and why."""


def compare(path: Path) -> dict[str, dict[str, float]]:
    """What is compared -> case -> the largest difference.

    Raises:
        RuntimeError: The original could not be imported or run.
    """
    program = [sys.executable, "-m", "benchmarks.parity_process", str(path)]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"comparing with {path} failed:\n{done.stderr}")
    found: dict[str, dict[str, float]] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(path: Path) -> list[Row]:
    """The largest difference of each thing that is compared."""
    return [
        Row("parity", f"{what}: {case}", difference, "", f"at most {LIMITS[what]:g}")
        for what, cases in compare(path).items()
        for case, difference in cases.items()
    ]
