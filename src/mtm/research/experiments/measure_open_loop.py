"""The method that measures forward dynamics many steps ahead: of a run that is trained already."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mtm.core.errors import RunError
from mtm.evaluation.open_loop import run_open_loop
from mtm.inference.run_data import reported_episodes
from mtm.research.experiments.spec import RunSpec
from mtm.runs import checkpoint
from mtm.runs.run import load_run


def run(spec: RunSpec, folder: Path, needs: Sequence[Path]) -> dict[str, Any]:
    """Measure the run in `needs` on its test episodes, as `settings["open_loop"]` says.

    Returns:
        `errors` and `copied`: a mean squared error for each number of steps ahead; `seconds` of the
        run's training.

    Raises:
        RunError: No test episode is long enough.
    """
    (trained,) = needs
    wanted = spec.settings["open_loop"]
    run = load_run(trained)
    found = run_open_loop(run, reported_episodes(run), wanted["horizon"])
    if found is None:
        raise RunError(
            f"no test episode has {wanted['horizon']} steps after the {run.segment_length - 1} "
            "that a prediction begins with."
        )
    seconds = checkpoint.load(trained / "checkpoints", optimizer=False).state.seconds
    return {"errors": found.model.tolist(), "copied": found.copied.tolist(), "seconds": seconds}
