"""The perceptron per capability and S-MTM: runs as any other, each good at one thing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import mtm
from mtm.cli import main
from mtm.control import policies
from mtm.core.config import ModelConfig, TrainConfig
from mtm.core.errors import ConfigError
from mtm.core.names import CAPABILITIES
from mtm.data.formats import builtin
from mtm.data.modalities import Modality
from mtm.evaluation.evaluate import EvalConfig, evaluate
from mtm.models.mlp import MLP
from mtm.models.mtm import MTM
from mtm.models.network import make_network
from mtm.research.baselines.mlp import mlp_config
from mtm.research.baselines.specialised import specialised_config
from mtm.runs import checkpoint
from mtm.training.train import train


def short(capability: str, **changes) -> TrainConfig:
    config = mlp_config(capability, "tiny")
    model = replace(config.model, width=16)
    return replace(config, steps=20, checkpoint_every=10, validate_every=10, model=model, **changes)


def mixed() -> tuple[MLP, dict[str, torch.Tensor]]:
    modalities = (Modality("states", (3,)), Modality("phase", (), "discrete", 4))
    model = MLP(modalities, ModelConfig(network="mlp", segment_length=2, width=8, residual=False))
    values = {"states": torch.randn(5, 2, 3), "phase": torch.randint(4, (5, 2))}
    return model.eval(), values


def test_the_setting_chooses_the_network(modalities) -> None:
    assert isinstance(make_network(modalities, ModelConfig(width=8)), MTM)
    assert isinstance(make_network(modalities, ModelConfig(width=8, network="mlp")), MLP)
    with pytest.raises(ConfigError, match=r"unknown model.network 'mpl'. Did you mean 'mlp'"):
        TrainConfig(model=ModelConfig(network="mpl"))  # type: ignore[arg-type]


def test_shapes_and_that_hidden_values_have_no_influence() -> None:
    model, values = mixed()
    visible = torch.tensor([[[True, True], [False, False]]]).repeat(5, 1, 1)
    before = model(values, visible).values
    assert before["states"].shape == (5, 2, 3)
    assert before["phase"].shape == (5, 2, 4)
    changed = {"states": values["states"].clone(), "phase": values["phase"].clone()}
    changed["states"][:, 1], changed["phase"][:, 1] = 9.0, 3
    after = model(changed, visible).values
    assert all(torch.equal(before[name], after[name]) for name in before)
    changed["phase"][:, 0] = (values["phase"][:, 0] + 1) % 4
    assert not torch.equal(model(changed, visible).values["states"], before["states"])


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_only_what_the_capability_asks_for_is_learned(point_mass, tmp_path, capability) -> None:
    """Other outputs get no gradient, so they stay as they were drawn."""
    config = replace(short(capability), optimizer=replace(short("bc").optimizer, weight_decay=0.0))
    train(point_mass, replace(config, steps=1), tmp_path / "one", silent=True)
    train(point_mass, config, tmp_path / "all", silent=True)
    first, last = (
        checkpoint.load(tmp_path / name / "checkpoints")
        .model["out.weight"]
        .view(config.model.segment_length, -1, 16)
        for name in ("one", "all")
    )
    moved = ~(first == last).all(dim=2)  # (T, features): states 4, returns 1 for rcbc, actions 2
    asked = torch.zeros_like(moved)
    if capability == "fd":
        asked[1, :4] = True
    else:
        asked[0, -2:] = True
    assert torch.equal(moved, asked)


def test_wanted_tokens_make_the_held_out_loss(point_mass, out) -> None:
    train(point_mass, short("fd"), out, silent=True)
    held_out = checkpoint.load(out / "checkpoints").state.validation
    assert set(held_out) == {"loss", "states/hidden", "fd", "fd_copy_last"}
    assert held_out["loss"] == pytest.approx(held_out["states/hidden"])
    assert held_out["states/hidden"] == pytest.approx(held_out["fd"])


def test_resume_is_exact(point_mass, tmp_path) -> None:
    train(point_mass, short("rcbc"), tmp_path / "whole", silent=True)
    train(point_mass, short("rcbc"), tmp_path / "parts", stop_at=10, silent=True)
    train(point_mass, short("rcbc"), tmp_path / "parts", resume=True, silent=True)
    whole, parts = (checkpoint.load(tmp_path / n / "checkpoints") for n in ("whole", "parts"))
    assert all(torch.equal(whole.model[name], parts.model[name]) for name in whole.model)


def test_it_learns_dynamics(tmp_path) -> None:
    """The true next state is linear in state and action; copying the last one gives 44 %."""
    config = replace(mlp_config("fd", "tiny"), steps=200, batch_size=128, checkpoint_every=200)
    train(builtin.point_mass(), config, tmp_path / "run", silent=True)
    held_out = checkpoint.load(tmp_path / "run" / "checkpoints").state.validation
    assert held_out["fd_copy_last"] > 0.3
    assert held_out["fd"] < 0.03


def test_policies_and_queries_take_it(point_mass, out) -> None:
    run = train(point_mass, short("rcbc"), out, silent=True)
    policy = policies.return_conditioned(run, "auto")
    policy.reset(3)
    states = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    together = policy.act(states)
    policy.reset(1)
    assert policy.act(states[1:2]) == pytest.approx(together[1:2], abs=1e-6)
    asked = mtm.return_conditioned(run, states[:, None], 0.5)
    assert asked.shape == (3, 2)
    with pytest.raises(ConfigError, match="an MLP, which encodes no states"):
        mtm.represent(run, states)


@pytest.mark.parametrize("capability", ["id", "rcbc"])
def test_evaluation_says_why_the_others_do_not_apply(tmp_path, capability: str) -> None:
    run = train("builtin:point-mass", short(capability), tmp_path / "run", silent=True)
    said: list[str] = []
    tasks = evaluate(run, EvalConfig(), say=said.append)["tasks"]
    others = {"fd", "id", "bc", "rcbc", "two_stage"} - {capability}
    for task in others:
        assert tasks[task] is None
        assert f"{task} does not apply: the run is an MLP trained with the mask" in "\n".join(said)
    assert not any(text.startswith(f"{capability} does not apply") for text in said)
    if capability == "id":
        assert tasks["id"]["normalized"] > 0


def test_an_mlp_from_the_command_line(tmp_path: Path, capsys) -> None:
    out, scores = str(tmp_path / "run"), tmp_path / "scores.json"
    words = ["train", "--data", "builtin:point-mass", "--preset", "tiny", "--out", out]
    words += ["--model.network", "mlp", "--mask", "fd", "--model.segment-length", "2"]
    assert main([*words, "--loss-on", "hidden"]) == 0
    assert main(["eval", out, "--tasks", "fd", "bc", "--json", str(scores)]) == 0
    assert "bc does not apply" in capsys.readouterr().out
    assert json.loads(scores.read_text())["tasks"]["fd"]["normalized"] > 0


def test_settings_are_the_paper_s() -> None:
    config = mlp_config("rcbc", "paper")
    assert (config.model.network, config.model.width, config.model.encoder_layers) == (
        "mlp",
        1024,
        2,
    )
    assert (config.batch_size, config.steps, config.model.segment_length) == (4096, 140_000, 1)
    rates = config.optimizer
    assert (rates.learning_rate, rates.weight_decay, rates.warmup_steps) == (2e-4, 0.005, 5000)
    assert mlp_config("id").model.segment_length == 2
    for scale in ("tiny", "cpu"):  # the optimizer and the loss of the masked model
        ours, rival = mtm.preset(scale), mlp_config("bc", scale)
        assert rival.optimizer == ours.optimizer
        assert (rival.loss_on, rival.action_loss) == (ours.loss_on, ours.action_loss)
    for scale in ("tiny", "cpu", "paper"):
        special = specialised_config("fd", scale)
        assert special == replace(mtm.preset(scale), mask="fd")
    with pytest.raises(ConfigError, match="unknown capability 'rcb'. Did you mean"):
        specialised_config("rcb")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="unknown preset 'big'"):
        mlp_config("bc", "big")
