"""Trajectory Transformer: its tokens, what its network sees, and the plans that it searches for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from mtm.control.rollout import rollout
from mtm.core.errors import DataError
from mtm.data.formats import builtin
from mtm.data.modalities import Modality
from mtm.data.normalizer import Normalizer
from mtm.data.trajectories import TrajectoryDataset
from mtm.research.baselines import train_agent
from mtm.research.baselines.imitation_settings import TTConfig
from mtm.research.baselines.replay import Scaling
from mtm.research.baselines.settings import agent_config
from mtm.research.baselines.tt import TT
from mtm.research.baselines.tt_network import Memory, TokenTransformer
from mtm.research.baselines.tt_planning import drawn, likely
from mtm.research.baselines.tt_tokens import Bins, TokenSegments, step_numbers

TINY = agent_config("tt", "tiny").tt
ENV = "point_mass_environment:PointMass-v0"


def scaling_of(data: TrajectoryDataset) -> Scaling:
    return Scaling.of(data.modalities, Normalizer.fit(data))


def short(terminated: list[bool]) -> TrajectoryDataset:
    """Episodes of 3 and 2 steps; every reward is 1."""
    steps = np.arange(5, dtype=np.float32)
    return TrajectoryDataset.from_arrays(
        {"states": steps[:, None], "actions": -steps[:, None], "rewards": np.ones(5, np.float32)},
        [0, 3, 5],
        terminated=np.array(terminated),
    )


def random_tokens(rows: int, length: int, bins: int = TINY.bins) -> torch.Tensor:
    return torch.randint(bins, (rows, length), generator=torch.Generator().manual_seed(0))


def network(numbers: int = 8, config: TTConfig = TINY) -> TokenTransformer:
    torch.manual_seed(0)
    made = TokenTransformer(numbers, config).eval()
    made.embedding.weight.data.normal_()  # so that tokens matter
    made.positions.data.normal_()
    return made


def test_bins_hold_equally_many_and_give_back_their_middles() -> None:
    rng = np.random.default_rng(0)
    values = np.stack([rng.normal(size=1000), rng.exponential(size=1000), np.ones(1000)], axis=1)
    bins = Bins(3, 10)
    bins.measure(values, np.ones_like(values, bool))
    tokens = bins.tokens(values)
    assert np.bincount(tokens[:, 0]).tolist() == [100] * 10
    middles = np.take_along_axis(bins.centres().numpy().T, tokens.astype(int), axis=0)
    width = np.diff(bins.edges.numpy(), axis=1).max(axis=1)
    assert (np.abs(middles - values) <= width / 2 + 1e-6).all()
    assert (middles[:, 2] == 1).all()
    beyond = bins.tokens(np.array([[-99.0, -99.0, 0.0], [99.0, 99.0, 2.0]]))
    assert beyond[:, 0].tolist() == [0, 9]
    assert np.array_equal(bins.tokens(values[:, 1:2], first=1)[:, 0], tokens[:, 1])


def test_returns_are_what_comes_after_a_step() -> None:
    data = short([False, True])
    config = replace(TINY, discount=0.5, terminal_reward=-9.0)
    numbers, known = step_numbers(data, scaling_of(data), config)
    assert known.all()
    assert numbers[:, 2].tolist() == [1, 1, 1, 1, -9]
    assert numbers[:, 3].tolist() == [1.5, 1, 0, -9, 0]
    lacking = np.array([True, False, True, True, True])
    _, known = step_numbers(data.with_present({"rewards": lacking}), scaling_of(data), config)
    assert known[:, 2].tolist() == lacking.tolist()
    assert known[:, 3].tolist() == [False, True, True, True, True]


def test_after_a_terminal_state_all_is_over_and_else_unknown() -> None:
    data = short([False, True])
    config = replace(TINY, context=4, bins=3)
    bins = Bins(4, 3)
    segments = TokenSegments(data, scaling_of(data), config, bins)
    tokens = segments.draw(300, np.random.default_rng(0)).view(300, 4, 4)
    states = {tuple(row) for row in tokens[:, :, 0].tolist()}
    over, unknown = bins.over, bins.unknown
    first = [int(t) for t in bins.tokens(np.arange(5.0)[:, None])[:, 0]]
    assert states == {
        (*first[:3], unknown),
        (*first[1:3], unknown, unknown),
        (first[2], unknown, unknown, unknown),
        (*first[3:], over, over),
        (first[4], over, over, over),
    }
    assert ((tokens == over).all(dim=2) == (tokens[:, :, 0] == over)).all()


def test_what_has_no_values_has_no_bins() -> None:
    data = short([False, False])
    gone = np.array([True, True, False, True, False])  # no return is known, but that of the lasts
    scaling = scaling_of(data)
    TokenSegments(data.with_present({"rewards": gone}), scaling, TINY, Bins(4, TINY.bins))
    with pytest.raises(DataError, match="number 1 of the tokens"):
        TokenSegments(
            data.with_present({"actions": np.zeros(5, bool)}), scaling, TINY, Bins(4, TINY.bins)
        )


def test_a_token_sees_those_before_it_but_no_returns() -> None:
    net, tokens = network(), random_tokens(2, 32)
    before = net(tokens)
    for place in (5, 12):
        changed = tokens.clone()
        changed[:, place] = (changed[:, place] + 1) % TINY.bins
        moved = (net(changed) != before).any(dim=2).all(dim=0)
        assert moved.nonzero().flatten().tolist() == list(range(place + 1, 32))
    changed = tokens.clone()
    changed[:, 7] = (changed[:, 7] + 1) % TINY.bins  # the return of the first step
    moved = (net(changed) != before).any(dim=2).all(dim=0)
    assert moved.nonzero().flatten().tolist() == [8]  # only what it is itself asked for


@pytest.mark.parametrize("context", [4, 16])  # by plain products, and by PyTorch's kernel
def test_remembered_tokens_give_what_all_together_give(context: int) -> None:
    net = network(config=replace(TINY, context=context, layers=2))
    tokens = random_tokens(3, 8 * context)
    whole = net(tokens)
    memory = Memory.empty(net, 3)
    assert torch.allclose(net.read(tokens[:, :5], memory), whole[:, 5], atol=1e-4)
    for place in range(5, 20):
        logits = net.read(tokens[:, place : place + 1], memory)
        assert torch.allclose(logits, whole[:, place + 1], atol=1e-4)
    chosen = torch.tensor([2, 0, 0])
    branched = memory.select(chosen)
    logits = net.read(tokens[chosen, 20:22], branched)
    assert torch.allclose(logits, whole[chosen, 22], atol=1e-4)
    assert memory.filled == 20  # what was branched off is left alone


def test_actions_are_drawn_from_the_likely_ones() -> None:
    logits = torch.tensor([[0.4, 0.1, 0.3, 0.2]]).log()
    assert torch.allclose(likely(logits, 0.3), torch.tensor([[0.4, 0, 0, 0]]))
    assert torch.allclose(likely(logits, 0.5), torch.tensor([[0.4, 0, 0.3, 0]]))
    assert torch.allclose(likely(logits, 1.0), torch.tensor([[0.4, 0.1, 0.3, 0.2]]))
    some = likely(logits, 0.5).expand(4, -1)
    assert drawn(some, torch.tensor([0.0, 0.56, 0.58, 0.9999999])).tolist() == [0, 0, 2, 2]


def test_every_action_is_weighed_by_what_follows(tmp_path) -> None:
    """Ten actions at random, the reward is how large they are: the plan takes large ones."""
    rng = np.random.default_rng(0)
    actions = rng.uniform(-1, 1, (2000, 1)).astype(np.float32)
    data = TrajectoryDataset.from_arrays(
        {
            "states": rng.normal(size=(2000, 1)).astype(np.float32),
            "actions": actions,
            "rewards": actions[:, 0],
        },
        np.arange(0, 2001, 10),
    )
    config = replace(agent_config("tt", "tiny"), steps=200, batch_size=64, validation_fraction=0.0)
    wide = replace(TINY, beam=16, action_mass=1.0, horizon=1, learning_rate=1e-2)
    agent = train_agent("tt", data, replace(config, tt=wide), tmp_path / "tt", silent=True)
    policy = agent.policy()
    policy.reset(20)
    assert policy.act(rng.normal(size=(20, 1))).mean() > 0.7


@pytest.mark.usefixtures("_find_environments")
def test_planning_is_better_than_what_the_data_did(tmp_path) -> None:
    """Pushing at random returns 10.1 of at most 20."""
    pytest.importorskip("gymnasium", reason="the extra `sim` is not installed")
    data = builtin.point_mass(200, 20)
    config = replace(agent_config("tt", "tiny"), steps=400, batch_size=64)
    wide = replace(TINY, width=64, beam=16, learning_rate=4e-3, action_mass=0.9, discount=0.9)
    agent = train_agent("tt", data, replace(config, tt=wide), tmp_path / "tt", silent=True)
    episodes = rollout({"tt": agent.policy()}, ENV, episodes=20)["tt"]
    assert episodes.returns.mean() > 13


def naive_plan(learner: TT, past: torch.Tensor, uniform: torch.Tensor) -> list[int]:
    """The first action of a plan for one environment: no memory, one plan after the other."""
    config, bins, J = learner.config.tt, learner.bins, learner.network.numbers
    S, A = learner.scaling.states.size, learner.scaling.actions.size
    worth = torch.cat([bins.centres()[-2:], torch.zeros(2, 1)], dim=1)

    def logits(tokens: list[int]) -> torch.Tensor:
        steps = len(tokens) // J  # that are whole; the rest is the current one
        seen = tokens[max(steps - config.window + 1, 0) * J :]
        whole = seen + [0] * (-len(seen) % J or J)
        return learner.network(torch.tensor([whole[: config.context * J]]))[0, len(seen)]

    plans = [(past.tolist(), 0.0)] * config.beam
    for step in range(config.horizon):
        found = []
        for number, (tokens, earned) in enumerate(p for p in plans for _ in range(config.expand)):
            tokens = list(tokens)
            for i in range(A):
                probable = likely(logits(tokens)[None, : bins.count], config.action_mass)
                u = uniform[number, step * A + i : step * A + i + 1]
                tokens.append(int(drawn(probable, u)))
            means = []
            for i in range(2):
                asked = logits(tokens)
                means.append(float(asked.softmax(dim=0) @ worth[i]))
                tokens.append(int(asked.argmax()))
            earned += config.discount**step * means[0]
            found.append((earned + config.discount ** (step + 1) * means[1], tokens, earned))
        found.sort(key=lambda plan: -plan[0])
        plans = [(tokens, earned) for _, tokens, earned in found[: config.beam]]
        if step + 1 < config.horizon:
            for tokens, _ in plans:
                for _ in range(S):
                    tokens.append(int(logits(tokens).argmax()))
    return plans[0][0][len(past) : len(past) + A]


@pytest.mark.parametrize("window", [2, 4])  # forgets the oldest steps, or has room for all
def test_beam_search_is_what_it_is_said_to_be(point_mass, window: int) -> None:
    settings = replace(TINY, window=window, horizon=3, beam=3, action_mass=0.8)
    config = replace(agent_config("tt", "tiny"), tt=settings)
    learner = TT(config, scaling_of(point_mass))
    learner.prepare(point_mass)
    learner.network = network(config=settings)
    past = random_tokens(3, 8 + 4)
    uniform = torch.rand(3, 6, 6, generator=torch.Generator().manual_seed(1))
    actions = learner.plan(past.numpy(), uniform.numpy())
    with torch.inference_mode():
        expected = [naive_plan(learner, *row) for row in zip(past, uniform, strict=True)]
    assert actions.tolist() == expected


def test_shapes_of_states_and_actions_are_kept(point_mass, tmp_path) -> None:
    square = Modality("states", (2, 2), role="state")
    data = point_mass.select(["actions", "rewards"]).with_modality(
        square, point_mass.arrays["states"].reshape(-1, 2, 2)
    )
    config = replace(agent_config("tt", "tiny"), steps=2)
    agent = train_agent("tt", data, config, tmp_path / "tt", silent=True)
    policy = agent.policy()
    policy.reset(3)
    assert policy.act(np.zeros((3, 2, 2), np.float32)).shape == (3, 2)
