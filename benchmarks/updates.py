"""One update of the offline RL agents, against a plain PyTorch loop of the same networks."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from copy import deepcopy
from itertools import count

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.representation import ACTIONS, STATES, walker_data
from benchmarks.timing import Row, seconds_of_each
from mtm.core.system import keep_freed_memory
from mtm.data.normalizer import Normalizer
from mtm.data.trajectories import TrajectoryDataset
from mtm.research.baselines.agent_training import AgentTrainer
from mtm.research.baselines.learner import make_learner
from mtm.research.baselines.replay import Scaling, Transitions
from mtm.research.baselines.settings import agent_config
from mtm.research.baselines.td3_agent import TD3Agent
from mtm.research.baselines.td3_config import td3_preset
from mtm.research.baselines.td3_networks import head

ASKED = "at most 1.5"
Update = Callable[[int], None]


def measure() -> list[Row]:
    """Milliseconds of an update on one thread, and how many times as long ours take."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    keep_freed_memory()  # as training does
    try:
        return _rows(walker_data())
    finally:
        torch.set_num_threads(before)


def _rows(data: TrajectoryDataset) -> list[Row]:
    pairs: dict[str, tuple[Update, Update]] = {
        "IQL": (_agent("iql", data), _plain_iql(data)),
        "TD3+BC": (_agent("td3_bc", data), _plain_td3_bc(data)),
        "TD3": (_td3(data), _plain_td3(data)),
    }
    rows = []
    for name, (ours, plain) in pairs.items():
        steps = {"ours": count(), "plain": count()}
        seconds = seconds_of_each(
            {
                "ours": lambda ours=ours, n=steps["ours"]: ours(next(n)),  # type: ignore[misc]
                "plain": lambda plain=plain, n=steps["plain"]: plain(next(n)),  # type: ignore[misc]
            },
            at_least=2.0,
            average=statistics.fmean,  # the actor moves in some updates only
        )
        part = f"{name}, batch 256, 2 x 256, one thread"
        rows.append(Row(part, "one update", seconds["ours"] * 1e3, "ms"))
        rows.append(Row(part, "plain PyTorch", seconds["plain"] * 1e3, "ms"))
        rows.append(Row(part, "ours / plain", seconds["ours"] / seconds["plain"], "times", ASKED))
    return rows


def _scaling(data: TrajectoryDataset) -> Scaling:
    return Scaling.of(data.modalities, Normalizer.fit(data))


def _agent(name: str, data: TrajectoryDataset) -> Update:
    learner = make_learner(name, agent_config(name), _scaling(data))
    learner.prepare(data)
    return AgentTrainer(name, learner).step


def _perceptron(inputs: int, outputs: int) -> nn.Sequential:
    sizes = agent_config("iql").critic
    hidden = nn.Linear(inputs, sizes.width), nn.Linear(sizes.width, sizes.width)
    return nn.Sequential(
        hidden[0], nn.ReLU(), hidden[1], nn.ReLU(), nn.Linear(sizes.width, outputs)
    )


def _targets(network: nn.Module) -> nn.Module:
    return deepcopy(network).requires_grad_(False)


def _follow(networks: nn.Module, targets: nn.Module, rate: float) -> None:
    followers: list[Tensor] = list(targets.parameters())
    with torch.no_grad():
        torch._foreach_lerp_(followers, list(networks.parameters()), rate)


def _plain_iql(data: TrajectoryDataset) -> Update:
    config = agent_config("iql")
    batches = Transitions(data, _scaling(data))
    critics = nn.ModuleList(_perceptron(STATES + ACTIONS, 1) for _ in range(2))
    targets = _targets(critics)
    value, actor = _perceptron(STATES, 1), _perceptron(STATES, ACTIONS)
    log_std = nn.Parameter(torch.zeros(ACTIONS))
    trained = [*critics.parameters(), *value.parameters(), *actor.parameters(), log_std]
    adam = torch.optim.Adam(trained, lr=3e-4, fused=True)

    def update(step: int) -> None:
        b = batches.draw(config.batch_size, 0, step)
        pairs = torch.cat([b.states, b.actions], dim=1)
        with torch.no_grad():
            known = torch.minimum(*[t(pairs) for t in targets.children()])
            aim = b.rewards + 0.99 * (~b.terminated) * value(b.next_states)
        advantage = known - value(b.states)
        of_value = (torch.where(advantage > 0, 0.7, 0.3) * advantage**2).mean()
        of_critics = torch.stack([F.mse_loss(c(pairs), aim) for c in critics]).sum()
        std = log_std.clamp(-5, 2).exp()
        off = (b.actions - torch.tanh(actor(b.states))) / std
        likely = -(off**2 / 2 + std.log()).sum(dim=1)
        of_actor = -((3 * advantage.detach()).exp().clamp(max=100).squeeze(1) * likely).mean()
        adam.zero_grad()
        (of_value + of_critics + of_actor).backward()  # type: ignore[no-untyped-call]
        adam.step()
        _follow(critics, targets, 0.005)

    return update


