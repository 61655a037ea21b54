"""The mean of the last weights: what it is, what it is used for, and how a training goes on."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import safetensors.torch
import torch
from tests.training.test_scaffold import Line
from torch import nn

from mtm.runs import checkpoint
from mtm.training.scaffold import Loop
from mtm.training.train import train
from mtm.training.weight_average import WeightAverage


class Averaged(Line):
    """Notes its weight after every step, and averages those after some of them."""

    def __init__(self, after: int = 12, steps: int = 20) -> None:
        super().__init__(steps)
        self.average = WeightAverage(self.network, after)
        self.seen: list[float] = []

    def step(self, step: int) -> None:
        super().step(step)
        self.seen.append(self.network.weight.item())


def run(trainer, out, *, resume: bool = False, stop_at: int | None = None):
    (out / "checkpoints").mkdir(parents=True, exist_ok=True)
    Loop(trainer, out, resume=resume, silent=True).run(stop_at)
    return trainer, checkpoint.load(out / "checkpoints")


def test_the_mean_of_the_last_weights_is_saved_and_measured(out) -> None:
    trainer, saved = run(Averaged(after=12), out)
    mean = sum(trainer.seen[12:]) / 8
    assert saved.model["weight"].item() == pytest.approx(mean, rel=1e-6)
    assert saved.state.validation["loss"] == pytest.approx(mean, rel=1e-6)
    assert trainer.network.weight.item() == trainer.seen[-1] != saved.model["weight"].item()


def test_training_is_not_changed_by_it(tmp_path) -> None:
    alone, _ = run(Line(), tmp_path / "alone")
    averaged, _ = run(Averaged(), tmp_path / "averaged")
    assert torch.equal(alone.network.weight, averaged.network.weight)


def test_before_it_begins_the_latest_weights_are_saved(out) -> None:
    trainer, saved = run(Averaged(after=12), out, stop_at=12)
    assert saved.model["weight"].item() == trainer.seen[-1]
    assert not [name for name in saved.optimizer if name.startswith(checkpoint.BESIDE)]


@pytest.mark.parametrize("stop_at", [7, 12, 13, 17])
def test_a_resumed_training_ends_the_same(tmp_path, stop_at) -> None:
    _, whole = run(Averaged(), tmp_path / "whole")
    run(Averaged(), tmp_path / "parts", stop_at=stop_at)
    _, parts = run(Averaged(), tmp_path / "parts", resume=True)
    for kind in ("model", "optimizer"):
        before, after = getattr(whole, kind), getattr(parts, kind)
        assert before.keys() == after.keys()
        assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_training_that_goes_on_for_longer_begins_another_mean(out) -> None:
    run(Averaged(after=12, steps=20), out)
    longer, saved = run(Averaged(after=30, steps=40), out, resume=True)
    assert saved.model["weight"].item() == pytest.approx(sum(longer.seen[-10:]) / 10, rel=1e-6)
    straight, _ = run(Averaged(after=30, steps=40), out / "straight")
    assert torch.equal(longer.network.weight, straight.network.weight)


def test_weights_of_few_bits_are_averaged_in_many() -> None:
    network = nn.Linear(1, 1, bias=False).to(torch.bfloat16)
    average = WeightAverage(network, after=0)
    for taken in range(1, 101):
        with torch.no_grad():
            network.weight.fill_(1 + (taken % 2) / 128)  # neighbours in bfloat16
        average.add(taken)
    assert average.tensors()["average/mean/weight"].item() == pytest.approx(1 + 1 / 256, rel=1e-6)
    with average.in_place():
        assert network.weight.dtype == torch.bfloat16
    assert network.weight.item() == 1


def test_a_run_answers_with_the_mean(point_mass, tiny, out) -> None:
    config = replace(tiny, optimizer=replace(tiny.optimizer, averaged_share=0.5))
    answers = train(point_mass, config, out, silent=True)
    assert json.loads((out / "config.json").read_text())["format"] == 8
    newest = sorted((out / "checkpoints").iterdir())[-1]
    beside = safetensors.torch.load_file(newest / "optimizer.safetensors")
    assert int(beside["average/count"]) == config.steps - round(config.steps * 0.5)
    for name, weight in answers.model.named_parameters():
        assert torch.equal(weight, beside[f"average/mean/{name}"])
        assert weight.numel() < 2 or not torch.equal(weight, beside[f"average/latest/{name}"])
