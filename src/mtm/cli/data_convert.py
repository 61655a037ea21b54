"""`mtm data convert`: any data set into a store that opens at once."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import tyro

from mtm.cli.parsing import parse
from mtm.core.errors import ConfigError
from mtm.core.escaping import say
from mtm.core.reading import Reading
from mtm.data import loading
from mtm.data.formats.store import open_store, write_store
from mtm.data.leaving_out import LeftOut
from mtm.data.trajectories import TrajectoryDataset


@dataclass(frozen=True)
class Arguments:
    """Write a data set as a store: memory-mapped, checked once, opened in milliseconds.

    A directory is read file by file, so it may be larger than memory.
    """

    source: tyro.conf.Positional[str]
    """What to convert: a file, a directory, or PREFIX:NAME."""
    out: tyro.conf.Positional[Path]
    """The directory to make."""
    reading: Reading = field(default_factory=Reading)
    isolated: bool = False
    """Read in a child process, for files from elsewhere; all of it is in memory then."""
    without: Path | None = None
    """A list of episodes to leave out, as mtm doctor --without writes it."""


def main(words: Sequence[str]) -> None:
    """Convert and say what was written."""
    arguments = parse(Arguments, words, "mtm data convert")
    began = time.perf_counter()
    parts: Iterable[TrajectoryDataset] = loading.load_parts(arguments.source, arguments.reading)
    if arguments.without is not None:
        if arguments.isolated:
            raise ConfigError(
                "--without goes with a plain reading: convert with --isolated first, then the "
                "store with --without."
            )
        parts = LeftOut.read(arguments.without).parts(arguments.source, arguments.reading)
    elif arguments.isolated:
        parts = [loading.load(arguments.source, arguments.reading, isolated=True)]
    write_store(parts, arguments.out, Path(arguments.source).name)
    dataset = open_store(arguments.out)
    size = sum(file.stat().st_size for file in arguments.out.iterdir()) / 2**20
    say(
        f"{arguments.out}: {dataset.num_episodes:,} episodes, {dataset.num_steps:,} steps, "
        f"{size:,.1f} MiB in {time.perf_counter() - began:.1f} s"
    )
