"""Taking values away: by episode, by step, in the training split only."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mtm.core.config import TrainConfig
from mtm.core.errors import ConfigError, DataError
from mtm.data.formats import builtin
from mtm.data.preparation import prepare, split
from mtm.data.trajectories import TrajectoryDataset
from mtm.evaluation.evaluate import prediction_error
from mtm.inference.run_data import reported_episodes
from mtm.training.train import train


@pytest.fixture(scope="module")
def hundred() -> TrajectoryDataset:
    return builtin.point_mass(episodes=100, length=10)


def having(data: TrajectoryDataset, name: str) -> list[int]:
    """The first steps of the episodes in which a modality is present throughout."""
    known = data.known(name)
    found = []
    for start, end in zip(data.starts, data.ends, strict=True):
        assert known[start:end].all() or not known[start:end].any()
        if known[start]:
            found.append(int(start))
    return found


def test_whole_episodes_lose_a_modality_and_nothing_is_copied(hundred) -> None:
    left = hundred.without({"actions": 0.9}, seed=1)
    assert len(having(left, "actions")) == 10
    assert len(having(left, "states")) == 100
    assert all(left.arrays[name] is hundred.arrays[name] for name in hundred.names)
    assert "actions" not in hundred.present


def test_the_same_seed_takes_the_same_and_a_larger_share_takes_more(hundred) -> None:
    few = having(hundred.without({"actions": 0.97}, seed=3), "actions")
    more = having(hundred.without({"actions": 0.9}, seed=3), "actions")
    assert few == having(hundred.without({"actions": 0.97}, seed=3), "actions")
    assert set(few) < set(more)
    assert few != having(hundred.without({"actions": 0.97}, seed=4), "actions")


@pytest.mark.parametrize("seed", range(5))
def test_those_that_keep_it_are_spread_evenly_over_the_returns(seed: int) -> None:
    data = hundred_that_earned(np.random.default_rng(0).permutation(100))
    few = having(data.without({"actions": 0.9}, seed=seed), "actions")
    earned = np.sort(data.arrays["returns"].reshape(-1)[few])
    assert np.diff(earned, prepend=-1, append=100).max() <= 21  # ten of a hundred
    other = having(data.without({"actions": 0.9}, seed=seed + 100), "actions")
    assert few != other


def hundred_that_earned(worth: np.ndarray) -> TrajectoryDataset:
    """Episodes of ten steps, each with another return at its first."""
    returns = np.zeros((100, 10), np.float32)
    returns[:, 0] = worth
    arrays = {"states": np.zeros((1000, 2)), "actions": np.zeros((1000, 1))}
    arrays["returns"] = returns.reshape(-1)
    return TrajectoryDataset.from_arrays(arrays, np.arange(0, 1001, 10))


def test_each_modality_draws_for_itself(hundred) -> None:
    both = hundred.without({"actions": 0.5, "states": 0.5})
    alone = hundred.without({"states": 0.5})
    assert having(both, "states") == having(alone, "states")
    assert having(both, "states") != having(both, "actions")


@pytest.mark.parametrize(
    ("share", "left"), [(0.0, 100), (0.001, 99), (0.5, 50), (0.999, 1), (1.0, 0)]
)
def test_one_episode_at_least_keeps_and_loses_it(hundred, share: float, left: int) -> None:
    assert len(having(hundred.without({"actions": share}), "actions")) == left


def test_episodes_that_lack_it_already_do_not_count(hundred) -> None:
    known = np.arange(1000) < 100  # the first ten episodes
    data = hundred.with_present({"actions": known})
    for share, left in [(0.5, 5), (0.99, 1)]:
        found = having(data.without({"actions": share}), "actions")
        assert len(found) == left
        assert max(found) < 100


def test_steps_lose_a_modality_one_by_one(hundred) -> None:
    left = hundred.without(steps={"states": 0.1})
    assert left.known("states").mean() == pytest.approx(0.9, abs=0.03)
    fewer = hundred.without(steps={"states": 0.4})
    assert not (fewer.known("states") & ~left.known("states")).any()
    half = hundred.subset(np.arange(50)).without(steps={"states": 1.0})
    assert half.count_present("states") == 0
    assert half.known("states")[500:].all()


def test_shares_and_names_are_checked(hundred) -> None:
    with pytest.raises(ConfigError, match=r"'actions' to take away must be in \[0, 1\], got 1.5"):
        hundred.without({"actions": 1.5})
    with pytest.raises(DataError, match="Did you mean 'actions'"):
        hundred.without(steps={"action": 0.5})
    with pytest.raises(ConfigError) as error:
        TrainConfig(drop={"actions": 2}, gaps=("a=0.1",), complete_share=-1)  # type: ignore[arg-type]
    assert "drop of 'actions' must be in [0, 1], got 2" in str(error.value)
    assert "gaps must be a dict such as {'actions': 0.5}, got ('a=0.1',)" in str(error.value)
    assert "complete_share must be in [0, 1], got -1" in str(error.value)


def test_the_paper_s_setting(hundred, tiny) -> None:
    """1 % of the episodes with all modalities, 95 % without actions, 4 % held out."""
    config = replace(tiny, drop={"actions": 0.99}, validation_fraction=0.04)
    training, held_out, _, _ = split(prepare(hundred, config), config)
    assert held_out is not None
    assert (training.num_episodes, held_out.num_episodes) == (96, 4)
    assert len(having(training, "actions")) == 1
    assert len(having(training, "returns")) == 96
    assert len(having(held_out, "actions")) == 4


def test_what_is_not_modelled_cannot_be_dropped(hundred, tiny, out) -> None:
    with pytest.raises(ConfigError, match="Returns are made of rewards first: name returns"):
        train(hundred, replace(tiny, drop={"rewards": 0.5}), out, silent=True)
    with pytest.raises(ConfigError, match="Did you mean 'actions'"):
        train(hundred, replace(tiny, gaps={"action": 0.5}), out, silent=True)
    assert not out.exists()


def test_a_run_knows_nothing_of_what_was_taken_away(tiny, out) -> None:
    """Neither its statistics nor its targets tell of the good episode that lost its returns."""
    config = replace(tiny, steps=2, drop={"returns": 0.9}, validation_fraction=0.0)
    states = np.random.default_rng(0).random((100, 2))
    data = TrajectoryDataset.from_arrays(
        {"states": states, "returns": np.zeros(100)}, np.arange(0, 101, 10)
    )
    (kept,) = having(split(data, config).training, "returns")
    good = 20 if kept == 10 else 10
    data.arrays["returns"][good : good + 10] = 1000.0
    run = train(data, config, out, silent=True)
    assert run.normalizer.statistics["returns"].high == 0
    assert set(run.description.data["first_returns"]) == {0.0}


def test_a_run_with_drops_is_evaluated_on_complete_episodes(tiny, tmp_path) -> None:
    config = replace(tiny, drop={"actions": 0.9}, gaps={"states": 0.1}, complete_share=0.5)
    run = train("builtin:point-mass", config, tmp_path / "run", silent=True)
    assert run.description.train == config
    held_out = reported_episodes(run)
    assert held_out.num_episodes == 10  # half of those held out
    assert {name: held_out.count_present(name) for name in held_out.names} == dict.fromkeys(
        ("states", "returns", "actions"), held_out.num_steps
    )
    for name in ("fd", "id"):
        assert np.isfinite(prediction_error(run, held_out, name)["normalized"])
    again = train("builtin:point-mass", config, tmp_path / "run", resume=True, silent=True)
    assert again.step == 20
