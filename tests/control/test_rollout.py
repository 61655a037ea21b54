"""Rollouts: lockstep, repeatable, and robust to environments that break."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mtm.control import environment_pool, policies
from mtm.control import rollout as rollout_module
from mtm.control.rollout import rollout
from mtm.core.errors import ConfigError
from mtm.runs.run import Run
from mtm.training.threads import restored_threads
from mtm.training.train import train

pytest.importorskip("gymnasium", reason="the extra `sim` is not installed")
ENV = "point_mass_environment:PointMass-v0"
pytestmark = pytest.mark.usefixtures("_find_environments")
FRAGILE = "point_mass_environment:Fragile-v0"


@pytest.fixture(scope="module")
def run(tmp_path_factory, point_mass) -> Run:
    from mtm.core.config import preset

    return train(point_mass, preset("tiny"), tmp_path_factory.mktemp("r") / "run", silent=True)


class Steady:
    """A policy of one's own: always the same action."""

    def reset(self, n: int) -> None:
        self.n = n

    def act(self, states: np.ndarray) -> np.ndarray:
        assert len(states) == self.n
        return np.full((self.n, 2), 0.1, np.float32)

    def observe(self, rewards: np.ndarray, dones: np.ndarray) -> None:
        assert len(rewards) == self.n

    def keep(self, rows: np.ndarray) -> None:
        self.n = len(rows)


def several(run: Run) -> dict:
    return {
        "bc": policies.behavior_cloning(run),
        "own": Steady(),
        "rcbc": policies.return_conditioned(run, "fraction:1.0"),
        "two": policies.two_stage(run, "fraction:1.0"),
    }


def test_lockstep_equals_one_environment_at_a_time(run) -> None:
    together = rollout(several(run), ENV, episodes=3, seed=7)
    for name in ("bc", "rcbc", "two", "own"):
        for episode in range(3):
            policy = {name: several(run)[name]}
            alone = rollout(policy, ENV, episodes=1, seed=7 + episode)[name]
            assert alone.returns[0] == pytest.approx(together[name].returns[episode], rel=1e-3)
    assert together["bc"].seeds.tolist() == [7, 8, 9]
    assert together["bc"].lengths.tolist() == [20, 20, 20]
    assert together["bc"].successes is not None


def test_episodes_are_seen_as_they_end() -> None:
    """Also one that its environment broke off, long before the others."""
    seen: list[tuple[str, int, float, int, bool]] = []
    found = rollout(
        {"a": Steady(), "b": Steady()},
        FRAGILE,
        episodes=2,
        seed=7,
        arrival=lambda name, o: seen.append(
            (name, o.seed, o.total, o.length, o.failure is not None)
        ),
    )
    assert [(name, seed, failed) for name, seed, _, _, failed in seen] == [
        ("a", 8, True),
        ("b", 8, True),
        ("a", 7, False),
        ("b", 7, False),
    ]
    assert seen[2][2:4] == (found["a"].returns[0], found["a"].lengths[0])


def test_a_policy_may_act_in_integers(run) -> None:
    class Whole(Steady):
        def act(self, states: np.ndarray) -> np.ndarray:
            return np.ones((self.n, 2), np.int64)

    alone = rollout({"own": Steady()}, ENV, episodes=2)["own"]
    together = rollout({"whole": Whole(), "own": Steady()}, ENV, episodes=2)["own"]
    np.testing.assert_array_equal(together.returns, alone.returns)


def test_a_policy_that_changes_how_a_run_acts_is_asked_itself(run) -> None:
    class Still(policies.MaskedPolicy):
        def act(self, states: np.ndarray) -> np.ndarray:
            return np.zeros_like(super().act(states))

    plain = policies.return_conditioned(run, "fraction:1.0")
    still = Still(run, plain.ways)
    told = rollout({"plain": plain, "still": still}, ENV, episodes=2)
    alone = rollout({"still": Still(run, plain.ways)}, ENV, episodes=2)
    np.testing.assert_array_equal(told["still"].returns, alone["still"].returns)
    assert (told["still"].returns != told["plain"].returns).all()


def test_the_same_seed_gives_the_same_returns(run) -> None:
    first = rollout(several(run), ENV, episodes=2, seed=3)
    second = rollout(several(run), ENV, episodes=2, seed=3)
    other = rollout(several(run), ENV, episodes=2, seed=30)
    for name in first:
        assert np.array_equal(first[name].returns, second[name].returns)
        assert not np.array_equal(first[name].returns, other[name].returns)


def test_processes_change_nothing(run) -> None:
    here = rollout(several(run), ENV, episodes=3, seed=1, processes=1)
    there = rollout(several(run), ENV, episodes=3, seed=1, processes=2)
    for name in here:
        assert np.array_equal(here[name].returns, there[name].returns)


