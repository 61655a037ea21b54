"""Metrics reach their files."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from mtm.core.errors import MissingExtraError, RunError
from mtm.training.trackers import MetricsFile, TensorBoard, read_metrics
from mtm.training.train import train


def test_metrics_csv_leaves_unmeasured_cells_empty(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path / "metrics.csv", ["loss", "val/loss"])
    file.log(5, {"loss": 0.5})
    file.log(10, {"loss": 0.25, "val/loss": 0.125})
    file.close()
    assert read_metrics(tmp_path / "metrics.csv") == [
        {"step": 5, "loss": 0.5},
        {"step": 10, "loss": 0.25, "val/loss": 0.125},
    ]


def test_a_damaged_metrics_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text("step,loss\n1,one\n")
    with pytest.raises(RunError, match=r"metrics.csv is damaged"):
        read_metrics(tmp_path / "metrics.csv")


def test_a_row_that_is_cut_off_is_none(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text("step,loss\n1,0.5\n2,0.25\n3,0.1")
    rows = [{"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.25}]
    assert read_metrics(tmp_path / "metrics.csv") == rows
    MetricsFile(tmp_path / "metrics.csv", ["loss"], resume_after=3).close()
    assert read_metrics(tmp_path / "metrics.csv") == rows


def test_tensorboard(point_mass, tiny, out) -> None:
    pytest.importorskip("tensorboard", reason="the extra `tensorboard` is not installed")
    train(point_mass, replace(tiny, trackers=("tensorboard",)), out, silent=True)
    assert list((out / "tensorboard").glob("events.*"))


def test_tensorboard_forgets_steps_that_are_taken_again(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="the extra `tensorboard` is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    crashed = TensorBoard(tmp_path)
    for step in (1, 2, 3):
        crashed.log(step, {"loss": 1.0})
    crashed.close()
    time.sleep(1.1)  # files are read in the order of their names, which have seconds
    resumed = TensorBoard(tmp_path, resume_after=2)
    resumed.log(3, {"loss": 0.5})
    resumed.close()
    shown = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [(event.step, event.value) for event in shown.Scalars("loss")] == [
        (1, 1.0),
        (2, 1.0),
        (3, 0.5),
    ]


def test_a_missing_tracker_prints_the_line_that_installs_it(
    point_mass, tiny, out, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)  # what Python does for an absent package
    with pytest.raises(MissingExtraError, match=r'pip install "masked-trajectory-models\[wandb\]"'):
        train(point_mass, replace(tiny, trackers=("wandb",)), out, silent=True)
