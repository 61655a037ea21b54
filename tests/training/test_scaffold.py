"""The scaffold of all trainers: when it logs, measures and saves, and how it stops."""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from torch import nn

from mtm.core.errors import ConfigError, RunError
from mtm.runs import checkpoint
from mtm.training.scaffold import Look, Loop, Schedule, Trainer, check_stop_at
from mtm.training.trackers import MetricsFile, Tracker, read_metrics

EVERY = {"log_every": 4, "measure_every": 10, "save_every": 6, "keep": 99}


class Line(Trainer):
    """Fits a line; its step k is a function of k, and may have something done before it."""

    def __init__(self, steps: int = 20, before=lambda step: None, **every: int) -> None:
        torch.manual_seed(0)
        self.network = nn.Linear(1, 1)
        self.optimizers = (torch.optim.Adam(self.network.parameters(), lr=0.1),)
        self.schedule = Schedule(steps, **{**EVERY, **every})
        self.before, self.closed, self.measured = before, False, []
        self.total, self.counted, self.spoilt = 0.0, 0, 1.0

    def step(self, step: int) -> None:
        self.before(step)
        x = torch.tensor([[math.sin(step)]])
        loss = (self.network(x) - 3 * x).square().sum() * self.spoilt
        self.optimizers[0].zero_grad()
        loss.backward()
        self.optimizers[0].step()
        self.total, self.counted = self.total + loss.item(), self.counted + 1

    def look(self, seconds: float) -> Look:
        mean, norm = self.total / self.counted, float(self.network.weight.grad.norm())
        self.total, self.counted = 0.0, 0
        return Look({"loss": mean}, mean, norm)

    def measure(self, step: int) -> dict[str, float]:
        self.measured.append(step)
        return {"loss": self.network.weight.item()}

    def trackers(self, out: Path, resume_after: int) -> list[Tracker]:
        return [MetricsFile(out / "metrics.csv", ["loss", "seconds", "val/loss"], resume_after)]

    measured_as = "val/"

    def status(self, row: Mapping[str, float], rate: float) -> None:
        return None

    def close(self) -> None:
        self.closed = True


def run(trainer: Line, out: Path, *, resume: bool = False, stop_at: int | None = None) -> Line:
    (out / "checkpoints").mkdir(parents=True, exist_ok=True)
    Loop(trainer, out, resume=resume, silent=True).run(stop_at)
    assert trainer.closed
    return trainer


def logged(out: Path) -> list[int]:
    return [int(row["step"]) for row in read_metrics(out / "metrics.csv")]


def test_what_is_done_when(out) -> None:
    trainer = run(Line(), out)
    assert logged(out) == [4, 6, 8, 10, 12, 16, 18, 20]
    assert trainer.measured == [10, 20]
    assert checkpoint.steps(out / "checkpoints") == [6, 12, 18, 20]
    rows = {row["step"]: row for row in read_metrics(out / "metrics.csv")}
    assert [step for step in rows if "val/loss" in rows[step]] == [10, 20]
    validation = checkpoint.load(out / "checkpoints").state.validation
    assert validation["loss"] == pytest.approx(rows[20]["val/loss"], rel=1e-5)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_a_resumed_training_ends_the_same(tmp_path, number) -> None:
    whole = run(Line(), tmp_path / "whole")
    handler = signal.getsignal(number)
    out = tmp_path / "parts"
    run(Line(before=lambda step: step == 6 and os.kill(os.getpid(), number)), out)
    assert signal.getsignal(number) is handler
    assert checkpoint.steps(out / "checkpoints") == [6, 7]
    assert logged(out)[-1] == 7
    resumed = run(Line(), out, resume=True)
    assert torch.equal(resumed.network.weight, whole.network.weight)
    assert logged(out) == [4, 6, 7, 8, 10, 12, 16, 18, 20]


def test_a_second_signal_ends_at_once(out) -> None:
    def twice(step: int) -> None:
        if step == 2:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    trainer = Line(before=twice)
    with pytest.raises(KeyboardInterrupt):
        run(trainer, out)
    assert trainer.closed
    assert checkpoint.steps(out / "checkpoints") == []


def test_a_sitting_may_end_early(tmp_path) -> None:
    whole = run(Line(), tmp_path / "whole")
    first = run(Line(), tmp_path / "parts", stop_at=9)
    assert first.measured == [9]
    assert checkpoint.steps(tmp_path / "parts" / "checkpoints") == [6, 9]
    second = run(Line(), tmp_path / "parts", resume=True, stop_at=99)
    assert torch.equal(second.network.weight, whole.network.weight)
    with pytest.raises(ConfigError, match="stop_at must be at least 1, got 0"):
        check_stop_at(0)


