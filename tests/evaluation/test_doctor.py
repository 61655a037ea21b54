"""Planted faults rank first, what was found is written, and bad input is told."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch

import mtm
from mtm.cli import main
from mtm.core.config import TrainConfig
from mtm.core.errors import ConfigError, DataError, RunError
from mtm.data.formats import builtin
from mtm.data.trajectories import TrajectoryDataset
from mtm.evaluation.doctor import quick_model
from mtm.evaluation.doctor.evidence import standing
from mtm.evaluation.doctor.examine import Diagnosis
from mtm.evaluation.doctor.page import write_page
from mtm.evaluation.doctor.quick_model import QuickModel

pytestmark = pytest.mark.usefixtures("_one_thread")

EPISODES, LENGTH = 60, 30
MIXED = [2, 11, 25, 38, 51]
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


@pytest.fixture
def _few_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    """For what does not depend on how well the quick model has learned."""
    monkeypatch.setattr(quick_model, "FEWEST_UPDATES", 5)


FAULTS = (shifted, swapped, stuck, burst, other_robot)


@pytest.fixture(scope="module")
def mixed() -> Diagnosis:
    """Five kinds of faults in five of sixty episodes."""
    episodes = recording()
    for e, plant in zip(MIXED, FAULTS, strict=True):
        plant(episodes[e])
    return mtm.doctor(TrajectoryDataset.from_episodes(episodes), silent=True)


def test_mixed_faults_rank_first_and_are_named(mixed: Diagnosis) -> None:
    assert {e.episode for e in mixed.episodes[:5]} == set(MIXED)
    scores = [e.score for e in mixed.episodes]
    assert scores == sorted(scores, reverse=True)
    assert sorted(e.episode for e in mixed.episodes) == list(range(EPISODES))
    reasons = {e.episode: " ".join(e.reasons) for e in mixed.episodes}
    assert "actions[0]: comes a step late" in reasons[2]
    assert "states[2]: stuck" in reasons[25]
    assert np.median(scores) < 2
    assert mixed.episodes[4].score >= 6  # all are left out, and hardly any other
    assert set(MIXED) <= set(mixed.left_out.episodes)
    assert len(mixed.suspects) <= 7


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


@pytest.mark.usefixtures("_few_updates")
def test_two_examinations_agree_and_leave_the_caller_alone() -> None:
    data = builtin.point_mass(12, 10)
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    first = mtm.doctor(data, silent=True)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert mtm.doctor(data, silent=True).to_json() == first.to_json()
    assert mtm.doctor(data, seed=1, silent=True).to_json() != first.to_json()


@pytest.mark.usefixtures("_few_updates")
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


@pytest.mark.usefixtures("_few_updates")
def test_what_is_absent_is_not_asked_for_and_has_no_influence() -> None:
    data = builtin.point_mass(20, 15)
    known = np.ones(data.num_steps, bool)
    known[20:24] = False
    known[data.starts[7] : data.ends[7]] = False
    gappy = data.with_present({"actions": known})
    found = mtm.doctor(gappy, silent=True)
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


@pytest.mark.usefixtures("_few_updates")
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


def broken_folder(folder: Path) -> None:
    """Three files: a copy and a stuck sensor in one, a NaN in another, and no archive."""
    folder.mkdir()
    episodes = recording()
    episodes[11] = {name: values.copy() for name, values in episodes[1].items()}
    stuck(episodes[14])
    episodes[25]["states"][4, 1] = np.nan
    for number in range(2):
        mine = episodes[20 * number : 20 * number + 20]
        arrays = {name: np.concatenate([e[name] for e in mine]) for name in mine[0]}
        offsets = np.arange(0, 20 * LENGTH + 1, LENGTH)
        np.savez(folder / f"day{number}.npz", offsets=offsets, **arrays)
    (folder / "day2.npz").write_bytes(b"no archive")


@pytest.mark.usefixtures("_few_updates")
def test_from_a_folder_of_half_broken_logs_to_a_clean_data_set(tmp_path: Path, capsys) -> None:
    logs, clean = tmp_path / "logs", tmp_path / "clean"
    broken_folder(logs)
    files = {name: tmp_path / f"found.{name}" for name in ("json", "html", "without")}
    words = [word for name, file in files.items() for word in (f"--{name}", str(file))]
    assert main(["doctor", str(logs), *words]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "day2.npz" in printed
    assert "1 file(s) that cannot be read" in printed
    found = json.loads(files["json"].read_text())
    places = {(f["check"], f["file"], f["episode"], f["step"]) for f in found["faults"]}
    assert {
        ("unreadable", "day2.npz", None, None),
        ("copy", "day0.npz", 11, 0),
        ("stuck", "day0.npz", 14, 8),
        ("no number", "day1.npz", 25, 4),
    } <= places
    assert len(found["episodes"]) == 40
    listed = json.loads(files["without"].read_text())
    assert {11, 14, 25} <= set(listed["episodes"])
    assert (listed["of"], listed["files"]) == (40, ["day2.npz"])
    assert "<h1>" in files["html"].read_text()
    command = printed[printed.index("mtm data convert") :].split()[1:]
    command[3] = str(clean)  # as printed, but for where to
    assert main(command) == 0
    kept = mtm.load_dataset(clean)
    assert kept.num_episodes == 40 - len(listed["episodes"])
    assert not [f for f in mtm.doctor(kept, model=False).faults if f.weight]


def test_without_a_model_the_checks_are_made(tmp_path: Path, capsys) -> None:
    broken_folder(tmp_path / "logs")
    found = mtm.doctor(tmp_path / "logs", model=False)
    assert {e.episode for e in found.suspects} == {11, 14, 25}
    assert found.model is None
    with pytest.raises(DataError, match="no model was trained"):
        found.surprise(0)
    write_page(found, tmp_path / "page.html", "logs")
    assert Page((tmp_path / "page.html").read_text()).images
    assert main(["doctor", str(tmp_path / "logs"), "--no-model"]) == 0
    assert "--without without.json --reading.nan-is-absent" in capsys.readouterr().out


@pytest.mark.usefixtures("_few_updates")
def test_the_surprise_of_a_run_counts_as_well(tiny: TrainConfig, out: Path) -> None:
    data = builtin.point_mass(30, 20)
    run = mtm.train(data, tiny, out, device=mtm.DeviceConfig(threads=1), silent=True)
    found = mtm.doctor(data, run, silent=True)
    told = [c for c in found.channels if c.what == "surprises the run"]
    assert [c.subject for c in told] == ["states", "returns", "actions"]
    highest = np.max([c.standing for c in told], axis=0)
    scores = {e.episode: e.score for e in found.episodes}
    assert all(scores[e] >= round(highest[e], 4) for e in range(30))
    episodes = [data.episode(e) for e in range(30)]
    noise = np.random.default_rng(0).normal(size=episodes[8]["states"].shape)
    episodes[8]["states"] += 3 * noise.astype(np.float32)  # other data: most of them are usual
    other = mtm.doctor(TrajectoryDataset.from_episodes(episodes), out, model=False, silent=True)
    assert other.episodes[0].episode == 8
    assert "surprises the run" in " ".join(other.episodes[0].reasons)


def test_bad_input_is_told(tmp_path: Path, capsys) -> None:
    assert main(["doctor", str(tmp_path / "nowhere.npz")]) == 2
    assert "nowhere.npz could be read" in capsys.readouterr().err
    (tmp_path / "bad.npz").write_bytes(b"no archive")
    words = ["doctor", str(tmp_path / "bad.npz"), "--json", str(tmp_path / "found.json")]
    assert main(words) == 2
    assert "could be read" in capsys.readouterr().err
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["episodes"] == []
    assert "not a zip" in found["faults"][0]["what"]
    assert main(["doctor", "builtin:point-mass", "--run", str(tmp_path / "none")]) == 2
    assert main(["doctor", "builtin:nothing"]) == 2
    with pytest.raises(RunError):
        mtm.doctor(builtin.point_mass(5, 5), tmp_path / "none")
    with pytest.raises(ConfigError, match="have been read already"):
        mtm.doctor(builtin.point_mass(5, 5), reading=mtm.Reading(nan_is_absent=True))
