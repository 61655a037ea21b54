"""Planted faults rank first, what was found is written, and bad input is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch

import mtm
from mtm.core.errors import DataError
from mtm.data.formats import builtin
from mtm.data.trajectories import TrajectoryDataset
from mtm.evaluation.doctor.evidence import standing
from mtm.evaluation.doctor.examine import Diagnosis
from mtm.evaluation.doctor.page import write_page
from mtm.evaluation.doctor.quick_model import QuickModel

pytestmark = pytest.mark.usefixtures("_one_thread")

EPISODES, LENGTH = 60, 30
FAULTY = [3, 21, 40]
Episodes = list[dict[str, np.ndarray]]


def recording() -> Episodes:
    data = builtin.point_mass(EPISODES, LENGTH)
    return [data.episode(e) for e in range(EPISODES)]


def shifted(episode: dict[str, np.ndarray]) -> None:
    episode["actions"][1:, 0] = episode["actions"][:-1, 0].copy()


def swapped(episode: dict[str, np.ndarray]) -> None:
    episode["states"] = episode["states"][:, [0, 1, 3, 2]]


def stuck(episode: dict[str, np.ndarray]) -> None:
    episode["states"][8:20, 2] = episode["states"][8, 2]


def burst(episode: dict[str, np.ndarray]) -> None:
    noise = np.random.default_rng(0).normal(size=(5, 4))
    episode["states"][12:17] += 0.2 * noise.astype(np.float32)


def other_robot(episode: dict[str, np.ndarray]) -> None:
    """As strong, half as heavy."""
    states = episode["states"]
    for t in range(LENGTH - 1):
        position, velocity = states[t, :2], states[t, 2:]
        states[t + 1, 2:] = velocity + 0.25 * (2 * episode["actions"][t] - 1.2 * velocity)
        states[t + 1, :2] = position + 0.25 * states[t + 1, 2:]


FAULTS = {"shifted": shifted, "swapped": swapped, "stuck": stuck, "burst": burst}
FAULTS |= {"other robot": other_robot}


@pytest.fixture(scope="module")
def mixed() -> Diagnosis:
    """Five kinds of faults in five of sixty episodes."""
    episodes = recording()
    for e, plant in zip(MIXED, FAULTS.values(), strict=True):
        plant(episodes[e])
    return mtm.doctor(TrajectoryDataset.from_episodes(episodes), silent=True)


MIXED = [2, 11, 25, 38, 51]


@pytest.mark.parametrize("plant", FAULTS.values(), ids=FAULTS)
def test_planted_faults_rank_first(plant: Callable[[dict[str, np.ndarray]], None]) -> None:
    episodes = recording()
    for e in FAULTY:
        plant(episodes[e])
    found = mtm.doctor(TrajectoryDataset.from_episodes(episodes), silent=True)
    assert {e.episode for e in found.episodes[:3]} == set(FAULTY)
    assert all(e.score >= 6 and e.reasons for e in found.episodes[:3])
    assert found.episodes[3].score < found.episodes[2].score
    assert len(found.suspects) <= 4  # few others are taken for faulty
    assert set(FAULTY) <= set(found.left_out.episodes)


def test_mixed_faults_rank_first_and_are_named(mixed: Diagnosis) -> None:
    assert {e.episode for e in mixed.episodes[:5]} == set(MIXED)
    scores = [e.score for e in mixed.episodes]
    assert scores == sorted(scores, reverse=True)
    assert sorted(e.episode for e in mixed.episodes) == list(range(EPISODES))
    reasons = {e.episode: " ".join(e.reasons) for e in mixed.episodes}
    assert "actions[0]: comes a step late" in reasons[2]
    assert "states[2]: stuck" in reasons[25]
    assert np.median(scores) < 2


def test_surprise_is_high_where_the_fault_is(mixed: Diagnosis) -> None:
    states = mixed.surprise(38)["states"]
    assert states.shape == (LENGTH,)
    assert np.isnan(states[-1])  # nothing follows
    assert np.median(states[11:16]) > 20 * np.nanmedian(np.r_[states[:10], states[19:]])
    calm = mixed.surprise(0)
    assert np.nanmedian(calm["states"]) < 5
    assert np.nanmedian(calm["actions"]) < 5
    with pytest.raises(DataError, match="the data have 0 to 59"):
        mixed.surprise(60)


def test_the_json_is_a_stable_interface(mixed: Diagnosis, tmp_path: Path) -> None:
    mixed.write_json(tmp_path / "found.json")
    found = json.loads((tmp_path / "found.json").read_text())
    assert list(found) == ["faults", "episodes"]
    assert [list(e) for e in found["episodes"]] == [["episode", "score", "reasons"]] * EPISODES
    assert [e["episode"] for e in found["episodes"]] == [e.episode for e in mixed.episodes]
    keys = ["check", "what", "cure", "file", "episode", "step", "modality", "feature", "weight"]
    assert found["faults"]
    assert all(list(fault) == keys for fault in found["faults"])
    assert any(fault["episode"] == 25 and fault["step"] == 8 for fault in found["faults"])


def test_the_clean_rest_is_a_view(mixed: Diagnosis) -> None:
    clean = mixed.cleaned()
    assert clean.num_episodes == EPISODES - len(mixed.suspects)
    assert mixed.dataset is not None
    assert clean.arrays["states"] is mixed.dataset.arrays["states"]


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.images: list[str] = []
        self.headings, self.text, self._in_heading = 0, "", False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.headings += tag == "h2"
        if tag == "img":
            self.images.append(str(found["src"]))
        assert not {"onerror", "onload"} & found.keys()
        assert tag not in ("script", "link")

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_shows_the_worst_and_needs_nothing_else(mixed: Diagnosis, tmp_path: Path) -> None:
    write_page(mixed, tmp_path / "page.html", "<img src=x onerror=alert(1)>")
    page = Page((tmp_path / "page.html").read_text())
    assert len(page.images) == 8
    assert all(image.startswith("data:image/png;base64,") for image in page.images)
    assert page.text.count("<img src=x onerror=alert(1)>") == 2  # title and heading
    assert "Episode 25, score" in page.text
    assert "comes a step late" in page.text


def test_two_examinations_agree_and_leave_the_caller_alone() -> None:
    data = builtin.point_mass(12, 10)
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    first = mtm.doctor(data, silent=True)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert mtm.doctor(data, silent=True).to_json() == first.to_json()
    assert mtm.doctor(data, seed=1, silent=True).to_json() != first.to_json()


def test_no_network_learns_from_what_it_judges() -> None:
    """A value that is changed in one episode changes no prediction of the same half's others."""
    data = builtin.point_mass(12, 10)
    model = QuickModel(data)
    model.learn()
    half = model._half
    changed = {name: values.copy() for name, values in data.arrays.items()}
    e = 5
    same = int(np.flatnonzero((half == half[e]) & (np.arange(12) != e))[0])
    changed["states"][data.starts[e] : data.ends[e]] *= 1.001
    offsets = np.append(data.starts, data.num_steps)
    other = QuickModel(TrajectoryDataset.from_arrays(changed, offsets))
    for key in ("_middle", "_deviation", "_usual_change"):  # scales are of all data
        setattr(other.transitions, key, getattr(model.transitions, key))
    other.learn()
    for mine, theirs in zip(
        next(model.answers(np.array([same]))), next(other.answers(np.array([same]))), strict=True
    ):
        np.testing.assert_array_equal(mine.predicted, theirs.predicted)


