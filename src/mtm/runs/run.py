"""A run is a directory that describes itself.

    RUN/config.json     settings, precision, modalities, normalizer, data summary, versions
    RUN/checkpoints/    see mtm.runs.checkpoint
    RUN/metrics.csv     a row per logged step

It loads without the data set, on another machine, years later.
"""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from mtm.core.atomic_write import unfinished, write_atomically
from mtm.core.config import Precision, ReturnsConfig, TrainConfig
from mtm.core.errors import ConfigError, RunError
from mtm.core.versions import versions
from mtm.data.modalities import Modalities, Modality
from mtm.data.normalizer import Normalizer
from mtm.data.returns import horizon_of
from mtm.data.trajectories import Metadata, TrajectoryDataset
from mtm.models.mtm import MTM
from mtm.models.network import Network, make_network, move
from mtm.runs import checkpoint
from mtm.runs.checkpoint import Which
from mtm.runs.migrations import FORMAT, check_format, run_precision, run_settings

AGENT = "agent"
"""In the `config.json` of an agent of `mtm.research.baselines`, which one it is."""

TD3 = "td3"
"""In the `config.json` of a training of `mtm.research.baselines.td3`, its settings."""

BELONGINGS = ("metrics.csv", "evaluation.json", "report", "tensorboard", "curve.csv", "checkpoints")
"""What mtm writes next to a `config.json`; it goes when another run takes the place."""


@dataclass(frozen=True)
class Description:
    """What `config.json` says: all of a run but the weights."""

    train: TrainConfig
    modalities: Modalities
    normalizer: Normalizer
    data: dict[str, Any]
    precision: Precision = "32-true"

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "format": FORMAT,
            "train": self.train.to_json(),
            "precision": self.precision,
            "modalities": [m.to_json() for m in self.modalities],
            "normalizer": self.normalizer.to_json(),
            "data": self.data,
            "versions": versions(),
        }

    @property
    def metadata(self) -> Metadata:
        """Source, environment and horizon of the data that the run was trained on."""
        return Metadata(**self.data["metadata"])


class Describing(Protocol):
    """What can be written as a `config.json`."""

    def to_json(self) -> dict[str, Any]:
        """Plain data."""


@dataclass(frozen=True)
class Run:
    """A trained model, ready to use.

    Attributes:
        path: The directory.
        description: Settings, modalities, normalizer, data summary.
        model: The network in evaluation mode.
        step: Optimizer steps behind the weights.
    """

    path: Path
    description: Description
    model: Network
    step: int

    @property
    def modalities(self) -> Modalities:
        """The streams that the model knows, in order."""
        return self.description.modalities

    @property
    def normalizer(self) -> Normalizer:
        """Raw units to the model's units and back."""
        return self.description.normalizer

    @property
    def segment_length(self) -> int:
        """T: time steps that the model sees at once."""
        return self.model.config.segment_length

    @property
    def device(self) -> torch.device:
        """Where the model is; every question is answered there."""
        return next(self.model.parameters()).device

    def to(self, device: str | torch.device) -> Run:
        """This run with its model on a device, such as `cuda`.

        Raises:
            ConfigError: There is no such device here.
        """
        return replace(self, model=move(copy.deepcopy(self.model), device))

    @property
    def transformer(self) -> MTM:
        """The network, where something needs its encoder.

        Raises:
            ConfigError: It is not the transformer.
        """
        if not isinstance(self.model, MTM):
            raise ConfigError(
                f"the network of {self.path} is an MLP, which encodes no states; this needs a run "
                "of the transformer."
            )
        return self.model


def load_run(
    path: str | Path, which: Which | int = "last", *, device: str | torch.device = "cpu"
) -> Run:
    """Load a run's model; the data set is not needed.

    Args:
        path: The run directory.
        which: `last`, `best` (lowest held-out loss) or a step.
        device: Where the model is to answer: `cpu`, `cuda`, `cuda:1`, `mps`, ...

    Raises:
        RunError: The directory holds no readable run.
        ConfigError: There is no such device here.
    """
    path = Path(path)
    description = read_description(path)
    saved = checkpoint.load(path / "checkpoints", which)
    with torch.random.fork_rng(devices=[]):  # the first weights are drawn, and replaced below
        model = make_network(description.modalities, description.train.model)
    try:
        model.load_state_dict(saved.model)
    except RuntimeError as error:
        raise RunError(f"the weights in {path} do not fit its config.json: {error}") from error
    return Run(path, description, move(model.eval(), device), saved.state.step)


