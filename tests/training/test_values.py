"""The expectile of returns: its loss, and trainings with and without it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from mtm.core.config import ModelConfig
from mtm.core.errors import ConfigError
from mtm.data.modalities import Modality
from mtm.models.heads import Predictions
from mtm.models.mtm import MTM
from mtm.runs import checkpoint
from mtm.training.train import train
from mtm.training.values import expectile_errors, expectile_losses

MODALITIES = (
    Modality("states", (3,)),
    Modality("returns", (), role="return"),
    Modality("actions", (2,), role="action"),
)


@pytest.mark.parametrize(("expectile", "expected"), [(0.5, 0.5), (0.9, 0.75), (0.99, 0.9087)])
def test_the_least_loss_is_at_the_expectile(expectile: float, expected: float) -> None:
    """Of a uniform distribution: expectile * (1 - e)^2 = (1 - expectile) * e^2."""
    truth = torch.linspace(0, 1, 10_001, dtype=torch.float64)
    guesses = torch.linspace(0, 1, 1001, dtype=torch.float64)
    costs = torch.stack([expectile_errors(g, truth, expectile).mean() for g in guesses])
    assert guesses[costs.argmin()].item() == pytest.approx(expected, abs=2e-3)


def test_an_expectile_of_a_half_costs_squares() -> None:
    guess, truth = torch.randn(20), torch.randn(20)
    torch.testing.assert_close(expectile_errors(guess, truth, 0.5), (guess - truth) ** 2)


def test_only_hidden_returns_count() -> None:
    rng = torch.Generator().manual_seed(0)
    guess, truth = (torch.randn(2, 4, generator=rng) for _ in range(2))
    hidden = torch.zeros(2, 4, 3, dtype=torch.bool)
    hidden[0, 1, 1] = hidden[1, 3, 1] = hidden[0, 0, 0] = True
    weights, totals = torch.ones(2, 4, 3), torch.full((3,), 8.0)
    values = {"returns": truth.clone()}
    predictions = Predictions({}, {}, {"returns": guess})
    losses = expectile_losses(MODALITIES, predictions, values, weights, hidden, totals, 0.8)
    costs = [(0.8 if u > 0 else 0.2) * 2 * u**2 for u in (truth - guess)[hidden[:, :, 1]].tolist()]
    torch.testing.assert_close(losses, torch.tensor([0.0, sum(costs) / 8, 0.0]))
    values["returns"][~hidden[:, :, 1]] = float("nan")  # what was visible, or is absent
    again = expectile_losses(MODALITIES, predictions, values, weights, hidden, totals, 0.8)
    assert torch.equal(losses, again)


@pytest.mark.parametrize("predict_variance", [True, False])
def test_the_head_of_returns_gives_one_number_more(predict_variance: bool) -> None:
    sizes = {"width": 16, "heads": 2, "predict_variance": predict_variance}
    networks = [MTM(MODALITIES, ModelConfig(**sizes, values=v)) for v in (0.0, 0.9)]
    without, within = (
        {name: head[-1].out_features for name, head in network.heads.items()}
        for network in networks
    )
    assert within == without | {"returns": without["returns"] + 1}
    values = {m.name: torch.randn(5, 4, *m.shape) for m in MODALITIES}
    visible = torch.rand(5, 4, 3) < 0.5
    plain, more = (network(values, visible) for network in networks)
    assert not plain.expectiles
    assert list(more.expectiles) == ["returns"]
    assert more.expectiles["returns"].shape == (5, 4)
    assert not torch.equal(more.expectiles["returns"], more.values["returns"])


def weights(path: Path) -> dict[str, torch.Tensor]:
    return checkpoint.load(path / "checkpoints").model


def test_training_with_values_goes_on_where_it_stopped(point_mass, tiny, tmp_path) -> None:
    config = replace(tiny, model=replace(tiny.model, values=0.8))
    train(point_mass, config, tmp_path / "whole", silent=True)
    train(point_mass, config, tmp_path / "parts", silent=True, stop_at=10)
    run = train(point_mass, config, tmp_path / "parts", silent=True, resume=True)
    whole, parts = weights(tmp_path / "whole"), weights(tmp_path / "parts")
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    assert run.description.train.model.values == 0.8
    train(point_mass, tiny, tmp_path / "without", silent=True)
    assert not np.array_equal(weights(tmp_path / "without")["mask_tokens"], whole["mask_tokens"])


def test_values_that_make_no_sense(point_mass, tiny, tmp_path) -> None:
    for wrong in (0.3, 1.0, -1.0):
        with pytest.raises(ConfigError, match=r"model.values must be in \[0.5, 1\)"):
            ModelConfig(values=wrong)
    with pytest.raises(ConfigError, match="model.values is for the transformer"):
        ModelConfig(values=0.9, network="mlp")
    config = replace(tiny, model=replace(tiny.model, values=0.8))
    with pytest.raises(ConfigError, match="none are modelled: there are states, actions"):
        train(point_mass.select(["states", "actions"]), config, tmp_path / "run", silent=True)
    assert not (tmp_path / "run").exists()
