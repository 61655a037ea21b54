"""Data sets are checked when they are made, and views share their arrays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mtm.core.config import preset
from mtm.core.errors import DataError
from mtm.core.reading import Reading
from mtm.data.columns import regroup
from mtm.data.preparation import split
from mtm.data.splitting import episodes_to_hold_out
from mtm.data.trajectories import Modality, TrajectoryDataset


def make(**changes):
    arrays = {"states": np.zeros((6, 2), np.float32), "actions": np.zeros((6, 1), np.float32)}
    return TrajectoryDataset.from_arrays(
        arrays | changes.pop("arrays", {}), changes.pop("offsets", [0, 4, 6]), **changes
    )


def test_default_order_is_autoregressive() -> None:
    data = make(arrays={"returns": np.zeros(6), "rewards": np.zeros(6)})
    assert data.names == ("states", "returns", "actions", "rewards")


def test_any_names_and_kinds() -> None:
    data = make(arrays={"gripper": np.array([0, 1, 2, 0, 1, 2]), "camera": np.zeros((6, 4, 5))})
    assert data.modality("gripper") == Modality("gripper", (), "discrete", 3, "state")
    assert data.modality("camera").shape == (4, 5)
    assert data.modality("camera").size == 20


def test_integers_that_are_hardly_classes_are_refused_all_at_once() -> None:
    stamps = 1_700_000_000 + np.arange(6)
    with pytest.raises(DataError) as raised:
        make(arrays={"stamp": stamps, "count": np.arange(6) * 1000})
    stamp, count = raised.value.faults
    assert "'stamp' holds the integer 1700000005" in stamp
    assert "0 to 999 at most" in stamp
    assert "Modality('stamp', (), \"discrete\", 1700000006)" in stamp
    assert "'count' holds the integer 5000" in count
    assert make(arrays={"gear": np.full(6, 999)}).modality("gear").classes == 1000


def test_declared_classes_may_be_many() -> None:
    words = Modality("word", (), "discrete", 50_000)
    data = TrajectoryDataset.from_arrays({"word": np.full(6, 49_999)}, [0, 6], modalities=[words])
    assert data.modality("word") == words
    assert regroup(data, Reading(columns={"token": "word"})).modality("token").classes == 50_000


def test_integer_rewards_are_numbers_not_classes() -> None:
    assert make(arrays={"rewards": np.arange(6)}).modality("rewards").kind == "continuous"


def test_from_episodes_marks_a_missing_modality_absent() -> None:
    data = TrajectoryDataset.from_episodes(
        [
            {"states": np.ones((3, 2)), "actions": np.ones((3, 1))},
            {"states": np.ones((2, 2))},
        ]
    )
    assert data.present["actions"].tolist() == [True] * 3 + [False] * 2
    assert "states" not in data.present
    assert data.count_present("actions") == 3


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_is_named_with_its_place(bad: float) -> None:
    states = np.zeros((6, 2), np.float32)
    states[5, 1] = bad
    with pytest.raises(DataError, match=r"'states', episode 1, step 1: feature 1 is (nan|-?inf)"):
        make(arrays={"states": states})


def test_nan_may_be_declared_absent() -> None:
    states = np.zeros((6, 2), np.float32)
    states[5, 1] = np.nan
    data = make(arrays={"states": states}, nan_is_absent=True)
    assert data.present["states"].tolist() == [True] * 5 + [False]


def test_absent_values_may_hold_anything() -> None:
    states = np.zeros((6, 2), np.float32)
    states[0] = np.nan
    data = make(arrays={"states": states}, present={"states": np.arange(6) > 0})
    assert data.count_present("states") == 5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"arrays": {"actions": np.zeros((5, 1))}}, "6 steps.*actions 5"),
        ({"offsets": [0, 4, 4, 6]}, "episode 1 has length 0"),
        ({"offsets": [0, 5, 4, 6]}, "episode 1 ends before it begins"),
        ({"offsets": [1, 6]}, "must begin with 0"),
        ({"offsets": [0]}, "empty"),
        ({"offsets": [0.0, 6.0]}, "integer"),
        ({"arrays": {"actions": np.array([None] * 6)}}, "'actions' has dtype object"),
        ({"arrays": {"actions": np.array(["a"] * 6)}}, "'actions' has dtype"),
        ({"arrays": {"actions": np.zeros(6, complex)}}, "'actions' has dtype complex128"),
        ({"arrays": {"my states": np.zeros(6)}}, "identifier"),
        (
            {"arrays": {"gripper": np.array([0, 1, -1, 0, 1, 0])}},
            "episode 0, step 2: class -1 .* from 0",
        ),
        ({"modalities": [Modality("state", (2,))]}, "unknown modality 'state'. Did you mean"),
        ({"modalities": [Modality("states", (3,))]}, r"shape \(3,\)"),
        ({"modalities": [Modality("states", (2,))] * 2}, "must differ"),
        ({"present": {"actoins": np.ones(6, bool)}}, "unknown modality in `present`"),
        ({"present": {"actions": np.ones(6)}}, "6 booleans"),
    ],
)
def test_faults_are_named(changes: dict, message: str) -> None:
    with pytest.raises(DataError, match=message):
        make(**changes)


@pytest.mark.parametrize(
    ("episodes", "message"),
    [
        ([], "empty"),
        ([{"states": np.zeros((0, 2))}], "episode 0 has length 0"),
        ([{"states": np.zeros((3, 2)), "actions": np.zeros((2, 1))}], "states 3, actions 2"),
        ([{"states": np.zeros((3, 2))}, {"states": np.zeros((3, 4))}], r"\(4,\) in episode 1"),
    ],
)
def test_faulty_episodes_are_named(episodes: list, message: str) -> None:
    with pytest.raises(DataError, match=message):
        TrajectoryDataset.from_episodes(episodes)


def test_discrete_needs_integers() -> None:
    with pytest.raises(DataError, match="needs integers, got float64"):
        make(arrays={"g": np.zeros(6)}, modalities=[Modality("g", (), "discrete", 2)])


def test_split_is_by_episode_seeded_and_complete(dataset: TrajectoryDataset) -> None:
    rest, held_out = dataset.split(0.3, seed=1)
    assert held_out.num_episodes == 2
    both = np.sort(np.concatenate([rest.starts, held_out.starts]))
    assert both.tolist() == dataset.starts.tolist()
    again = dataset.split(0.3, seed=1)[1]
    assert held_out.starts.tolist() == again.starts.tolist()
    others = [dataset.split(0.3, seed=s)[1].starts.tolist() for s in range(2, 8)]
    assert any(other != held_out.starts.tolist() for other in others)
    assert rest.arrays["states"] is dataset.arrays["states"]


@pytest.mark.parametrize(("labelled", "expected"), [(1, (1, 0)), (2, (1, 1)), (40, (38, 2))])
def test_split_has_each_kind_of_episode_on_both_sides(
    labelled: int, expected: tuple[int, int]
) -> None:
    states = np.zeros((100, 3, 2), np.float32)
    episodes = [{"states": s, "actions": s} for s in states[:labelled]]
    episodes += [{"states": s} for s in states[labelled:]]
    data = TrajectoryDataset.from_episodes(episodes)
    for seed in range(20):
        rest, held_out = data.split(0.05, seed=seed)
        with_actions = (3 * labelled > part.starts for part in (rest, held_out))
        assert tuple(int(part.sum()) for part in with_actions) == expected
        assert rest.num_episodes + held_out.num_episodes == 100


def test_split_of_two_kinds_with_one_episode_each_holds_one_out() -> None:
    states = np.zeros((3, 2), np.float32)
    data = TrajectoryDataset.from_episodes([{"states": states}, {"actions": states}])
    assert [part.num_episodes for part in data.split(0.05)] == [1, 1]


def test_split_tells_apart_kinds_of_episodes_with_any_number_of_modalities() -> None:
    present = {f"sensor {i}": np.eye(70, dtype=bool)[i // 2].repeat(2) for i in range(140)}
    steps = np.arange(140)
    held_out = episodes_to_hold_out(present, steps, steps + 1, 0.5, seed=0)
    assert held_out.reshape(70, 2).sum(axis=1).tolist() == [1] * 70


@pytest.mark.parametrize(
    ("labelled", "expected"), [(2, (1, 1, 1)), (40, (1, 1, 2)), (60, (1, 2, 3))]
)
def test_held_out_episodes_are_for_validation_or_test_and_each_kind_for_both(
    labelled: int, expected: tuple[int, int, int]
) -> None:
    states = np.zeros((100, 3, 2), np.float32)
    episodes = [{"states": s, "actions": s} for s in states[:labelled]]
    episodes += [{"states": s} for s in states[labelled:]]
    data = TrajectoryDataset.from_episodes(episodes)
    for seed in range(10):
        config = replace(preset("tiny"), seed=seed)
        parts = split(data, config)
        rest, held_out = data.split(config.validation_fraction, seed)
        assert parts.training.starts.tolist() == rest.starts.tolist()  # as before there was a test
        assert parts.held_out.starts.tolist() == held_out.starts.tolist()
        sides = (parts.validation.starts, parts.test.starts, held_out.starts)
        assert tuple(int((side < 3 * labelled).sum()) for side in sides) == expected
        assert sorted({*parts.validation.starts, *parts.test.starts}) == held_out.starts.tolist()
        both = set(parts.validation.starts) & set(parts.test.starts)
        assert parts.in_both == len(both) == (labelled == 2)
        assert all(start < 3 * labelled for start in both)


def test_a_single_held_out_episode_serves_as_both() -> None:
    data = TrajectoryDataset.from_episodes([{"states": np.zeros((3, 2))}] * 5)
    parts = split(data, preset("tiny"))
    assert parts.in_both == 1
    assert parts.validation.starts.tolist() == parts.test.starts.tolist()
    none = split(data, replace(preset("tiny"), validation_fraction=0.0))
    assert (none.training.num_episodes, none.test, none.in_both) == (5, None, 0)


def test_split_of_one_episode_says_what_to_do() -> None:
    data = make(offsets=[0, 6])
    with pytest.raises(DataError, match="validation_fraction=0"):
        data.split()


def test_chunks_give_the_view_s_present_values_only(dataset: TrajectoryDataset) -> None:
    view = dataset.subset([1, 4])
    values = np.concatenate(list(view.chunks("states")))[:, 0]
    expected = [*range(9, 11), *range(17, 29)]
    assert values.tolist() == expected


def test_fingerprint_tells_data_apart(dataset: TrajectoryDataset) -> None:
    assert dataset.fingerprint == dataset.with_metadata(source="elsewhere").fingerprint
    changed = dict(dataset.arrays) | {"rewards": dataset.arrays["rewards"] + 1}
    other = TrajectoryDataset.from_arrays(changed, [0, *dataset.ends])
    assert other.fingerprint != dataset.fingerprint
    cut = TrajectoryDataset.from_arrays(dataset.arrays, [0, 3, *dataset.ends])
    assert cut.fingerprint != dataset.fingerprint


def test_select_knows_near_names(dataset: TrajectoryDataset) -> None:
    assert dataset.select(["actions", "states"]).names == ("actions", "states")
    with pytest.raises(DataError, match="Did you mean 'actions'"):
        dataset.select(["action"])
