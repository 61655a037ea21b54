"""`mtm predict`: fill in what a file does not have."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tyro

from mtm.cli.asked_run import AskedRun
from mtm.core.errors import ConfigError, DataError, unknown
from mtm.core.escaping import say
from mtm.data import loading

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mtm.data.trajectories import TrajectoryDataset
    from mtm.runs.run import Run


@dataclass(frozen=True, kw_only=True)
class Arguments(AskedRun):
    """Ask a run: given these modalities of a file, what are those?

    Gaps in what is given (NaN, or NAME_present in an .npz) are filled; what was given stays as it
    is. The output is an .npz of the wanted modalities that every command reads again.
    """

    input: Path
    """A data file, as `mtm train --data` takes."""
    given: str
    """Modalities that the model may see, such as states,actions."""
    want: str
    """Modalities to return, such as states."""
    output: Path
    """The .npz to write."""


def main(words: Sequence[str]) -> None:
    """Predict every episode and write the result."""
    arguments = tyro.cli(Arguments, args=list(words), prog="mtm predict")
    if arguments.output.suffix != ".npz":
        raise ConfigError(f"--output must end in .npz, got {arguments.output}.")
    if not arguments.output.parent.is_dir():
        raise ConfigError(f"--output {arguments.output}: there is no such folder.")
    from rich.progress import track

    from mtm.core.atomic_write import refuse_existing, write_atomically

    refuse_existing(arguments.output)  # it may be the log itself

    run = arguments.load()
    reading = replace(run.description.train.reading, nan_is_absent=True)
    dataset = loading.load_available(str(arguments.input), reading)
    given, want = arguments.given.split(","), arguments.want.split(",")
    for name in given:
        if name not in dataset.names:
            raise DataError(f"{arguments.input}: {unknown('modality', name, dataset.names)}")
    parts = [
        _predict_episode(run, dataset, index, given, want)
        for index in track(range(dataset.num_episodes), "episodes", transient=True)
    ]
    arrays: dict[str, Any] = {name: np.concatenate([part[name] for part in parts]) for name in want}
    arrays["offsets"] = np.append(0, np.cumsum(dataset.lengths))
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    write_atomically(arguments.output, file.getvalue())
    say(
        f"{arguments.output}: {', '.join(want)} of {dataset.num_episodes:,} episodes, "
        f"{dataset.num_steps:,} steps"
    )


def _predict_episode(
    run: Run, dataset: TrajectoryDataset, index: int, given: list[str], want: list[str]
) -> dict[str, NDArray[Any]]:
    from mtm.inference.queries import predict

    episode = dataset.episode(index)
    try:
        return predict(run, {name: episode[name] for name in given}, want)
    except DataError as error:
        raise DataError(f"episode {index}: {error}") from error
