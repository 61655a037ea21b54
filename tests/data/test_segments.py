"""Segments: uniform, padded, repeatable."""

from __future__ import annotations

import numpy as np

from mtm.data.segments import Segments
from mtm.data.trajectories import TrajectoryDataset


def test_every_segment_once_and_within_one_episode(dataset: TrajectoryDataset) -> None:
    segments = Segments(dataset, 4)
    assert len(segments) == 6 + 1 + 2 + 1 + 9 + 1 + 4
    batch = segments.gather(np.arange(len(segments)))
    first = batch.values["states"][:, 0, 0]
    assert len(set(first.tolist())) == len(segments)
    episode = np.searchsorted(dataset.ends, batch.values["states"][:, :, 0], side="right")
    assert (episode == episode[:, :1]).all()
    inside = batch.present[:, :, 0]
    ahead = np.diff(batch.values["states"][:, :, 0], axis=1)
    assert (ahead[inside[:, 1:]] == 1).all()


def test_short_episodes_are_padded_and_marked_absent(dataset: TrajectoryDataset) -> None:
    batch = Segments(dataset, 4).gather(np.arange(23))
    short = batch.values["states"][:, 0, 0] == 9  # the episode of length 2
    assert short.sum() == 1
    assert batch.present[short].tolist() == [[[True] * 3, [True] * 3, [False] * 3, [False] * 3]]


def test_the_draw_is_uniform_over_segments(dataset: TrajectoryDataset) -> None:
    segments = Segments(dataset, 4)
    counts = np.bincount(segments.draw(230_000, seed=0, step=0), minlength=len(segments))
    expected = 230_000 / len(segments)
    assert abs(counts - expected).max() < 5 * np.sqrt(expected)


def test_a_batch_is_a_function_of_seed_and_step(dataset: TrajectoryDataset) -> None:
    segments = Segments(dataset, 4)
    draws = {
        (seed, step): tuple(segments.draw(32, seed, step)) for seed in (0, 1) for step in (0, 1, 2)
    }
    assert len(set(draws.values())) == 6
    assert tuple(Segments(dataset, 4).draw(32, 1, 2)) == draws[1, 2]


def test_presence_of_the_data_is_kept(dataset: TrajectoryDataset) -> None:
    absent = np.arange(dataset.num_steps) % 5 == 0
    data = TrajectoryDataset.from_arrays(
        dataset.arrays, [0, *dataset.ends], present={"actions": ~absent}
    )
    segments = Segments(data, 3)
    batch = segments.gather(np.arange(len(segments)))
    step = batch.values["states"][:, :, 0]
    inside = batch.present[:, :, data.names.index("states")]
    actions = batch.present[:, :, data.names.index("actions")]
    assert (actions == (inside & (step % 5 != 0))).all()
    assert (segments.present(np.arange(len(segments))) == batch.present).all()


def test_views_gather_only_their_episodes(dataset: TrajectoryDataset) -> None:
    segments = Segments(dataset.subset([4, 0]), 4)
    assert len(segments) == 9 + 6
    starts = segments.gather(np.arange(15)).values["states"][:, 0, 0]
    assert starts.tolist() == [*range(17, 26), *range(0, 6)]


def test_a_sample_is_fixed_and_without_repeats(dataset: TrajectoryDataset) -> None:
    segments = Segments(dataset, 4)
    assert segments.sample(1000, seed=0).tolist() == list(range(len(segments)))
    some = segments.sample(10, seed=0)
    assert len(set(some.tolist())) == 10
    assert (some == segments.sample(10, seed=0)).all()


def test_memory_beyond_the_data_is_per_episode() -> None:
    data = TrajectoryDataset.from_arrays({"states": np.zeros((200_000, 1))}, [0, 50_000, 200_000])
    segments = Segments(data, 4)
    held = sum(v.nbytes for v in vars(segments).values() if isinstance(v, np.ndarray))
    assert held == 16  # one count per episode
