"""Agents learn: better than random where values lead, closer to the data where they clone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mtm.control.rollout import rollout
from mtm.data.formats import builtin
from mtm.research.baselines.critic_settings import CriticConfig, ReBRACConfig
from mtm.research.baselines.settings import agent_config
from mtm.training.trackers import read_metrics

pytest.importorskip("torchrl", reason="the extra `baselines` is not installed")
pytest.importorskip("gymnasium", reason="the extra `sim` is not installed")
from mtm.research.baselines import train_agent

ENV = "point_mass_environment:PointMass-v0"
pytestmark = pytest.mark.usefixtures("_find_environments")


@pytest.mark.parametrize("name", ["td3_bc", "iql", "rebrac"])
def test_values_lead_to_better_than_random(name: str, tmp_path) -> None:
    """Pushing at random returns 10.1 of at most 20."""
    rates = CriticConfig(width=64, learning_rate=1e-3, actor_learning_rate=1e-3, discount=0.9)
    pulled = ReBRACConfig(actor_penalty=0.4, critic_penalty=0.4)  # few steps need more of a hold
    config = replace(agent_config(name, "tiny"), steps=250, batch_size=64, critic=rates)
    config = replace(config, rebrac=pulled)
    agent = train_agent(name, builtin.point_mass(200, 20), config, tmp_path / name, silent=True)
    episodes = rollout({name: agent.policy()}, ENV, episodes=20)[name]
    assert episodes.returns.mean() > 14


def test_the_cloning_loss_of_dt_falls(tmp_path) -> None:
    config = replace(agent_config("dt", "tiny"), steps=80, batch_size=64)
    train_agent("dt", builtin.point_mass(200, 20), config, tmp_path / "dt", silent=True)
    losses = [row["loss"] for row in read_metrics(tmp_path / "dt" / "metrics.csv")]
    assert losses[-1] < 0.75 * losses[0]