def read_description(path: Path) -> Description:
    """Read a run's `config.json`.

    Raises:
        RunError: It is missing, damaged or of a newer format.
    """
    with reading_description(path, "a run") as plain:
        if AGENT in plain:
            raise RunError(
                f"{path} holds the agent {plain[AGENT]!r}, not a masked model; load it with "
                "mtm.research.baselines.load_agent."
            )
        return Description(
            TrainConfig.from_json(run_settings(plain)),
            Modalities(Modality.from_json(m) for m in plain["modalities"]),
            Normalizer.from_json(plain["normalizer"]),
            plain["data"],
            run_precision(plain),
        )


@contextmanager
def reading_description(path: Path, what: str) -> Iterator[dict[str, Any]]:
    """Give the plain data of a `config.json`; whoever reads them may stumble over what is missing.

    Args:
        path: The directory.
        what: It should be, as `a run`.

    Raises:
        RunError: The file is missing, damaged, of a newer format, or that of a training of TD3.
    """
    file = path / "config.json"
    if not file.exists():
        raise RunError(f"{path} is not {what}: it has no config.json.")
    try:
        plain = json.loads(file.read_text())
        if TD3 in plain:
            raise RunError(
                f"{path} holds a training of TD3, not {what}; its returns over time are in "
                f"{path / 'curve.csv'}."
            )
        check_format(file, plain)
        yield plain
    except (KeyError, TypeError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise RunError(f"{file} is damaged: {type(error).__name__}: {error}.") from error


def create(path: Path, description: Describing, *, overwrite: bool = False) -> None:
    """Make the directory of a new run.

    Raises:
        RunError: It already holds a run and `overwrite` is not set, or it holds something else.
    """
    if (path / "config.json").exists():
        if not overwrite:
            raise RunError(
                f"{path} already holds a run. Continue it with --resume, replace it with "
                "--overwrite, or choose another --out."
            )
    elif path.exists() and not _is_unfinished(path):
        raise RunError(f"{path} exists and is not a run; choose another --out.")
    try:
        _clear(path)
        (path / "checkpoints").mkdir(parents=True)
    except OSError as error:
        raise RunError(f"cannot make the run directory {path}: {error}.") from error
    write_description(path, description)


def write_description(path: Path, description: Describing) -> None:
    """Write a run's `config.json`, atomically."""
    text = json.dumps(description.to_json(), indent=2)
    write_atomically(path / "config.json", text.encode())


def summarize(
    spec: str, source: TrajectoryDataset, prepared: TrajectoryDataset, config: ReturnsConfig
) -> dict[str, Any]:
    """What a run keeps of its data set: enough to recognise it and to act without it."""
    summary = {
        "spec": spec,
        "fingerprint": source.fingerprint,
        "episodes": source.num_episodes,
        "steps": source.num_steps,
        "metadata": asdict(source.metadata),
    }
    returns = [m.name for m in prepared.modalities if m.role == "return" and m.size == 1]
    if returns:
        first = prepared.starts[prepared.known(returns[0])[prepared.starts]]
        values = prepared.arrays[returns[0]].reshape(-1)[first]
        made = returns[0] not in source.names
        averaged = made and config.kind == "average"
        summary["first_returns"] = np.percentile(values, range(101)).tolist() if len(first) else []
        summary["returns_made"] = made
        summary["returns_horizon"] = horizon_of(source, config) if averaged else None
    return summary


def data_differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What differs between two data summaries, where it matters."""
    keys = ("fingerprint", "episodes", "steps")
    return [f"data {key}: {old[key]} -> {new[key]}" for key in keys if old[key] != new[key]]


def refuse_differences(path: Path, found: Sequence[str]) -> None:
    """Raise a `RunError` that says what differs, if anything does."""
    if found:
        listed = "\n".join(f"  - {line}" for line in found)
        raise RunError(
            f"{path} cannot be resumed, it was trained with something else:\n{listed}\n"
            "Give the same settings and data, or choose another --out."
        )


def schema_differences(old: Sequence[Modality], new: Sequence[Modality]) -> list[str]:
    """What differs between two modality lists."""
    if tuple(old) == tuple(new):
        return []
    names = [", ".join(f"{m.name}{list(m.shape)}" for m in side) for side in (old, new)]
    return [f"modalities: {names[0]} -> {names[1]}"]


def _is_unfinished(path: Path) -> bool:
    """Whether a folder holds no more than `create` leaves where it is killed."""
    if not path.is_dir():
        return False
    folder, mine = path / "checkpoints", set(unfinished(path / "config.json"))
    if folder.is_dir() and not any(folder.iterdir()):
        mine.add(folder)
    return set(path.iterdir()) <= mine


def _clear(path: Path) -> None:
    """Remove all of a run but its description: as long as that is there, it is known as a run."""
    names = ("config.json", *BELONGINGS)
    unwritten = [file for name in names for file in unfinished(path / name)]
    for file in [*unwritten, *(path / name for name in BELONGINGS)]:
        if file.is_dir() and not file.is_symlink():
            shutil.rmtree(file)
        else:
            file.unlink(missing_ok=True)
