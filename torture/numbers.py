"""Data with odd numbers: trained on and answered in their own units, or refused with the reason."""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mtm.core.config import ModelConfig, OptimizerConfig, TrainConfig
from mtm.core.errors import DataError, RunError
from mtm.data.modalities import Modality
from mtm.data.trajectories import TrajectoryDataset
from mtm.inference.queries import predict
from mtm.runs.run import Run, load_run
from mtm.training.trackers import read_metrics
from mtm.training.train import train
from torture.outcomes import Row, timed
from torture.warm import Warm

SECONDS = 60.0
"""That one of these may take."""

CONFIG = TrainConfig(
    steps=3,
    batch_size=8,
    validation_segments=16,
    validate_every=3,
    checkpoint_every=1,
    log_every=1,
    model=ModelConfig(width=8, encoder_layers=1, heads=1, dropout=0.0),
    optimizer=OptimizerConfig(warmup_steps=1),
)


def numbers(warm: Warm, say: Callable[[Row], None] = lambda row: None) -> list[Row]:
    """All of the cases, each in a child."""
    rows = []
    for name in CASES:
        row = Row("numbers", name)
        with timed(row):
            ended = warm.run("torture.numbers:one", name, seconds=10 * SECONDS)
        if ended.code:
            row.broke(f"exit code {ended.code}: {ended.said[-600:]}")
        else:
            row.held(ended.said.strip().splitlines()[-1])
        say(row)
        rows.append(row)
    return rows


