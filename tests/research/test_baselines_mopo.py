"""MOPO: penalised rewards, short rollouts that stop at the end, an actor that learns of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from mtm.control.rollout import rollout
from mtm.core.errors import ConfigError
from mtm.data.formats import builtin
from mtm.data.modalities import Modality
from mtm.data.normalizer import Normalizer
from mtm.research.baselines.critic_settings import CriticConfig, DynamicsConfig, MOPOConfig
from mtm.research.baselines.replay import Scaling
from mtm.research.baselines.settings import agent_config

pytest.importorskip("torchrl", reason="the extra `baselines` is not installed")
pytest.importorskip("gymnasium", reason="the extra `sim` is not installed")
from mtm.research.baselines import train_agent
from mtm.research.baselines.mopo import MOPO

ENV = "point_mass_environment:PointMass-v0"
pytestmark = pytest.mark.usefixtures("_find_environments")


def learner(data, **changes) -> MOPO:
    config = agent_config("mopo", "tiny")
    config = replace(config, mopo=replace(config.mopo, **changes))
    torch.manual_seed(0)
    made = MOPO(config, Scaling.of(data.modalities, Normalizer.fit(data)))
    made.prepare(data)
    return made


def imagined(one: MOPO) -> tuple[torch.Tensor, ...]:
    """State, action, reward, next state, terminated: what was imagined so far."""
    torch.manual_seed(1)
    one._imagine()
    return one.imagined[: int(one.written)].split(one._parts, dim=1)


def test_uncertainty_is_taken_off_the_rewards(point_mass) -> None:
    bare, penalised = (imagined(learner(point_mass, penalty=weight)) for weight in (0.0, 2.0))
    states, actions, rewards = penalised[:3]
    assert torch.equal(states, bare[0])
    one = learner(point_mass)
    unsure = one.dynamics.imagine(states, actions).uncertainty
    assert torch.allclose(bare[2] - rewards, 2.0 * unsure, atol=1e-4)
    assert (unsure > 0).all()


def test_rollouts_go_on_from_what_was_imagined_and_stop_at_the_end(point_mass) -> None:
    states, _, _, after, ended = imagined(learner(point_mass, horizon=4, rollouts=16))
    firsts, lived = states[:16], after[:16][ended[:16, 0] == 0]
    assert torch.equal(states[16 : 16 + len(lived)], lived)
    assert len(states) < 4 * 16  # fresh networks end half of them at each step
    every = torch.cat([batch.states for batch in [_all(point_mass)]])
    assert all((row == every).all(dim=1).any() for row in firsts)


def _all(data):
    one = learner(data)
    numbers = torch.arange(len(one.transitions.index))
    return one.transitions.at(numbers.numpy())


def test_only_the_newest_rollouts_are_kept(point_mass) -> None:
    one = learner(point_mass, rollouts=8, horizon=1, kept=2)
    imagined(one)
    first = one.imagined[:8].clone()
    for seed in (2, 3):
        torch.manual_seed(seed)
        one._imagine()
    assert int(one.written) == 24
    assert len(one.imagined) == 16
    assert not torch.equal(one.imagined[:8], first)  # the oldest were replaced


def test_the_ensemble_is_trained_first_and_then_left_alone(point_mass) -> None:
    one = learner(point_mass)
    assert set(one.losses(0)) == {"dynamics"}
    adam = torch.optim.AdamW(one.groups())
    first = one.config.mopo.dynamics_steps
    one.before_step(adam, first)
    terms = one.losses(first)
    assert set(terms) == {"critic", "actor", "temperature"}
    torch.stack(list(terms.values())).sum().backward()
    assert all(p.grad is None for p in one.dynamics.parameters())
    assert all(p.grad is not None for p in one.loss.parameters())


def test_some_of_each_batch_is_real(point_mass) -> None:
    one = learner(point_mass, real_share=0.25)
    imagined(one)
    batch = one._mixed(8, 24, step=7)
    true = one.transitions.draw(8, one.config.seed, 7)
    assert batch.states.shape == (32, 4)
    assert torch.equal(batch.states[:8], true.states)
    assert torch.equal(batch.rewards[:8], true.rewards)
    assert batch.terminated.dtype == torch.bool


def test_steps_must_be_left_for_the_actor(point_mass) -> None:
    with pytest.raises(ConfigError, match=r"mopo.dynamics_steps 60 must be below steps 60"):
        learner(point_mass, dynamics_steps=60)


def test_it_learns_to_act_from_what_it_imagines(tmp_path) -> None:
    """Pushing at random returns 10.1 of at most 20. Larger rewards outweigh the actor's entropy."""
    data = builtin.point_mass(200, 20)
    paid = Modality("rewards", (), role="reward")
    data = data.select(["states", "actions"]).with_modality(paid, 10 * data.arrays["rewards"])
    rates = {"learning_rate": 5e-3, "actor_learning_rate": 5e-3, "target_rate": 0.05}
    config = replace(
        agent_config("mopo", "tiny"),
        steps=1000,
        batch_size=64,
        critic=CriticConfig(width=64, discount=0.9, **rates),
        dynamics=DynamicsConfig(networks=3, elites=2, width=32, layers=2, learning_rate=3e-3),
        mopo=MOPOConfig(dynamics_steps=200, rollouts=300, horizon=3, penalty=0.1, imagine_every=25),
    )
    agent = train_agent("mopo", data, config, tmp_path / "mopo", silent=True)
    episodes = rollout({"mopo": agent.policy()}, ENV, episodes=20)["mopo"]
    assert episodes.returns.mean() > 14
