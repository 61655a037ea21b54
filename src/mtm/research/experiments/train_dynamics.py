"""The method behind MOPO's ensemble of dynamics networks, by itself."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mtm.core.config import TrainConfig
from mtm.core.config_io import from_plain
from mtm.core.errors import RunError
from mtm.data import loading
from mtm.data.normalizer import Normalizer
from mtm.data.preparation import prepare, split
from mtm.evaluation.open_loop import open_loop_errors
from mtm.research.baselines.critic_settings import DynamicsConfig
from mtm.research.baselines.dynamics import DynamicsEnsemble
from mtm.research.baselines.dynamics_fit import fit_dynamics
from mtm.research.experiments.execute import read, write
from mtm.research.experiments.spec import RunSpec


def run(spec: RunSpec, folder: Path, needs: Sequence[Path]) -> dict[str, Any]:
    """Train with `settings["ensemble"]` on the training episodes that a run of this seed has.

    Returns:
        As `measure_open_loop.run`.

    Raises:
        RunError: No test episode is long enough.
    """
    wanted, settings = spec.settings["open_loop"], spec.settings["ensemble"]
    source = loading.load(spec.data)
    parts = split(prepare(source, TrainConfig()), TrainConfig(seed=spec.seed))
    assert parts.test is not None
    training = source.subset(np.searchsorted(source.starts, parts.training.starts))
    normalizer = Normalizer.fit(parts.training)
    folder.mkdir(exist_ok=True)
    file, times = folder / "dynamics.safetensors", folder / "seconds.json"
    if not times.exists():  # else an earlier sitting has trained it
        began = time.monotonic()
        fit_dynamics(
            training,
            from_plain(settings["dynamics"], DynamicsConfig()),
            steps=settings["steps"],
            batch_size=settings["batch_size"],
            seed=spec.seed,
            normalizer=normalizer,
        ).save(file)
        write(times, {"seconds": time.monotonic() - began})
    ensemble = DynamicsEnsemble.load(file)

    def predict(states: NDArray[Any], actions: NDArray[Any]) -> NDArray[Any]:
        return chained(ensemble, states[:, -1], actions[:, states.shape[1] - 1 :])

    found = open_loop_errors(predict, parts.test, normalizer, wanted["history"], wanted["horizon"])
    if found is None:
        raise RunError(
            f"no test episode has {wanted['horizon']} steps after the {wanted['history']} that a "
            "prediction begins with."
        )
    seconds = read(times)["seconds"]
    return {"errors": found.model.tolist(), "copied": found.copied.tolist(), "seconds": seconds}


def chained(ensemble: DynamicsEnsemble, state: NDArray[Any], actions: NDArray[Any]) -> NDArray[Any]:
    """The H states after (B, *shape), by the mean prediction each, with (B, H, *shape) actions."""
    states = []
    for step in range(actions.shape[1]):
        state = ensemble.predict(state, actions[:, step]).next_states
        states.append(state)
    return np.stack(states, axis=1)
