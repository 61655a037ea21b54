"""ReBRAC: its two penalties, its networks, and what its losses train."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from mtm.data.normalizer import Normalizer
from mtm.data.trajectories import TrajectoryDataset
from mtm.research.baselines.critic_settings import ReBRACConfig
from mtm.research.baselines.rebrac import ReBRAC
from mtm.research.baselines.replay import Scaling, TransitionBatch, Transitions
from mtm.research.baselines.settings import agent_config

SILENT = ReBRACConfig(actor_penalty=0.0, critic_penalty=0.0, policy_noise=0.0)


def learner(data: TrajectoryDataset, settings: ReBRACConfig) -> ReBRAC:
    config = replace(agent_config("rebrac", "tiny"), rebrac=settings)
    torch.manual_seed(0)
    return ReBRAC(config, Scaling.of(data.modalities, Normalizer.fit(data)))


def batch_of(data: TrajectoryDataset, learner: ReBRAC) -> TransitionBatch:
    learner.prepare(data)
    return learner.transitions.draw(64, seed=0, step=0)


def moved(learner: ReBRAC) -> set[str]:
    """The networks that have got a gradient."""
    return {
        name.split(".")[1]
        for name, p in learner.named_parameters()
        if p.grad is not None and p.grad.abs().max() > 0
    }


def test_the_penalty_lowers_what_the_critics_aim_at(point_mass) -> None:
    """A critic that says 0 everywhere shows the aim in its loss."""
    free, held = (
        learner(point_mass, replace(SILENT, critic_penalty=weight)) for weight in (0.0, 3.0)
    )
    for one in (free, held):
        for critic in (*one.networks["critics"], *one.targets["critics"]):
            critic[-1].weight.data.zero_()
            critic[-1].bias.data.zero_()
    batch = batch_of(point_mass, free)
    assert free.critic_loss(batch).item() == pytest.approx(
        2 * batch.rewards.square().mean().item(), rel=1e-5
    )
    strange = (torch.tanh(held.targets["actor"](batch.next_states)) - batch.next_actions).square()
    aim = batch.rewards - 0.99 * 3.0 * strange.sum(dim=1, keepdim=True)
    assert held.critic_loss(batch).item() == pytest.approx(2 * aim.square().mean().item(), rel=1e-5)


def test_nothing_follows_a_terminal_step(point_mass) -> None:
    agent = learner(point_mass, replace(SILENT, critic_penalty=3.0))
    batch = replace(batch_of(point_mass, agent), terminated=torch.ones(64, 1, dtype=torch.bool))
    other = replace(batch, next_states=batch.next_states + 5, next_actions=-batch.next_actions)
    assert torch.equal(agent.critic_loss(batch), agent.critic_loss(other))


def test_the_penalty_holds_the_actor(point_mass) -> None:
    free, held = (
        learner(point_mass, replace(SILENT, actor_penalty=weight)) for weight in (0.0, 2.0)
    )
    batch = batch_of(point_mass, free)
    distance = (torch.tanh(held.networks["actor"](batch.states)) - batch.actions).square()
    added = (held.actor_loss(batch) - free.actor_loss(batch)).item()
    assert added == pytest.approx(2.0 * distance.sum(dim=1).mean().item(), rel=1e-4)


def test_each_loss_trains_its_own_networks(point_mass) -> None:
    agent = learner(point_mass, ReBRACConfig())
    batch = batch_of(point_mass, agent)
    agent.actor_loss(batch).backward()
    assert moved(agent) == {"actor"}
    agent.zero_grad()
    agent.critic_loss(batch).backward()
    assert moved(agent) == {"critics"}
    assert all(p.requires_grad for p in agent.networks.parameters())
    assert not any(p.requires_grad for p in agent.targets.parameters())


def test_norms_are_in_the_critics_alone(point_mass) -> None:
    agent = learner(point_mass, ReBRACConfig())
    norms = [n for n, m in agent.networks.named_modules() if isinstance(m, torch.nn.LayerNorm)]
    layers = agent.config.critic.layers
    assert len(norms) == 2 * layers
    assert all(name.startswith("critics") for name in norms)
    published = agent_config("rebrac", "paper")
    assert (published.batch_size, published.critic.layers) == (1024, 3)
    assert published.critic.learning_rate == published.critic.actor_learning_rate == 1e-3


def test_next_actions_are_known_where_the_data_have_them() -> None:
    steps = np.arange(6, dtype=np.float32)
    data = TrajectoryDataset.from_arrays(
        {"states": steps[:, None], "actions": steps[:, None] / 10, "rewards": steps},
        [0, 3, 6],
        terminated=np.array([True, False]),
    )
    acted = np.array([True, True, True, True, False, True])
    data = data.with_present({"actions": acted})
    normalizer = Normalizer.fit(data)
    batch = Transitions(data, Scaling.of(data.modalities, normalizer)).draw(200, 0, 0)
    now = normalizer.denormalize("states", batch.states).round().squeeze(1).long()
    assert set(now.tolist()) == {0, 1, 2, 3}  # without an action there is no transition
    known = batch.next_known.squeeze(1)
    assert set(now[known].tolist()) == {0, 1}  # 2 is terminal, 3 is followed by no action
    assert torch.equal(batch.next_actions[~known], torch.zeros_like(batch.next_actions[~known]))
    of_one = batch.next_actions[now == 0][0]
    assert torch.equal(of_one, batch.actions[now == 1][0])
