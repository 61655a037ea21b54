"""Members in training: each as if it were alone, all in one run."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from lightning_fabric import Fabric

import mtm
from mtm.core.config import DeviceConfig, TrainConfig
from mtm.core.errors import RunError
from mtm.data.normalizer import Normalizer
from mtm.data.preparation import prepare
from mtm.data.segments import Segments
from mtm.evaluation.evaluate import weights_digest
from mtm.inference.engine import ask, ask_members
from mtm.masks import training_mask
from mtm.models.members import Members
from mtm.models.network import Network, make_network
from mtm.runs import checkpoint
from mtm.runs.description import Description
from mtm.training.batches import BatchMaker
from mtm.training.masked_model import MaskedForward, train_step
from mtm.training.optimization import clip_members, make_optimizers, set_learning_rate
from mtm.training.train import train

K = 3


def with_members(config: TrainConfig, members: int = K, **model) -> TrainConfig:
    return replace(config, model=replace(config.model, members=members, **model))


def weights(path: Path) -> dict[str, torch.Tensor]:
    loaded = checkpoint.load(path / "checkpoints")
    return loaded.model | {f"optimizer.{k}": v for k, v in loaded.optimizer.items()}


def equal(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def stepped(network: Network, config: TrainConfig, data, steps: int) -> tuple[Network, list[float]]:
    """A copy of a network after some steps, and what was logged of the last."""
    network = copy.deepcopy(network)
    prepared = prepare(data, config)
    description = Description(config, prepared.modalities, Normalizer.fit(prepared), {})
    fabric = Fabric(accelerator="cpu", devices=1)
    optimizers = make_optimizers(network, config.optimizer)
    set_learning_rate(optimizers, 1e-3)
    model, *wrapped = fabric.setup(MaskedForward(network), *optimizers)
    segments = Segments(prepared, config.model.segment_length)
    make = BatchMaker(description, segments, training_mask(config))
    for step in range(steps):
        logged = train_step(
            fabric, model, wrapped, prepared.modalities, make(step), 0.1, "absolute"
        )
    return network, logged.tolist()


@pytest.mark.parametrize(
    "settings", [{}, {"loss_on": "hidden"}, {"optimizer": "adamw"}, {"mlp": 1}]
)
def test_each_member_trains_as_if_it_were_alone(point_mass, tiny, settings) -> None:
    """Its gradient is clipped by its own norm, and Muon makes its update orthogonal by itself."""
    config = replace(tiny, loss_on=settings.get("loss_on", "all"))
    if "optimizer" in settings:
        config = replace(config, optimizer=replace(config.optimizer, name="adamw"))
    if "mlp" in settings:
        config = replace(config, mask="bc", model=replace(config.model, network="mlp"))
    modalities = prepare(point_mass, config).modalities
    torch.manual_seed(3)
    alone = [make_network(modalities, config.model) for _ in range(K)]
    torch.manual_seed(3)
    together = make_network(modalities, with_members(config).model)
    after, logged = stepped(together, config, point_mass, steps=2)
    assert isinstance(after, Members)
    each_logged = []
    for number, network in enumerate(alone):
        single, of_single = stepped(network, config, point_mass, steps=2)
        each_logged.append(of_single)
        mine = after.member(number).state_dict()
        for name, weight in single.state_dict().items():
            torch.testing.assert_close(mine[name], weight, rtol=1e-3, atol=2e-5)
            assert not torch.equal(weight, network.state_dict()[name]) or "bias" in name
    assert logged == pytest.approx(np.mean(each_logged, axis=0).tolist(), rel=1e-4)
    norms = [of_single[-1] for of_single in each_logged]
    assert min(norms) > 0.1  # so each of them was clipped
    assert max(norms) > 1.01 * min(norms)


def test_gradients_are_clipped_member_by_member() -> None:
    first, second = torch.zeros(2, 3, requires_grad=True), torch.zeros(2, 1, 2, requires_grad=True)
    first.grad = torch.tensor([[3.0, 0.0, 0.0], [0.3, 0.0, 0.0]])
    second.grad = torch.tensor([[[4.0, 0.0]], [[0.0, 0.4]]])
    assert float(clip_members([first, second], 0.0)) == pytest.approx((5 + 0.5) / 2)
    assert float(first.grad[0, 0]) == 3.0
    clip_members([first, second], 1.0)
    assert first.grad[:, 0].tolist() == pytest.approx([0.6, 0.3], rel=1e-5)
    assert second.grad.sum(dim=(1, 2)).tolist() == pytest.approx([0.8, 0.4], rel=1e-5)


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_resuming_is_exact(point_mass, tiny, tmp_path, dropout) -> None:
    config = with_members(tiny, dropout=dropout)
    train(point_mass, config, tmp_path / "whole", silent=True)
    train(point_mass, config, tmp_path / "parts", stop_at=10, silent=True)
    run = train(point_mass, config, tmp_path / "parts", resume=True, silent=True)
    assert equal(weights(tmp_path / "whole"), weights(tmp_path / "parts"))
    assert (run.step, run.members) == (20, K)
    with pytest.raises(RunError, match="model.members: 3 -> 2"):
        train(point_mass, with_members(tiny, 2, dropout=dropout), run.path, resume=True)


@pytest.mark.parametrize("precision", ["bf16-mixed", "bf16-true", "64-true"])
def test_members_train_in_every_precision(point_mass, tiny, out, precision) -> None:
    device = DeviceConfig(accelerator="cpu", precision=precision)
    run = train(point_mass, with_members(tiny, 2), out, device=device, silent=True)
    states = point_mass.arrays["states"][:6]
    assert np.isfinite(mtm.inverse_dynamics(run, states)).all()


def test_a_run_with_members_is_a_run(point_mass, tiny, out) -> None:
    run = train(point_mass, with_members(tiny), out, silent=True)
    loaded = mtm.load_run(out)
    assert weights_digest(loaded.model) == weights_digest(run.model)
    assert json.loads((out / "config.json").read_text())["train"]["model"]["members"] == K
    assert len(checkpoint.load(out / "checkpoints").state.validation) > 3
    episode = point_mass.episode(0)
    states = episode["states"][:4]
    window = {"states": states[None]}
    visible = np.zeros((1, 4, len(run.modalities)), bool)
    visible[:, :, run.modalities.place("states")] = True
    each = ask_members(run, window, visible, ["actions"])["actions"]
    assert each.shape == (K, 1, 4, 2)
    assert np.std(each, axis=0).min() > 0
    together = ask(run, window, visible, ["actions"])["actions"]
    np.testing.assert_allclose(together, each.mean(axis=0), atol=1e-5)
    np.testing.assert_allclose(mtm.inverse_dynamics(run, states), together[0], atol=1e-5)
    policy = mtm.policies.return_conditioned(run)
    policy.reset(5)
    assert policy.act(np.zeros((5, 4), np.float32)).shape == (5, 2)


def test_one_network_is_one_member(point_mass, tiny, out) -> None:
    run = train(point_mass, tiny, out, silent=True)
    assert run.members == 1
    assert not isinstance(run.model, Members)
    window = {"states": point_mass.episode(0)["states"][None, :3]}
    visible = np.zeros((1, 3, len(run.modalities)), bool)
    visible[:, :, run.modalities.place("states")] = True
    each = ask_members(run, window, visible, ["actions"])["actions"]
    assert np.array_equal(each[0], ask(run, window, visible, ["actions"])["actions"])