def test_what_is_absent_is_not_asked_for_and_has_no_influence() -> None:
    data = builtin.point_mass(20, 15)
    known = np.ones(data.num_steps, bool)
    known[20:24] = False
    known[data.starts[7] : data.ends[7]] = False
    gappy = data.with_present({"actions": known})
    found = mtm.doctor(gappy, silent=True)
    assert max(e.score for e in found.episodes) < 20
    assert np.isnan(found.surprise(1)["actions"][5:9]).all()
    assert not np.isnan(found.surprise(7)["states"][:-1]).any()  # told from states alone
    junk = data.arrays["actions"].copy()
    junk[~known] = 77.0
    other = TrajectoryDataset.from_arrays(
        {**data.arrays, "actions": junk},
        np.append(data.starts, data.num_steps),
        modalities=data.modalities,
        present={"actions": known},
    )
    assert mtm.doctor(other, silent=True).to_json() == found.to_json()


@pytest.mark.parametrize(
    "episodes",
    [
        [{"states": np.zeros((1, 2), np.float32)}],
        [{"states": np.zeros((1, 2), np.float32)}] * 6,
        [{"states": np.random.default_rng(e).normal(size=(9, 2))} for e in range(7)],
        [{"actions": np.random.default_rng(e).normal(size=(9, 2))} for e in range(7)],
        [{"states": np.arange(9) % (e + 2), "actions": np.arange(9) % 2} for e in range(7)],
        [{"rewards": np.random.default_rng(e).normal(size=9)} for e in range(7)],
    ],
    ids=["one step", "single steps", "states alone", "actions alone", "classes", "rewards alone"],
)
def test_unusual_data_are_examined_too(episodes: Episodes) -> None:
    found = mtm.doctor(TrajectoryDataset.from_episodes(episodes), silent=True)
    assert len(found.episodes) == len(episodes)
    assert all(np.isfinite(e.score) and 0 <= e.score <= 60 for e in found.episodes)


def test_a_standing_is_in_units_of_the_ninth_of_ten() -> None:
    values = np.append(np.arange(101.0), np.nan)[:, None]
    found = standing(values)[:, 0]
    np.testing.assert_allclose(found[[50, 90, 100, 101]], [0, 1, 1.25, 0])
    assert (found[:50] == 0).all()
    assert (standing(np.array([[1.0], [9.0]])) == 0).all()  # of two nobody stands out
