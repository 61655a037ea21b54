"""Where metrics go: always `metrics.csv`, and to TensorBoard or Weights & Biases if asked."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from mtm.core.atomic_write import write_atomically
from mtm.core.errors import RunError, require


class Tracker(Protocol):
    """Takes one row of metrics at a time."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Record the metrics of a step."""

    def close(self) -> None:
        """Flush and let go."""


class MetricsFile:
    """`metrics.csv`: a row per logged step, empty where a metric was not measured.

    Args:
        path: The file.
        columns: Names of all metrics.
        resume_after: Keep the rows up to this step and go on behind them; later rows belong to
            steps that are about to be taken again.
    """

    def __init__(self, path: Path, columns: Sequence[str], resume_after: int = 0) -> None:
        self.path = path
        kept = read_metrics(path) if path.exists() else []
        self._columns = ["step", *columns]
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, self._columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(row for row in kept if row["step"] <= resume_after)
        write_atomically(path, text.getvalue().encode())
        self._file = path.open("a", newline="")
        self._writer = csv.DictWriter(self._file, self._columns)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Append a row; an `OSError` if the disk takes none."""
        self._writer.writerow({"step": step, **{k: f"{v:.6g}" for k, v in metrics.items()}})
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        with suppress(OSError):  # what could not be written was told by `log`
            self._file.close()


class TensorBoard:
    """Scalars for TensorBoard, in the run directory.

    Args:
        path: The run directory.
        resume_after: As for `MetricsFile`: TensorBoard drops what it has of later steps.
    """

    def __init__(self, path: Path, resume_after: int = 0) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer: Any = SummaryWriter(str(path / "tensorboard"), purge_step=resume_after + 1)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Add a point to each curve."""
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Flush and close."""
        self._writer.close()


class WeightsAndBiases:
    """A Weights & Biases run named after the run directory; resuming does not depend on it."""

    def __init__(self, path: Path, config: Mapping[str, Any]) -> None:
        import wandb

        self._run = wandb.init(project="mtm", name=path.name, dir=str(path), config=dict(config))

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Send a row."""
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        """Finish the run."""
        self._run.finish()


def check_trackers(names: Sequence[str]) -> None:
    """Raise `MissingExtraError` unless what these trackers need is installed."""
    for name in names:
        require(name, extra=name)


def read_metrics(path: Path) -> list[dict[str, float]]:
    """The rows of a `metrics.csv`; a cell that was not measured is not in its row.

    A last line without an end is not one: the disk was full, or the writer was killed.

    Raises:
        RunError: The file is damaged.
    """
    with path.open("rb") as file:
        whole, end, _ = file.read().rpartition(b"\n")
    try:
        return [
            {name: float(cell) for name, cell in row.items() if cell} | {"step": int(row["step"])}
            for row in csv.DictReader(io.StringIO((whole + end).decode(), newline=""))
        ]
    except (TypeError, ValueError, KeyError, AttributeError, csv.Error) as error:
        raise RunError(f"{path} is damaged: {error}. Repair or remove it.") from error
