"""`mtm data info`: what a data set holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import tyro
from rich.table import Table

from mtm.cli.parsing import parse
from mtm.core.errors import DataError
from mtm.core.reading import Reading
from mtm.core.terminal import PlainConsole
from mtm.data import loading
from mtm.data.modalities import Modality
from mtm.data.returns import episode_returns
from mtm.data.trajectories import TrajectoryDataset


@dataclass(frozen=True)
class Arguments:
    """Print what a data set holds."""

    spec: tyro.conf.Positional[str]
    """A file, a directory, or PREFIX:NAME."""
    reading: Reading = field(default_factory=Reading)


def main(words: Sequence[str]) -> None:
    """Load and print."""
    arguments = parse(Arguments, words, "mtm data info")
    dataset = loading.load(arguments.spec, arguments.reading)
    console = PlainConsole()
    console.print(
        f"{arguments.spec}: {dataset.num_episodes:,} episodes, {dataset.num_steps:,} steps"
    )
    console.print(_facts(dataset))
    console.print(_modalities(dataset))


def _facts(dataset: TrajectoryDataset) -> Table:
    table = Table(show_header=False, box=None)
    metadata = dataset.metadata
    low, middle, high = np.percentile(dataset.lengths, (0, 50, 100))
    table.add_row("episode length", f"{low:.0f} to {high:.0f}, median {middle:.0f}")
    if dataset.modalities.of_role("reward"):
        table.add_row("episode return", _returns(dataset))
    table.add_row("environment", metadata.env_id or "not stated")
    table.add_row("horizon", f"{metadata.horizon:,}" if metadata.horizon else "not stated")
    for key, value in metadata.notes.items():
        table.add_row(key, value)
    table.add_row("fingerprint", dataset.fingerprint)
    return table


def _returns(dataset: TrajectoryDataset) -> str:
    try:
        every = episode_returns(dataset)
    except DataError as error:
        return f"not known: {error}"
    known = every[~np.isnan(every)]
    if not len(known):
        return "not known: every episode lacks a reward"
    only = "" if len(known) == len(every) else f" (of {len(known):,} episodes with all rewards)"
    return f"{known.min():,.1f} to {known.max():,.1f}, mean {known.mean():,.1f}{only}"


def _modalities(dataset: TrajectoryDataset) -> Table:
    table = Table()
    for title in ("modality", "role", "a value is"):
        table.add_column(title)
    for title in ("present", "lowest", "mean", "highest"):
        table.add_column(title, justify="right")
    for modality in dataset.modalities:
        table.add_row(*_row(dataset, modality))
    return table


def _row(dataset: TrajectoryDataset, modality: Modality) -> list[str]:
    count = dataset.count_present(modality.name)
    low, high, total = np.inf, -np.inf, 0.0
    for chunk in dataset.chunks(modality.name):
        low, high = min(low, chunk.min()), max(high, chunk.max())
        total += float(chunk.mean(dtype=np.float64)) * len(chunk)
    numbers = "x".join(map(str, modality.shape)) or "1"
    value = f"{numbers} number{'s' * (modality.size != 1)}"
    if modality.kind == "discrete":
        value = f"1 of {modality.classes} classes"
    share = f"{count / dataset.num_steps:.1%}"
    measured = [f"{low:.4g}", f"{total / count:.4g}", f"{high:.4g}"] if count else ["-"] * 3
    return [modality.name, modality.role, value, share, *measured]
