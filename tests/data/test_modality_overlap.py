"""Complete and incomplete segments: drawn by share, and errors where nothing meets."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from mtm.core.errors import DataError
from mtm.data.segments import Ranges, Segments
from mtm.data.trajectories import TrajectoryDataset
from mtm.runs import checkpoint
from mtm.training.train import train


@pytest.fixture
def mixed(dataset: TrajectoryDataset) -> TrajectoryDataset:
    """Episodes 0 and 4 lack actions; step 35 of episode 6 (33 to 39) lacks its states."""
    actions = np.ones(40, bool)
    actions[0:9] = actions[17:29] = False
    states = np.ones(40, bool)
    states[35] = False
    return dataset.with_present({"actions": actions, "states": states})


def test_complete_segments_lack_nothing_and_padding_is_no_lack(mixed) -> None:
    segments = Segments(mixed, 4)
    expected = [False] * 6 + [True] + [True] * 2 + [True] + [False] * 9 + [True] + [False] * 3
    expected += [True]  # steps 36 to 39, after the gap
    assert segments.complete().tolist() == expected


def test_ranges_hold_exactly_what_was_chosen() -> None:
    rng = np.random.default_rng(0)
    for chosen in (rng.random(200) < 0.3, np.ones(5, bool), np.array([True, False, True])):
        ranges = Ranges.of(chosen)
        assert len(ranges) == chosen.sum()
        drawn = np.bincount(ranges.draw(60_000, rng), minlength=len(chosen))
        assert (drawn[~chosen] == 0).all()
        expected = 60_000 / chosen.sum()
        assert abs(drawn[chosen] - expected).max() < 5 * np.sqrt(expected)
    assert len(Ranges.of(np.zeros(3, bool))) == 0


@pytest.mark.parametrize("share", [0.35, 0.51, 1.0])
def test_the_share_of_a_batch_is_met(mixed, share: float) -> None:
    segments = Segments(mixed, 4, share)
    complete = segments.complete()
    counts = [complete[segments.draw(10, seed=0, step=step)].sum() for step in range(300)]
    assert set(counts) <= {int(share * 10), int(share * 10) + 1}
    assert np.mean(counts) == pytest.approx(share * 10, abs=0.1)


def test_every_segment_of_a_group_is_equally_likely(mixed) -> None:
    segments = Segments(mixed, 4, 0.5)
    drawn = np.bincount(segments.draw(100_000, seed=0, step=0), minlength=len(segments))
    complete = segments.complete()
    for group in (complete, ~complete):
        expected = 50_000 / group.sum()
        assert abs(drawn[group] - expected).max() < 5 * np.sqrt(expected)


def test_the_draw_is_a_function_of_seed_and_step(mixed) -> None:
    draws = [tuple(Segments(mixed, 4, 0.5).draw(32, s, k)) for s in (0, 1) for k in (0, 1)]
    assert len(set(draws)) == 4
    assert tuple(Segments(mixed, 4, 0.5).draw(32, 1, 1)) == draws[3]


def test_without_two_groups_the_share_changes_nothing(dataset) -> None:
    nowhere = dataset.with_present({"actions": np.zeros(40, bool)})
    for data in (dataset, nowhere):
        plain = Segments(data, 4).draw(32, seed=5, step=7)
        assert (Segments(data, 4, 0.5).draw(32, seed=5, step=7) == plain).all()
    with pytest.raises(DataError, match="complete_share is 1, but no segment"):
        Segments(nowhere, 4, 1.0)


def test_a_share_that_is_met_anyway_changes_nothing(dataset) -> None:
    known = np.ones(40, bool)
    known[:4] = False
    mostly = dataset.with_present({"actions": known})
    share = Segments(mostly, 4).complete().mean()
    assert 0.5 < share < 0.95
    plain = Segments(mostly, 4).draw(32, seed=5, step=7)
    assert (Segments(mostly, 4, 0.5).draw(32, seed=5, step=7) == plain).all()
    assert (Segments(mostly, 4, 0.95).draw(32, seed=5, step=7) != plain).any()


def test_memory_grows_with_the_gaps_not_with_the_steps() -> None:
    known = np.ones(200_000, bool)
    known[60_000:150_000] = False
    data = TrajectoryDataset.from_arrays(
        {"states": np.zeros((200_000, 1)), "actions": np.zeros((200_000, 1))},
        [0, 50_000, 200_000],
        present={"actions": known},
    )
    segments = Segments(data, 4, 0.9)
    for ranges in (segments._complete, segments._others):
        assert ranges is not None
        assert len(ranges.starts) <= 2


def test_training_resumes_to_the_bit_with_a_share(point_mass, tiny, tmp_path) -> None:
    config = replace(tiny, drop={"actions": 0.9}, complete_share=0.5)
    train(point_mass, config, tmp_path / "whole", silent=True)
    train(point_mass, config, tmp_path / "parts", stop_at=10, silent=True)
    train(point_mass, config, tmp_path / "parts", resume=True, silent=True)
    train(point_mass, replace(config, complete_share=0.0), tmp_path / "plain", silent=True)
    whole, parts, plain = (
        checkpoint.load(tmp_path / name / "checkpoints").model
        for name in ("whole", "parts", "plain")
    )
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    assert not all(torch.equal(whole[name], plain[name]) for name in whole)


def test_a_modality_that_is_absent_everywhere(point_mass, tiny, out) -> None:
    nowhere = point_mass.with_present({"actions": np.zeros(1200, bool)})
    with pytest.raises(DataError, match="'actions' is absent in every step.*Leave it out"):
        train(nowhere, tiny, out, silent=True)
    with pytest.raises(DataError, match=r"take away less of it \(drop, gaps\)"):
        train(point_mass, replace(tiny, drop={"actions": 1}), out, silent=True)
    assert not out.exists()
    train(nowhere, replace(tiny, modalities=("states",)), out, silent=True)


def test_modalities_that_never_meet(point_mass, tiny, out) -> None:
    """Half of the episodes have nothing but actions, the other half everything else."""
    first = np.arange(1200) < 600
    apart = point_mass.with_present({"actions": first, "states": ~first, "rewards": ~first})
    with pytest.raises(DataError, match=r"of 4 steps has values of both sides of: states, returns"):
        train(apart, tiny, out, silent=True)
    assert not out.exists()
    train(apart, replace(tiny, modalities=("states", "returns")), out, silent=True)


def test_a_third_modality_joins_two_that_never_meet(point_mass, tiny, out) -> None:
    first = np.arange(1200) < 600
    joined = point_mass.with_present({"actions": first, "states": ~first})
    assert train(joined, replace(tiny, steps=2), out, silent=True).step == 2


def test_meeting_within_a_segment_is_enough(tiny, tmp_path) -> None:
    """States and actions are logged in turn: never at the same step, but in the same segment."""
    rng = np.random.default_rng(0)
    even = np.arange(200) % 2 == 0
    data = TrajectoryDataset.from_arrays(
        {"states": rng.random((200, 2)), "actions": rng.random((200, 1))},
        np.arange(0, 201, 20),
        present={"states": even, "actions": ~even},
    )
    train(data, replace(tiny, steps=2), tmp_path / "run", silent=True)
    short = replace(tiny, model=replace(tiny.model, segment_length=1))
    with pytest.raises(DataError, match=r"states \| actions.*longer segments"):
        train(data, short, tmp_path / "short", silent=True)