def test_halves_change_nothing_but_how_rows_are_grouped(run, monkeypatch) -> None:
    """Whether and how it is halved follows from their number and the machine: not from processes,
    nor from who watches."""
    alone = {name: rollout({name: p}, ENV, episodes=5) for name, p in several(run).items()}
    for module in (environment_pool, rollout_module):
        monkeypatch.setattr(module, "available_cores", lambda: 2)
    monkeypatch.setattr(environment_pool, "ROWS_WORTH_A_PROCESS", 4)
    acted: list[int] = []
    under_way: list[int] = []

    class Watched(rollout_module._Actor):
        def act(self, states: np.ndarray) -> np.ndarray:
            acted.append(len(states))
            under_way.append(len(pools[-1]._under_way))
            return super().act(states)

    class Pool(environment_pool.EnvironmentPool):
        def __enter__(self) -> Pool:
            pools.append(self)
            return self

    pools: list[Pool] = []
    monkeypatch.setattr(rollout_module, "_Actor", Watched)
    monkeypatch.setattr(rollout_module, "EnvironmentPool", Pool)
    mine = {name: policy for name, policy in several(run).items() if name != "own"}
    halved = [
        rollout(mine, ENV, episodes=5, **how)
        for how in ({"processes": 1}, {}, {"processes": 3}, {"watch": lambda step, draw: None})
    ]
    assert acted == [8, 7] * 20 * 4
    assert set(under_way) == {1}  # the other half steps
    for name in mine:
        for found in halved:
            assert np.array_equal(found[name].returns, halved[0][name].returns)
        assert halved[0][name].returns == pytest.approx(alone[name][name].returns, rel=1e-3)
    acted.clear()
    together = rollout(several(run), ENV, episodes=5)["own"]
    assert acted == [20] * 20
    assert under_way[-20:] == [0] * 20  # a policy of one's own acts for all at once
    assert np.array_equal(together.returns, alone["own"]["own"].returns)


def test_more_policies_than_episodes_are_halved(run, monkeypatch) -> None:
    for module in (environment_pool, rollout_module):
        monkeypatch.setattr(module, "available_cores", lambda: 2)
    monkeypatch.setattr(environment_pool, "ROWS_WORTH_A_PROCESS", 1)
    ways = {f"{f}": policies.return_conditioned(run, f"fraction:{f}") for f in (0.2, 0.6, 1.0)}
    halved = rollout(ways, ENV, episodes=1, seed=4)
    for name, policy in ways.items():
        alone = rollout({name: policy}, ENV, episodes=1, seed=4)[name]
        assert halved[name].returns == pytest.approx(alone.returns, rel=1e-3)


def test_an_episode_that_breaks_stops_only_itself_in_halves(run, monkeypatch) -> None:
    for module in (environment_pool, rollout_module):
        monkeypatch.setattr(module, "available_cores", lambda: 2)
    monkeypatch.setattr(environment_pool, "ROWS_WORTH_A_PROCESS", 2)
    seen: list[tuple[int, int]] = []
    found = rollout(
        {"bc": policies.behavior_cloning(run)},
        FRAGILE,
        episodes=4,
        seed=10,
        progress=lambda done, total: seen.append((done, total)),
    )["bc"]
    assert found.seeds.tolist() == [11, 13]
    assert found.lengths.tolist() == [20, 20]
    assert [(f.seed, f.step) for f in found.failures] == [(10, 2), (12, 2)]
    assert (seen[0], seen[-1]) == ((0, 4), (4, 4))
    assert len(seen) == 21  # once a step, and before the first


def test_pytorch_leaves_cores_to_environments(monkeypatch) -> None:
    """However many processes are asked for, as episodes must be the same; and only meanwhile."""
    for module in (environment_pool, rollout_module):
        monkeypatch.setattr(module, "available_cores", lambda: 3)
    seen: list[int] = []

    class Watching(Steady):
        def act(self, states: np.ndarray) -> np.ndarray:
            seen.append(torch.get_num_threads())
            return super().act(states)

    with restored_threads():
        torch.set_num_threads(3)
        for episodes in (63, 64, 96):  # of 32 for each process
            rollout({"own": Watching()}, ENV, episodes=episodes, processes=1)
            assert set(seen) == {{63: 3, 64: 1, 96: 1}[episodes]}
            seen.clear()
            assert torch.get_num_threads() == 3


@pytest.mark.parametrize("processes", [1, 2])
def test_an_environment_that_raises_stops_only_its_episode(run, processes: int) -> None:
    result = rollout(several(run), FRAGILE, episodes=4, seed=10, processes=processes)
    for episodes in result.values():
        assert episodes.seeds.tolist() == [11, 13]
        assert [(f.seed, f.step) for f in episodes.failures] == [(10, 2), (12, 2)]
        assert episodes.failures[0].error == "RuntimeError: a joint broke"


def test_progress_is_told(run) -> None:
    seen: list[tuple[int, int]] = []
    rollout(several(run), ENV, episodes=2, progress=lambda done, total: seen.append((done, total)))
    assert seen[0] == (0, 8)
    assert seen[-1] == (8, 8)


def test_an_environment_that_does_not_fit_is_refused(run) -> None:
    pytest.importorskip("mujoco", reason="the extra `sim` is not installed")
    with pytest.raises(ConfigError, match=r"observation is numbers of shape \(11,\).*\(4,\)"):
        rollout({"bc": policies.behavior_cloning(run)}, "Hopper-v5", episodes=1)
    with pytest.raises(ConfigError, match="nothing to do"):
        rollout({}, ENV)


def test_an_id_that_another_process_does_not_know(run) -> None:
    import gymnasium

    from point_mass_environment import PointMass

    gymnasium.register("OnlyHere-v0", PointMass, max_episode_steps=20)
    policy = {"bc": policies.behavior_cloning(run)}
    try:
        assert len(rollout(policy, "OnlyHere-v0", episodes=2, processes=1)["bc"].returns) == 2
        with pytest.raises(ConfigError, match=r"another process .*'OnlyHere-v0'.* write MODULE:ID"):
            rollout(policy, "OnlyHere-v0", episodes=2, processes=2)
    finally:
        del gymnasium.registry["OnlyHere-v0"]
