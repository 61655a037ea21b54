"""`mtm data convert`: any data set into a store that opens at once, or into another format."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import tyro

from mtm.cli.parsing import parse
from mtm.core.errors import ConfigError
from mtm.core.escaping import say
from mtm.core.reading import Reading
from mtm.data import loading
from mtm.data.leaving_out import LeftOut
from mtm.data.trajectories import TrajectoryDataset
from mtm.data.writing import Notes, place_of, with_rate, write


@dataclass(frozen=True)
class Arguments:
    """Write a data set as a store: memory-mapped, checked once, opened in milliseconds.

    A directory is read file by file, so it may be larger than memory. Other formats are written as
    the name of the place says; those of LeRobot and Minari by these libraries' own rules.
    """

    source: tyro.conf.Positional[str]
    """What to convert: a file, a directory, or PREFIX:NAME."""
    out: tyro.conf.Positional[str]
    """What to make: a directory for a store, FILE.hdf5, FILE.npz, lerobot:DIR or minari:NAME."""
    reading: Reading = field(default_factory=Reading)
    fps: float | None = None
    """Steps of a second, which LeRobot needs to know, where the data do not say it."""
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
    counts = [0, 0]
    write(
        _counted(with_rate(parts, arguments.fps), counts),
        arguments.out,
        Path(arguments.source).name,
    )
    place = place_of(arguments.out)
    files = place.rglob("*") if place.is_dir() else (place,)
    size = sum(file.stat().st_size for file in files if file.is_file()) / 2**20
    say(
        f"{arguments.out}: {counts[0]:,} episodes, {counts[1]:,} steps, "
        f"{size:,.1f} MiB in {time.perf_counter() - began:.1f} s"
    )


def _counted(
    parts: Iterable[TrajectoryDataset], counts: list[int]
) -> Iterator[tuple[TrajectoryDataset, Notes]]:
    """Parts without notes, counting episodes and steps."""
    for part in parts:
        counts[0] += part.num_episodes
        counts[1] += part.num_steps
        yield part, {}
