"""Exploring without reward: the mathematics, ExORL's layout, going on."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

gymnasium = pytest.importorskip("gymnasium", reason="gymnasium is not installed (extra sim)")
pytest.importorskip("matplotlib", reason="matplotlib is not installed (extra report)")

from mtm.cli import collect as cli
from mtm.core.errors import ConfigError, DataError, RunError
from mtm.data.formats import builtin, exorl
from mtm.research.collect.coverage import CELLS, make_grid, measure
from mtm.research.collect.episodes import EpisodeWriter, Replay, read_episode, write_episode
from mtm.research.collect.explore import ExploreSettings, explore
from mtm.research.collect.explorer import Explorer
from mtm.research.collect.protorl import Nearest, Prototypes, Queue, particle_reward, sinkhorn
from mtm.research.collect.recorder import Sizes
from point_mass_environment import FusedPointMass

pytestmark = pytest.mark.usefixtures("_one_thread")


def quiet() -> Console:
    return Console(file=io.StringIO(), highlight=False, width=200)


def test_sinkhorn_balances_rows_and_columns() -> None:
    torch.manual_seed(0)
    scores = torch.randn(60, 12) * 3
    scores[:, 0] += 4  # everyone's favourite
    shares = sinkhorn(scores, iterations=50)
    torch.testing.assert_close(shares.sum(dim=1), torch.ones(60))
    torch.testing.assert_close(shares.sum(dim=0), torch.full((12,), 5.0), atol=1e-3, rtol=0)
    few = sinkhorn(scores)
    torch.testing.assert_close(few.sum(dim=1), torch.ones(60))  # rows are exact at any time
    assert few.sum(dim=0).max() < scores.softmax(dim=1).sum(dim=0).max()
    assert torch.isfinite(sinkhorn(torch.tensor([[1e4, -1e4], [1e4, -1e4]]))).all()


def test_particle_reward_against_a_naive_loop() -> None:
    rng = np.random.default_rng(0)
    points = rng.normal(size=(9, 5)).astype(np.float32)
    known = rng.normal(size=(31, 5)).astype(np.float32)
    naive = [sorted(np.linalg.norm(p - q) for q in known)[2] for p in points]
    reward = particle_reward(torch.from_numpy(points), torch.from_numpy(known), neighbour=3)
    np.testing.assert_allclose(reward.numpy(), naive, rtol=1e-4)
    alone = particle_reward(torch.from_numpy(points), torch.from_numpy(known[:1]), neighbour=3)
    np.testing.assert_allclose(alone.numpy(), np.linalg.norm(points - known[0], axis=1), rtol=1e-4)


def test_the_queue_keeps_the_newest() -> None:
    queue = Queue(4, 1)
    queue.put(torch.tensor([[1.0], [2.0]]))
    assert queue.known.flatten().tolist() == [1, 2]
    queue.put(torch.tensor([[3.0], [4.0], [5.0]]))
    assert sorted(queue.known.flatten().tolist()) == [2, 3, 4, 5]


@pytest.mark.parametrize("kind", ["protorl", "knn"])
def test_a_novel_state_is_worth_more_than_a_familiar_one(kind: str) -> None:
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    directions = torch.randn(4, 6)

    def familiar(count: int) -> torch.Tensor:
        return directions[torch.arange(count) % 3] + 0.1 * torch.randn(count, 6)

    reward = (
        Prototypes(6, width=32, code=8, prototypes=16, queue=128, learning_rate=1e-3)
        if kind == "protorl"
        else Nearest(6, queue=128)
    )
    for _ in range(60):
        states = familiar(64)
        reward.learn(states, states + 0.05 * torch.randn(64, 6), generator)
    novel = directions[3] + 0.1 * torch.randn(64, 6)
    assert reward.reward(novel).mean() > 2 * reward.reward(familiar(64)).mean()


def test_the_prototypes_learn_and_stay_unit_vectors() -> None:
    torch.manual_seed(0)
    model = Prototypes(6, width=32, code=8, prototypes=16, queue=64, learning_rate=1e-3)
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(128, 6)
    target = model.target_encoder[0].weight.clone()
    before = model.loss(states, states).item()
    for _ in range(50):
        model.learn(states, states, generator)
    assert model.loss(states, states).item() < before - 0.1
    torch.testing.assert_close(model.prototypes.norm(dim=1), torch.ones(16))
    assert not torch.equal(model.target_encoder[0].weight, target)


def learner(kind: str) -> tuple[Explorer, Replay]:
    """A new agent and some random episodes."""
    agent = Explorer(Sizes(4, 2), kind, seed=0, width=16)
    replay = Replay(Sizes(4, 2), 400)
    for seed in range(4):
        replay.add(point_mass_episode(30, seed))
    agent.begin_episode(replay, seed=1)
    return agent, replay


def test_every_part_of_the_agent_learns() -> None:
    agent, replay = learner("protorl")
    before = {name: p.detach().clone() for name, p in agent.named_parameters()}
    for _ in range(3):
        agent.learn(replay.draw(np.random.default_rng(0), 32))
    for name, parameter in agent.named_parameters():
        assert not torch.equal(parameter, before[name]), name


def test_the_actor_seeks_what_its_critics_value() -> None:
    agent, replay = learner("protorl")
    rng = np.random.default_rng(0)
    for _ in range(60):
        agent.learn(replay.draw(rng, 32))
    states = (replay.draw(rng, 200).states - agent.mean) / agent.std
    chance = torch.rand(200, 2, generator=torch.Generator().manual_seed(0)) * 2 - 1
    with torch.no_grad():
        chosen, drawn = (agent.critics(states, a).mean() for a in (agent.actor(states), chance))
    assert chosen > drawn


@pytest.mark.parametrize("kind", ["protorl", "knn"])
def test_states_are_rewarded_before_they_are_known(kind: str) -> None:
    agent, replay = learner(kind)
    batch = replay.draw(np.random.default_rng(0), 32)
    assert agent.learn(batch) == 0  # nothing to compare with
    assert agent.learn(batch) > 0


def point_mass_episode(length: int, seed: int) -> dict:
    rng = np.random.default_rng(seed)
    state = rng.uniform(-1, 1, 4)
    writer = EpisodeWriter(state, 2, {"physics": state})
    for i in range(length):
        action = rng.uniform(-1, 1, 2)
        state = builtin.step_point_mass(state, action)
        writer.add(action, state, float(i), i == length - 1, {"physics": state})
    return writer.rows()


def test_exorl_s_layout(tmp_path: Path) -> None:
    path = write_episode(tmp_path, 12, point_mass_episode(30, seed=0))
    assert path.name == "episode_000012_30.npz"
    episode = read_episode(path)
    assert {key: (a.dtype.str, a.shape) for key, a in episode.items()} == {
        "observation": ("<f4", (31, 4)),
        "action": ("<f4", (31, 2)),
        "reward": ("<f4", (31, 1)),
        "discount": ("<f4", (31, 1)),
        "physics": ("<f8", (31, 4)),
    }
    assert not episode["action"][0].any()
    assert not episode["reward"][0].any()
    stepped = builtin.step_point_mass(episode["physics"][:-1], episode["action"][1:].astype(float))
    np.testing.assert_allclose(stepped, episode["physics"][1:], atol=1e-6)
    assert episode["discount"][:, 0].tolist() == [1.0] * 30 + [0.0]
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(DataError, match=r"episode_000012_30.npz cannot be read: .* Delete it"):
        read_episode(path)


def test_the_replay_buffer_pairs_across_its_ring() -> None:
    replay = Replay(Sizes(4, 2), 50)
    for seed in range(7):  # 7 x 21 rows wrap around twice
        episode = point_mass_episode(20, seed)
        replay.add({key: rows[:8] for key, rows in episode.items()})
        replay.add({key: rows[8:] for key, rows in episode.items()}, begins=False)
        batch = replay.draw(np.random.default_rng(seed), 300)
        stepped = builtin.step_point_mass(batch.states.double(), batch.actions.double())
        np.testing.assert_allclose(stepped, batch.next_states, atol=1e-5)
    newest = point_mass_episode(20, 6)["observation"][1:]
    drawn = {tuple(row) for row in batch.next_states.tolist()}
    assert {tuple(row) for row in newest.tolist()} <= drawn
    assert len(drawn) <= 50


def files_of(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.glob("episode_*.npz"))}


@pytest.mark.parametrize("reward", ["protorl", "knn"])
def test_an_interrupted_exploration_goes_on_as_if_it_had_not_been(
    reward: str, tmp_path: Path
) -> None:
    wanted = ExploreSettings("Fused-v0", 130, seed=1, reward=reward, width=16)
    FusedPointMass.fuse = -1
    explore(wanted, tmp_path / "whole", quiet())
    FusedPointMass.fuse = 95  # in the fifth episode, when the agent has learned for two
    with pytest.raises(KeyboardInterrupt):
        explore(wanted, tmp_path / "cut", quiet())
    kept = files_of(tmp_path / "cut")
    assert len(kept) == 4
    explore(wanted, tmp_path / "cut", quiet())
    assert files_of(tmp_path / "cut") == files_of(tmp_path / "whole")
    assert len(files_of(tmp_path / "whole")) == 7
    assert not (tmp_path / "cut" / "under-way").exists()
    again = quiet()
    explore(wanted, tmp_path / "cut", again)
    assert "is finished" in again.file.getvalue()  # type: ignore[attr-defined]


def test_an_episode_that_the_saved_agent_does_not_know_is_played_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = ExploreSettings("Fused-v0", 130, seed=1, reward="knn", width=16)
    FusedPointMass.fuse = -1
    explore(wanted, tmp_path / "whole", quiet())
    save = Explorer.save

    def stop_before_the_fifth(agent: Explorer, path: Path, next_episode: int) -> None:
        if next_episode == 5:
            raise KeyboardInterrupt
        save(agent, path, next_episode)

    monkeypatch.setattr(Explorer, "save", stop_before_the_fifth)
    with pytest.raises(KeyboardInterrupt):
        explore(wanted, tmp_path / "cut", quiet())
    monkeypatch.undo()
    assert len(files_of(tmp_path / "cut")) == 5
    explore(wanted, tmp_path / "cut", quiet())
    assert files_of(tmp_path / "cut") == files_of(tmp_path / "whole")


def test_a_deleted_episode_does_not_cost_another_one(tmp_path: Path) -> None:
    wanted = ExploreSettings("Fused-v0", 130, seed=1, reward="knn", width=16)
    FusedPointMass.fuse = 95
    with pytest.raises(KeyboardInterrupt):
        explore(wanted, tmp_path, quiet())
    before = files_of(tmp_path)
    damaged = sorted(before)[1]
    (tmp_path / damaged).write_bytes(b"PK not this")
    FusedPointMass.fuse = -1
    with pytest.raises(DataError, match="Delete it and go on"):
        explore(wanted, tmp_path, quiet())
    (tmp_path / damaged).unlink()
    explore(wanted, tmp_path, quiet())
    after = files_of(tmp_path)
    assert damaged not in after
    assert {name: after[name] for name in before if name != damaged} == {
        name: before[name] for name in before if name != damaged
    }
    assert len(after) == 7  # as many as without the loss: 130 steps


def test_a_damaged_agent_is_named(tmp_path: Path) -> None:
    agent = Explorer(Sizes(4, 2), "knn", seed=0, width=16)
    agent.save(tmp_path / "agent.pt", next_episode=3)
    assert agent.load(tmp_path / "agent.pt") == 3
    (tmp_path / "agent.pt").write_bytes(b"PK not this")
    with pytest.raises(RunError, match="Delete it to go on"):
        agent.load(tmp_path / "agent.pt")


def test_bad_settings() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'protorl'"):
        ExploreSettings("Fused-v0", 10, 0, "protorrl")
    with pytest.raises(ConfigError, match="--steps must be at least 1"):
        ExploreSettings("Fused-v0", 0, 0, "knn")


def test_coverage_counts_cells() -> None:
    rng = np.random.default_rng(0)
    wide, narrow = rng.uniform(-1, 1, (2000, 5)), 0.1 * rng.uniform(-1, 1, (2000, 5))
    grid = make_grid("Other-v0", np.concatenate([wide, narrow]))
    ours, theirs = measure(grid, wide), measure(grid, narrow)
    assert ours.counts.sum() == theirs.counts.sum() == 2000
    assert ours.cells > 5 * theirs.cells
    assert theirs.entropy < ours.entropy <= np.log(CELLS * CELLS)
    still = measure(make_grid("Other-v0", np.zeros((10, 1))), np.zeros((10, 1)))
    assert (still.cells, still.entropy) == (1, 0.0)


@pytest.fixture(scope="module")
def walker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One episode of dm_control's walker, as the command line collects it."""
    pytest.importorskip("dm_control.suite", reason="dm_control is not installed (sim)")
    out = tmp_path_factory.mktemp("walker") / "out"
    words = ["--explore", "--env", "dmc:walker-walk", "--steps", "800", "--out", str(out)]
    cli.main([*words, "--explore-reward", "random"])
    return out