def _plain_td3_bc(data: TrajectoryDataset) -> Update:
    config = agent_config("td3_bc")
    batches = Transitions(data, _scaling(data))
    networks = nn.ModuleList(_perceptron(STATES + ACTIONS, 1) for _ in range(2))
    networks.append(_perceptron(STATES, ACTIONS))
    targets = _targets(networks)
    adam = torch.optim.Adam(networks.parameters(), lr=3e-4, fused=True)
    first, second, actor = networks
    old_first, old_second, old_actor = targets.children()

    def update(step: int) -> None:
        b = batches.draw(config.batch_size, 0, step)
        pairs = torch.cat([b.states, b.actions], dim=1)
        with torch.no_grad():
            noise = (torch.randn_like(b.actions) * 0.2).clamp(-0.5, 0.5)
            acted = (torch.tanh(old_actor(b.next_states)) + noise).clamp(-1, 1)
            after = torch.cat([b.next_states, acted], dim=1)
            known = torch.minimum(old_first(after), old_second(after))
            aim = b.rewards + 0.99 * (~b.terminated) * known
        loss = F.mse_loss(first(pairs), aim) + F.mse_loss(second(pairs), aim)
        moves = step % 2 == 0
        if moves:
            mine = torch.tanh(actor(b.states))
            first.requires_grad_(False)
            found = first(torch.cat([b.states, mine], dim=1))
            first.requires_grad_(True)
            loss = loss + F.mse_loss(mine, b.actions)
            loss = loss - 2.5 * found.mean() / found.detach().abs().mean()
        adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        adam.step()
        if moves:
            _follow(networks, targets, 0.005)

    return update


def _td3(data: TrajectoryDataset) -> Update:
    config = td3_preset("cpu")
    low, high = -np.ones(ACTIONS, np.float32), np.ones(ACTIONS, np.float32)
    agent = TD3Agent(config, STATES, low, high)
    batches, noise = agent.transitions(data), (config.noise, config.noise_limit)

    def update(step: int) -> None:
        agent.update(batches.batch(config.batch_size, noise, 0, step))

    return update


def _plain_td3(data: TrajectoryDataset) -> Update:
    config = td3_preset("cpu")
    batches = Transitions(data, _scaling(data))
    networks = nn.ModuleList(head(STATES + ACTIONS, config.hidden, 1) for _ in range(2))
    networks.append(head(STATES, config.hidden, ACTIONS))
    targets = _targets(networks)
    adam = torch.optim.Adam(networks.parameters(), lr=3e-4, fused=True)
    first, second, actor = networks
    old_first, old_second, old_actor = targets.children()

    def update(step: int) -> None:
        b = batches.draw(config.batch_size, 0, step)
        pairs = torch.cat([b.states, b.actions], dim=1)
        with torch.no_grad():
            noise = (torch.randn_like(b.actions) * config.noise).clamp(-0.3, 0.3)
            acted = (torch.tanh(old_actor(b.next_states)) + noise).clamp(-1, 1)
            after = torch.cat([b.next_states, acted], dim=1)
            known = torch.minimum(old_first(after), old_second(after))
            aim = b.rewards + 0.99 * (~b.terminated) * known
        loss = F.mse_loss(first(pairs), aim) + F.mse_loss(second(pairs), aim)
        first.requires_grad_(False)
        loss = loss - first(torch.cat([b.states, torch.tanh(actor(b.states))], dim=1)).mean()
        first.requires_grad_(True)
        adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        adam.step()
        _follow(networks, targets, config.target_rate)

    return update
