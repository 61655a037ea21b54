"""IQL and TD3+BC work their losses out by themselves; they are TorchRL's, gradients included."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from mtm.data.normalizer import Normalizer
from mtm.research.baselines.replay import Scaling, TransitionBatch
from mtm.research.baselines.settings import agent_config

pytest.importorskip("torchrl", reason="the extra `baselines` is not installed")
from mtm.research.baselines.actor_critic import ActorCritic
from mtm.research.baselines.learner import make_learner


def prepared(name: str, data) -> tuple[ActorCritic, TransitionBatch]:
    """A learner whose targets are not its networks, and a batch in which some episodes end."""
    torch.manual_seed(0)
    scaling = Scaling.of(data.modalities, Normalizer.fit(data))
    learner = make_learner(name, agent_config(name, "tiny"), scaling)
    assert isinstance(learner, ActorCritic)
    learner.prepare(data)
    with torch.no_grad():
        for parameter in learner.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    batch = learner.transitions.draw(64, seed=0, step=0)
    return learner, replace(batch, terminated=torch.rand(64, 1) < 0.3)


def torchrl_terms(learner: ActorCritic, batch: TransitionBatch) -> dict[str, Tensor]:
    plain, loss = learner.as_tensordict(batch), learner.loss
    terms = {"critic": loss.qvalue_loss(plain)[0], "actor": loss.actor_loss(plain)[0]}
    if hasattr(loss, "value_loss"):
        terms["value"] = loss.value_loss(plain)[0]
    return terms


@pytest.mark.parametrize("name", ["iql", "td3_bc"])
def test_terms_and_gradients_are_torchrls(name: str, point_mass) -> None:
    learner, batch = prepared(name, point_mass)
    found = []
    for terms_of in (lambda: learner.terms(batch, 0), lambda: torchrl_terms(learner, batch)):
        torch.manual_seed(5)  # of the noise on the next actions
        terms = terms_of()
        learner.zero_grad()
        torch.stack(list(terms.values())).sum().backward()
        gradients = {n: p.grad.clone() for n, p in learner.named_parameters()}
        found.append(({key: term.item() for key, term in terms.items()}, gradients))
    (mine, my_gradients), (its, its_gradients) = found
    assert mine == pytest.approx(its, rel=1e-4)
    assert my_gradients.keys() == its_gradients.keys()
    for key, gradient in my_gradients.items():
        assert gradient.abs().max() > 0
        assert torch.allclose(gradient, its_gradients[key], rtol=1e-3, atol=1e-6), key


@pytest.mark.parametrize("name", ["iql", "td3_bc"])
def test_the_actors_loss_leaves_the_critics_alone(name: str, point_mass) -> None:
    learner, batch = prepared(name, point_mass)
    learner.terms(batch, 0)["actor"].backward()
    moved = {n.split(".")[1] for n, p in learner.named_parameters() if p.grad is not None}
    assert moved == {"actor_network_params"}