@pytest.mark.parametrize(
    ("at", "told"),
    [(2, "Nothing was saved yet; train again with"), (8, "The checkpoint of step 6 is sound")],
)
def test_what_is_not_finite_is_not_saved(out, at, told) -> None:
    def spoil(step: int) -> None:
        trainer.spoilt = math.inf if step == at else 1.0

    trainer = Line(before=spoil)
    with pytest.raises(RunError, match=rf"the loss became (inf|nan), .* by step \d+\. {told}"):
        run(trainer, out)
    assert trainer.closed
    assert checkpoint.steps(out / "checkpoints") == ([] if at == 2 else [6])


def test_seconds_of_the_steps_alone(out) -> None:
    """A training may leave the time out that it takes to measure; preparation may count."""
    trainer = Line(measure_every=1)
    trainer.counts_steps_only = True
    trainer.measure = lambda step: time.sleep(0.02) or {}
    (out / "checkpoints").mkdir(parents=True)
    Loop(trainer, out, resume=False, silent=True, spent=100.0).run()
    seconds = checkpoint.load(out / "checkpoints").state.seconds
    assert 100 < seconds < 100.2  # 20 measurements take 0.4 s
    Loop(Line(21), out, resume=True, silent=True, spent=100.0).run()
    assert checkpoint.load(out / "checkpoints").state.seconds == pytest.approx(seconds, abs=1)


def test_metrics_that_find_no_room_cost_no_steps(out: Path, monkeypatch) -> None:
    def full(self: MetricsFile, step: int, metrics: Mapping[str, float]) -> None:
        if step > 8:
            raise OSError(28, "No space left on device")
        write(self, step, metrics)

    write = MetricsFile.log
    monkeypatch.setattr(MetricsFile, "log", full)
    with pytest.raises(RunError, match=r"step 10 could not be written: .*No space.* step is saved"):
        run(Line(), out)
    assert checkpoint.steps(out / "checkpoints") == [6, 10]
    assert logged(out) == [4, 6, 8]
    monkeypatch.undo()
    whole = run(Line(), out.with_name("whole"))
    again = run(Line(), out, resume=True)
    assert torch.equal(whole.network.weight, again.network.weight)


def test_what_finds_no_room_at_all_is_told(out: Path, monkeypatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    before = lambda step: step == 7 and monkeypatch.setattr(checkpoint, "write_flushed", full)  # noqa: E731
    monkeypatch.setattr(MetricsFile, "log", lambda *a: full() if a[1] > 7 else None)
    with pytest.raises(RunError, match="step 8 could not be written.*step 6 is intact"):
        run(Line(before=before), out)
    assert checkpoint.load(out / "checkpoints").state.step == 6


@pytest.mark.parametrize(("spoilt", "kept"), [(10, "step 6 is sound"), (20, "step 18")])
def test_a_held_out_loss_that_is_no_number_stops(out: Path, spoilt: int, kept: str) -> None:
    class Spoilt(Line):
        def measure(self, step: int) -> dict[str, float]:
            if step < spoilt:
                return {"loss": 1.0}
            return {"loss": math.nan, "states/hidden": math.nan, "actions/hidden": 2.0}

    said = f"held-out loss became nan by step {spoilt}, of loss, states/hidden. The .*{kept}"
    with pytest.raises(RunError, match=said):
        run(Spoilt(), out)
    assert spoilt not in checkpoint.steps(out / "checkpoints")


def test_where_nothing_was_saved_nothing_is_said_to_be_sound(out: Path) -> None:
    class Spoilt(Line):
        def measure(self, step: int) -> dict[str, float]:
            return {"loss": math.inf}

    with pytest.raises(RunError, match="became inf by step 4, of loss. Nothing was saved yet"):
        run(Spoilt(measure_every=4), out)


def test_only_what_can_be_read_is_said_to_be_sound(out: Path) -> None:
    class Spoilt(Line):
        def measure(self, step: int) -> dict[str, float]:
            file = out / "checkpoints" / "step-000000018" / "model.safetensors"
            if step == 20:
                file.write_bytes(file.read_bytes()[:-1])
            return {"loss": math.nan if step == 20 else 1.0}

    with pytest.raises(RunError, match="The checkpoint of step 12 is sound"):
        run(Spoilt(), out)
