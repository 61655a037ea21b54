"""10 %BC: the perceptron of behaviour cloning, on the best tenth of the episodes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mtm.core.errors import DataError
from mtm.data.formats import builtin
from mtm.data.modalities import Modality
from mtm.data.normalizer import Normalizer
from mtm.data.returns import episode_returns
from mtm.data.trajectories import TrajectoryDataset
from mtm.research.baselines import mlp_config, train_agent
from mtm.research.baselines.bc10 import best_steps
from mtm.research.baselines.replay import Scaling
from mtm.research.baselines.settings import agent_config


def graded(lengths: list[int], rewards: list[float]) -> TrajectoryDataset:
    """Episodes with the same reward at every step, whose actions say which episode they are of."""
    offsets = np.cumsum([0, *lengths])
    episode = np.repeat(np.arange(len(lengths), dtype=np.float32), lengths)
    return TrajectoryDataset.from_arrays(
        {
            "states": np.arange(offsets[-1], dtype=np.float32)[:, None],
            "actions": episode[:, None],
            "rewards": np.repeat(np.asarray(rewards, np.float32), lengths),
        },
        offsets,
    )


def chosen(data: TrajectoryDataset, share: float) -> list[int]:
    scaling = Scaling.of(data.modalities, Normalizer.fit(data))
    return best_steps(data, share, scaling).tolist()


def test_the_steps_of_the_best_episodes_are_cloned() -> None:
    data = graded([3, 2, 4, 1], [1.0, 5.0, 1.0, 2.0])  # returns 3, 10, 4, 2
    assert chosen(data, 0.1) == [3, 4]
    assert chosen(data, 0.5) == [3, 4, 5, 6, 7, 8]
    assert sorted(chosen(data, 1.0)) == list(range(10))


def test_episodes_of_unknown_return_are_not_the_best() -> None:
    data = graded([3, 2, 4, 1], [1.0, 5.0, 1.0, 2.0])
    known = np.ones(10, bool)
    known[3] = False
    assert chosen(data.with_present({"rewards": known}), 0.1) == [5, 6, 7, 8]
    acted = np.ones(10, bool)
    acted[6] = False
    assert chosen(data.with_present({"rewards": known, "actions": acted}), 0.1) == [5, 7, 8]
    known[:] = False
    known[0] = True  # of one episode's rewards, so that there are some
    with pytest.raises(DataError, match="no episode has all of its rewards"):
        chosen(data.with_present({"rewards": known}), 0.1)


def test_it_is_the_perceptron_of_behaviour_cloning() -> None:
    for scale in ("tiny", "cpu", "paper"):
        same, mine = mlp_config("bc", scale), agent_config("bc10", scale)
        assert (mine.steps, mine.batch_size) == (same.steps, same.batch_size)
        assert (mine.bc10.width, mine.bc10.layers) == (same.model.width, same.model.encoder_layers)
        assert mine.bc10.action_loss == same.action_loss
        assert mine.bc10.warmup_steps == same.optimizer.warmup_steps
        if scale == "paper":  # else it has Muon, and this one AdamW
            rates = (mine.bc10.learning_rate, mine.bc10.weight_decay)
            assert rates == (same.optimizer.learning_rate, same.optimizer.weight_decay)


def test_it_does_as_the_best_and_not_as_the_others(tmp_path) -> None:
    """Nine of ten episodes push to one side, the tenth, which earns more, to the other."""
    data = builtin.point_mass(100, 20)
    best = np.repeat(np.arange(100) % 10 == 0, 20)
    actions = np.where(best[:, None], 0.5, -0.5) + 0.1 * data.arrays["states"][:, :2]
    own = data.select(["states"]).with_modality(
        Modality("actions", (2,), role="action"), actions.astype(np.float32)
    )
    own = own.with_modality(Modality("rewards", (), role="reward"), best.astype(np.float32))
    assert (episode_returns(own) == 20).sum() == 10
    config = replace(agent_config("bc10", "tiny"), steps=150, validation_fraction=0.0)
    agent = train_agent("bc10", own, config, tmp_path / "bc10", silent=True)
    states = data.arrays["states"][:200]
    off = agent.learner.act(states) - (0.5 + 0.1 * states[:, :2])  # type: ignore[operator]
    assert np.abs(off).mean() < 0.05