def test_the_walker_s_episode(walker: Path) -> None:
    episode = read_episode(walker / "episode_000000_1000.npz")
    assert {key: a.shape for key, a in episode.items()} == {
        "observation": (1001, 24),
        "action": (1001, 6),
        "reward": (1001, 1),
        "discount": (1001, 1),
        "physics": (1001, 18),
    }
    assert (episode["discount"] == 1).all()  # time out, not a failure
    np.testing.assert_allclose(episode["observation"][:, 15:], episode["physics"][:, 9:], rtol=1e-5)
    coverage = json.loads((walker / "collection.json").read_text())["results"]["coverage"]
    assert coverage["over"] == ["torso height", "horizontal velocity"]
    assert coverage["explored"]["cells"] > 50
    assert (walker / "coverage.png").read_bytes().startswith(b"\x89PNG")


def test_the_episodes_load_and_their_rewards_can_be_computed_again(walker: Path) -> None:
    episode = read_episode(walker / "episode_000000_1000.npz")
    stored = exorl.load_directory(walker)
    np.testing.assert_array_equal(stored.arrays["states"], episode["observation"][:-1])
    np.testing.assert_array_equal(stored.arrays["actions"], episode["action"][1:])
    again = exorl.load_directory(walker, task="walk")
    np.testing.assert_allclose(again.arrays["rewards"], stored.arrays["rewards"], atol=1e-5)
