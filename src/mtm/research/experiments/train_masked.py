"""The method behind MTM, S-MTM and the MLP: one loop, and `mtm eval` on two checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mtm.core.config import DeviceConfig, TrainConfig
from mtm.core.errors import RunError
from mtm.evaluation.evaluate import EvalConfig, evaluate
from mtm.research.experiments.methods import Stopped
from mtm.research.experiments.spec import RunSpec
from mtm.runs import checkpoint
from mtm.runs.run import Run, load_run
from mtm.training.train import train


def run(spec: RunSpec, folder: Path, needs: Sequence[Path]) -> dict[str, Any]:
    """Train as `settings["train"]` says; measure what `settings["evaluate"]` asks for, if any.

    Returns:
        `last` and `best`: the step and the tasks of `mtm.evaluate`, for the newest
        checkpoint and for the one with the lowest held-out loss.

    Raises:
        Stopped: A signal ended the training early.
        RunError: Something that was asked for could not be measured.
    """
    config = TrainConfig.from_json(spec.settings["train"])
    device = DeviceConfig(threads=spec.threads)
    last = train(spec.data, config, folder, device=device, resume=True, silent=True)
    if last.step < config.steps:
        raise Stopped
    result: dict[str, Any] = {
        "seconds": checkpoint.load(folder / "checkpoints", optimizer=False).state.seconds,
    }
    wanted = spec.settings.get("evaluate")
    if wanted is None:
        return result
    result["last"] = _measure(last, wanted)
    best = load_run(folder, "best")
    result["best"] = result["last"] if best.step == last.step else _measure(best, wanted)
    return result


def _measure(run: Run, wanted: dict[str, Any]) -> dict[str, Any]:
    notices: list[str] = []
    tasks = evaluate(run, EvalConfig(**wanted), say=notices.append)["tasks"]
    missing = [name for name, found in tasks.items() if found is None]
    if missing:
        raise RunError(f"could not measure {', '.join(missing)}: {' '.join(notices)}")
    return {"step": run.step, "tasks": tasks, "notices": notices}
