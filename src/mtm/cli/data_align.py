"""`mtm data align`: sensors of several rates, brought to one clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from mtm.cli.parsing import parse
from mtm.core.reading import Reading
from mtm.data.formats.stamped_tables import Unit

if TYPE_CHECKING:
    from mtm.data.alignment import Stream
    from mtm.data.trajectories import TrajectoryDataset


@dataclass(frozen=True)
class Arguments:
    """Bring tables with time stamps (CSV or Parquet, a file per sensor) to one clock.

    A file is a modality under its own name; with --reading.columns, columns of one or of several
    files are. What no sample is near enough to is absent, and stays so for the model to fill in.
    """

    places: tyro.conf.Positional[tuple[str, ...]]
    """FILE ... OUT: the tables, and what to write (see mtm data convert)."""
    clock: float
    """Ticks of a second."""
    rule: dict[str, str] = field(default_factory=dict)
    """Of a modality: hold, interpolate or absent. Numbers are interpolated, classes held."""
    tolerance: dict[str, float] = field(default_factory=dict)
    """Seconds from a sample to a tick, by modality; 1.5 of its median intervals if not given."""
    time: str | None = None
    """The column of time stamps: timestamp, time, stamp or t if not given."""
    unit: Unit = "s"
    """Of the time stamps."""
    reading: Reading = field(default_factory=Reading)


def main(words: Sequence[str]) -> None:
    """Align, write, print what each stream has."""
    arguments = parse(Arguments, words, "mtm data align")
    from mtm.core.errors import ConfigError
    from mtm.core.terminal import PlainConsole
    from mtm.data.alignment import align
    from mtm.data.formats.stamped_tables import read_streams
    from mtm.data.writing import check_destination, write

    if len(arguments.places) < 2:
        raise ConfigError("name one table or more, and what to write: mtm data align FILE... OUT")
    *files, out = arguments.places
    check_destination(out)
    paths = [Path(file).expanduser() for file in files]
    streams = read_streams(paths, arguments.reading, time=arguments.time, unit=arguments.unit)
    dataset = align(
        streams,
        arguments.clock,
        rules=arguments.rule,
        tolerances=arguments.tolerance,
        reading=arguments.reading,
        source=Path(out).name,
    )
    write([(dataset, {})], out, Path(out).name)
    console = PlainConsole()
    for line in _lines(arguments, streams, dataset):
        console.print(line, soft_wrap=True)
    console.print(
        f"{out}: {dataset.num_episodes:,} episodes, {dataset.num_steps:,} steps at "
        f"{arguments.clock:g} Hz. Next: mtm data info {out}",
        soft_wrap=True,
    )


def _lines(
    arguments: Arguments, streams: Sequence[Stream], dataset: TrajectoryDataset
) -> list[str]:
    """A line for each stream: its rule, its tolerance, and how much of the clock it fills."""
    from mtm.data.alignment import default_rule, default_tolerance

    wide = max(len(stream.name) for stream in streams)
    lines = []
    for s in streams:
        rule = arguments.rule.get(s.name) or default_rule(s)
        within = arguments.tolerance.get(s.name, default_tolerance(s))
        share = dataset.count_present(s.name) / dataset.num_steps
        lines.append(
            f"{s.name:<{wide}}  {len(s.times):>10,} samples  {rule:<11}  within {within:<8.3g} s  "
            f"{share:>6.1%} present"
        )
    return lines