def one(name: str) -> None:
    """One of the cases; prints how it ended."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mtm-numbers-") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        said = CASES[name](Path(folder))
    assert time.monotonic() - began < SECONDS, "it took too long"
    print(said or "trained and answered")


def arrays(rows: int = 120, seed: int = 0) -> dict[str, NDArray[Any]]:
    """States, actions and rewards."""
    rng = np.random.default_rng(seed)
    shapes = {"states": (rows, 3), "actions": (rows, 2), "rewards": (rows,)}
    return {name: rng.normal(size=shape) for name, shape in shapes.items()}


def _trained(data: TrajectoryDataset, out: Path, config: TrainConfig = CONFIG) -> Run:
    """Train and ask; all that comes out is finite."""
    run = train(data, config, out, silent=True)
    for row in read_metrics(out / "metrics.csv"):
        assert all(np.isfinite(value) for value in row.values()), row
    given = {m.name: data.episode(0)[m.name][:2] for m in run.modalities if m.role == "state"}
    want = [m.name for m in run.modalities]
    for name, values in predict(run, given, want).items():
        assert np.isfinite(np.asarray(values, float)).all(), f"{name} is not finite"
    return run


def _dataset(values: dict[str, NDArray[Any]], length: int = 10, **more: Any) -> TrajectoryDataset:
    rows = len(next(iter(values.values())))
    return TrajectoryDataset.from_arrays(values, np.arange(0, rows + 1, length), **more)


def _constant(folder: Path) -> None:
    values = arrays()
    values["states"][:, 1] = 5.0
    values["actions"][:] = -2.0
    values["rewards"][:] = 0.0
    _trained(_dataset(values), folder / "run")


def _scale(factor: float) -> Callable[[Path], None]:
    def case(folder: Path) -> None:
        plain, scaled = arrays(), {k: v * factor for k, v in arrays().items()}
        runs = {n: _trained(_dataset(v), folder / n) for n, v in (("a", plain), ("b", scaled))}
        losses = [read_metrics(folder / name / "metrics.csv")[-1]["loss"] for name in runs]
        np.testing.assert_allclose(*losses, rtol=1e-3)
        states = plain["states"][:3].astype(np.float32)
        one, two = (
            predict(runs[name], {"states": states * np.float32(by)}, "actions")["actions"]
            for name, by in (("a", 1.0), ("b", factor))
        )
        np.testing.assert_allclose(one, two / factor, rtol=1e-2, atol=1e-4)

    return case


def _type(kind: str) -> Callable[[Path], None]:
    def case(folder: Path) -> None:
        rounded = {name: (10 * v).round() for name, v in arrays().items()}
        runs = [
            _trained(_dataset({n: v.astype(k) for n, v in rounded.items()}, **more), folder / k)
            for k, more in ((kind, _declared()), ("f4", _declared()))
        ]
        one, two = (run.model.state_dict() for run in runs)
        assert all((one[name] == two[name]).all() for name in one), "other weights"

    return case


def _declared() -> dict[str, Any]:
    roles = {"states": ((3,), "state"), "actions": ((2,), "action"), "rewards": ((), "reward")}
    return {"modalities": [Modality(n, shape, role=r) for n, (shape, r) in roles.items()]}  # type: ignore[arg-type]


def _one_step(folder: Path) -> None:
    _trained(_dataset(arrays(), length=1), folder / "run")


def _one_episode(folder: Path) -> str:
    try:
        _trained(_dataset(arrays(), length=120), folder / "run")
    except DataError as error:
        return f"refused: {error}"
    return "trained and answered"


def _long_segments(folder: Path) -> None:
    model = replace(CONFIG.model, segment_length=32)
    _trained(_dataset(arrays(), length=5), folder / "run", replace(CONFIG, model=model))


def _modalities(folder: Path) -> None:
    rng = np.random.default_rng(0)
    values = {f"sensor_{i}": rng.normal(size=(120, 1)) for i in range(198)}
    values |= {"actions": rng.normal(size=(120, 2)), "rewards": rng.normal(size=120)}
    config = replace(CONFIG, steps=1, validate_every=1)
    _trained(_dataset(values), folder / "run", config)


def _episodes(folder: Path) -> None:
    _trained(_dataset(arrays(200_000), length=2), folder / "run")


def _class_in_validation(folder: Path) -> str:
    ends = {"trained": 0, "refused": 0}
    for episode in range(12):
        values = arrays()
        values["gear"] = np.random.default_rng(0).integers(0, 3, 120)
        values["gear"][10 * episode] = 3
        try:
            _trained(_dataset(values), folder / f"run-{episode}", replace(CONFIG, steps=1))
        except DataError as error:
            if "gear" not in str(error):
                raise
            ends["refused"] += 1
        else:
            ends["trained"] += 1
    return f"{ends['trained']} of 12 trained and answered, {ends['refused']} refused"


def _absent_in_validation(folder: Path) -> str:
    ends = {"trained": 0, "refused": 0}
    for episode in range(12):
        known = np.arange(120) // 10 == episode
        data = _dataset(arrays(), present={"actions": known})
        try:
            _trained(data, folder / f"run-{episode}", replace(CONFIG, steps=1))
        except DataError as error:
            if "absent in every step of the training split" not in str(error):
                raise
            ends["refused"] += 1
        else:
            ends["trained"] += 1
    assert ends["trained"], ends
    return f"{ends['trained']} of 12 trained and answered, {ends['refused']} refused"


def _nan(folder: Path) -> str:
    """A loss that is no number from the third step on."""
    from mtm.training import masked_model

    real, steps = masked_model.reconstruction_losses, [0]

    def spoilt(modalities: Any, *more: Any) -> Any:
        steps[0] += 1
        losses, errors = real(modalities, *more)
        if steps[0] == 3:
            place = [m.name for m in modalities].index("actions")
            hit = (errors * 0).index_fill(0, errors.new_tensor([place]).long(), float("nan"))
            return losses * float("nan"), errors + hit
        return losses, errors

    masked_model.reconstruction_losses = spoilt  # type: ignore[assignment]
    try:
        train(_dataset(arrays()), replace(CONFIG, steps=6), folder / "run", silent=True)
    except RunError as error:
        said = str(error)
    else:
        raise AssertionError("it went on")
    for word in ("step 3", "loss/actions", "checkpoint of step 2 is sound"):
        assert word in said, said
    assert "loss/states" not in said, said
    assert load_run(folder / "run").step == 2
    return "stopped at step 3, named actions, kept step 2"


CASES: dict[str, Callable[[Path], Any]] = {
    "constant features": _constant,
    "a scale of 1e-12": _scale(1e-12),
    "a scale of 1e30": _scale(1e30),
    "float16": _type("f2"),
    "float64": _type("f8"),
    "integers": _type("i4"),
    "episodes of one step": _one_step,
    "one episode": _one_episode,
    "segments longer than any episode": _long_segments,
    "200 modalities": _modalities,
    "100,000 tiny episodes": _episodes,
    "a class in validation only": _class_in_validation,
    "a modality absent in validation": _absent_in_validation,
    "NaN in the loss": _nan,
}
