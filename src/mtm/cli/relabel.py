"""`mtm relabel`: fill what data lack, and say how far the labels may be off."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mtm.cli.asked_run import AskedRun
from mtm.cli.parsing import parse
from mtm.core.errors import ConfigError
from mtm.core.reading import Reading

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from rich.table import Table

    from mtm.core.progress import StepProgress
    from mtm.data.trajectories import TrajectoryDataset
    from mtm.data.writing import Notes
    from mtm.inference.label_errors import LabelErrors
    from mtm.inference.relabelling import Relabelling


@dataclass(frozen=True, kw_only=True)
class Arguments(AskedRun):
    """Fill the missing values of some modalities over whole episodes.

    What is known stays as it is. The output is a data set that every command reads, with the
    expected error of each step beside it (infos/NAME_expected_error: 0 where a value was given).
    How good the labels are is measured on held-out episodes that are given the same gaps.

    In LeRobot's format (lerobot:DIR) the labels are features of their own beside the originals:
    predicted.FEATURE and expected_error.FEATURE.
    """

    want: str
    """Modalities to fill, such as actions or states,actions."""
    out: str
    """What to write: FILE.hdf5, FILE.npz, lerobot:DIR, or any other name for a store."""
    data: str | None = None
    """What to fill (NaN is a gap); the run's training episodes as it saw them if not given."""
    held_out: str | None = None
    """Labelled data that the run did not see; its own held-out episodes if not given."""
    reading: Reading = field(default_factory=Reading)
    replace: bool = False
    """For lerobot:DIR: fill the originals themselves, rather than write predicted.FEATURE."""
    fps: float | None = None
    """Steps of a second, which LeRobot needs to know, where the data do not say it."""


def main(words: Sequence[str]) -> None:
    """Measure, fill, write, print."""
    arguments = parse(Arguments, words, "mtm relabel")
    from mtm.core.progress import StepProgress
    from mtm.core.terminal import PlainConsole
    from mtm.data.writing import check_destination, is_lerobot, write
    from mtm.inference.relabelling import Relabelling

    if arguments.replace and not is_lerobot(arguments.out):
        raise ConfigError("--replace is for lerobot:DIR; other formats have the labels in place.")
    check_destination(arguments.out)
    run = arguments.load()
    work = Relabelling(
        run,
        arguments.data,
        [name.strip() for name in arguments.want.split(",")],
        held_out=arguments.held_out,
        reading=None if arguments.reading == Reading() else arguments.reading,
    )
    console = PlainConsole()
    filled = dict.fromkeys(work.want, 0)
    with StepProgress("relabelling", work.total, 0, console) as progress:
        errors = work.measure(progress.at)
        parts = _parts(work, progress, filled, arguments)
        write(parts, arguments.out, work.dataset.metadata.source)
    console.print(_table(errors))
    counts = ", ".join(f"{count:,} {name}" for name, count in filled.items())
    console.print(
        f"{arguments.out}: {work.dataset.num_episodes:,} episodes, {work.dataset.num_steps:,} "
        f"steps; filled: {counts}",
        soft_wrap=True,
    )


def _parts(
    work: Relabelling, progress: StepProgress, filled: dict[str, int], arguments: Arguments
) -> Iterator[tuple[TrajectoryDataset, Notes]]:
    """What is to be written, counting what was filled."""
    from mtm.data.writing import is_lerobot, with_rate

    beside = is_lerobot(arguments.out) and not arguments.replace
    for part in work.parts(progress.at):
        for name, error in part.expected_error.items():
            filled[name] += int((error > 0).sum())
        (rated,) = with_rate([part.dataset], arguments.fps)
        notes: dict[str, NDArray[Any]] = {
            f"{n}_expected_error": e for n, e in part.expected_error.items()
        }
        if beside:
            predicted, rated = part.beside(rated, work.dataset.names)
            notes |= {f"{name}_predicted": values for name, values in predicted.items()}
        yield rated, notes


def _table(errors: Mapping[str, LabelErrors]) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    title = (
        "error on held-out values: squares, normalised, where 1 is as good as the mean; of classes "
        "the share that is wrong"
    )
    table = Table(title=title, box=SIMPLE_HEAD, pad_edge=False, title_justify="left")
    table.add_column("labels")
    for heading in ("values", "error", "raw", "surest\nhalf", "least\nsure", "mean", "nearest"):
        table.add_column(heading, justify="right")
    for name, e in errors.items():
        numbers = (e.surest, e.least_sure, e.by_mean, e.by_nearest)
        table.add_row(
            name,
            f"{e.measured:,}",
            f"{e.error:.4f}",
            f"{e.raw:.4g}",
            *("-" if number is None else f"{number:.4f}" for number in numbers),
        )
    return table
