"""What a run is, besides its weights: the `config.json` of its directory.

It holds settings, precision, modalities, normalizer, data summary and versions, so that a run loads
without the data set, on another machine, years later.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mtm.core.config import Precision, ReturnsConfig, TrainConfig
from mtm.core.config_io import differences
from mtm.core.errors import RunError
from mtm.core.plain_data import expecting, parse_object, text, unsealed, whole
from mtm.core.versions import versions
from mtm.data.modalities import Modalities, Modality
from mtm.data.normalizer import Normalizer
from mtm.data.returns import horizon_of
from mtm.data.trajectories import Metadata, TrajectoryDataset
from mtm.runs.migrations import FORMAT, check_format, run_precision, run_settings

AGENT = "agent"
"""In the `config.json` of an agent of `mtm.research.baselines`, which one it is."""

PERCENTILES = range(101)
"""Of the returns at the beginning of episodes, which a run keeps."""

TD3 = "td3"
"""In the `config.json` of a training of `mtm.research.baselines.td3`, its settings."""


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
        return Metadata.from_json(self.data["metadata"])


def read_description(path: Path) -> Description:
    """Read a run's `config.json`.

    Raises:
        RunError: It is missing, damaged or of a newer format.
    """
    with reading_description(path, "a run") as plain:
        return _described(plain, path)


def parse_description(content: bytes, path: Path) -> Description:
    """As `read_description`, of the content of a `config.json`; `path` is told where it fails."""
    with _parsing(content, path / "config.json", "a run") as plain:
        return _described(plain, path)


def read_summary(plain: dict[str, Any]) -> dict[str, Any]:
    """What a run keeps of its data set, as `summarize` made it.

    Raises:
        ValueError: A value is not of its kind; so is a KeyError, a TypeError.
    """
    for key in ("spec", "fingerprint"):
        text(plain, key)
    for key in ("episodes", "steps"):
        whole(plain, key, 1)
    Metadata.from_json(plain["metadata"])
    returns = plain.get("first_returns", [])
    if not isinstance(returns, list) or not np.isfinite(np.array(returns, float)).all():
        raise ValueError(f"first_returns must be a list of numbers, got {returns!r}")
    if returns and len(returns) != len(PERCENTILES):
        raise ValueError(f"first_returns must be {len(PERCENTILES)} numbers, got {len(returns)}")
    if plain.get("returns_horizon") is not None:
        whole(plain, "returns_horizon", 1)
    return plain


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
        raise RunError(_not_there(path, what))
    with _parsing(file.read_bytes(), file, what) as plain:
        yield plain


def summarize(
    source: TrajectoryDataset, prepared: TrajectoryDataset, config: ReturnsConfig
) -> dict[str, Any]:
    """What a run keeps of its data set: enough to find and recognise it, and to act without it."""
    origin = source.metadata.origin
    summary = {
        "spec": source.metadata.source if origin is None else origin.spec,
        "fingerprint": source.fingerprint,
        "episodes": source.num_episodes,
        "steps": source.num_steps,
        "metadata": source.metadata.to_json(),
    }
    returns = [m.name for m in prepared.modalities if m.role == "return" and m.size == 1]
    if returns:
        first = prepared.starts[prepared.known(returns[0])[prepared.starts]]
        values = prepared.arrays[returns[0]].reshape(-1)[first]
        made = returns[0] not in source.names
        averaged = made and config.kind == "average"
        summary["first_returns"] = np.percentile(values, PERCENTILES).tolist() if len(first) else []
        summary["returns_made"] = made
        summary["returns_horizon"] = horizon_of(source, config) if averaged else None
    return summary


def data_differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What differs between two data summaries, where it matters."""
    keys = ("fingerprint", "episodes", "steps")
    return [f"data {key}: {old[key]} -> {new[key]}" for key in keys if old[key] != new[key]]


def schema_differences(old: Sequence[Modality], new: Sequence[Modality]) -> list[str]:
    """What differs between two modality lists."""
    if tuple(old) == tuple(new):
        return []
    names = [", ".join(f"{m.name}{list(m.shape)}" for m in side) for side in (old, new)]
    return [f"modalities: {names[0]} -> {names[1]}"]


def settings_differences(
    old: Mapping[str, Any], new: Mapping[str, Any], may_change: Collection[str]
) -> list[str]:
    """What differs between two plain settings, but for those that may change on resuming."""
    before, after = ({k: v for k, v in s.items() if k not in may_change} for s in (old, new))
    return differences(before, after)


@contextmanager
def _parsing(content: bytes, file: Path, what: str) -> Iterator[dict[str, Any]]:
    """Give the plain data of the content of a `config.json`; as `reading_description`."""
    with expecting(file, RunError, "Copy it again from where it is sound, or train again."):
        plain = parse_object(content)
        if TD3 in plain:
            raise RunError(
                f"{file.parent} holds a training of TD3, not {what}; its returns over time are in "
                f"{file.parent / 'curve.csv'}."
            )
        check_format(file, plain)
        yield unsealed(plain) if plain["format"] == FORMAT else plain  # earlier ones had no digest


def _described(plain: dict[str, Any], path: Path) -> Description:
    if AGENT in plain:
        raise RunError(
            f"{path} holds the agent {plain[AGENT]!r}, not a masked model; load it with "
            "mtm.research.baselines.load_agent."
        )
    modalities = Modalities(Modality.from_json(m) for m in plain["modalities"])
    return Description(
        TrainConfig.from_json(run_settings(plain)),
        modalities,
        Normalizer.from_json(plain["normalizer"], modalities),
        read_summary(plain["data"]),
        run_precision(plain),
    )


def _not_there(path: Path, what: str) -> str:
    """Say that a directory is not what it should be, and what would be."""
    if not path.exists():
        return f"there is no directory {path}. `mtm train --out {path}` would make a run there."
    held = sorted(p.parent.name for p in path.glob("*/config.json")) if path.is_dir() else []
    more = f" It holds {', '.join(held)}: name one of them." if held else ""
    return f"{path} is not {what}: it has no config.json.{more}"
