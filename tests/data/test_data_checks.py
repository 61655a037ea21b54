"""Each check of the numbers finds its fault, at its place, and says nothing of clean data."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mtm.cli import main
from mtm.core.errors import DataError
from mtm.core.reading import Reading
from mtm.data.column_checks import unit_of
from mtm.data.episode_checks import check_episodes, check_files
from mtm.data.faults import LEAVE_OUT, Fault
from mtm.data.formats import builtin
from mtm.data.formats.store import open_store
from mtm.data.leaving_out import LeftOut
from mtm.data.loading import data_files, load
from mtm.data.origin import Origin
from mtm.data.trajectories import TrajectoryDataset

EPISODES, LENGTH = 30, 20
Episodes = list[dict[str, np.ndarray]]


def recording(clock: bool = False, count: int = EPISODES) -> Episodes:
    data = builtin.point_mass(count, LENGTH)
    episodes = [data.episode(e) for e in range(count)]
    for episode in episodes:
        if clock:
            episode["time"] = np.linspace(0, 1.9, LENGTH, dtype=np.float32)
    return episodes


def faults_of(episodes: Episodes, **options: Any) -> list[Fault]:
    return list(check_episodes(TrajectoryDataset.from_episodes(episodes, **options)))


def stuck(episodes: Episodes) -> None:
    episodes[4]["states"][6:15, 2] = episodes[4]["states"][6, 2]


def constant_in_an_episode(episodes: Episodes) -> None:
    episodes[4]["states"][:, 2] = 0.125


def jump(episodes: Episodes) -> None:
    episodes[4]["states"][6:, 2] += 9.0


def unit(episodes: Episodes) -> None:
    episodes[4]["states"][:, 2] *= 57.29578


def smaller_unit(episodes: Episodes) -> None:
    episodes[4]["states"][:, 2] /= 1000


def saturated(episodes: Episodes) -> None:
    for episode in episodes:
        np.clip(episode["actions"], -0.9, 0.9, out=episode["actions"])
        episode["actions"][episode["actions"] == 0.9] = 0.875
    episodes[4]["actions"][2:, 1] = 0.9
    episodes[7]["actions"][0, 1] = 0.9


def time_stands_still(episodes: Episodes) -> None:
    episodes[4]["time"][6:] -= 0.1


def time_leaps(episodes: Episodes) -> None:
    episodes[4]["time"][6:] += 3.0


def other_rate(episodes: Episodes) -> None:
    episodes[4]["time"] *= 2


def copy(episodes: Episodes) -> None:
    episodes[4] = {name: values.copy() for name, values in episodes[1].items()}


@pytest.mark.parametrize(
    ("plant", "check", "place", "words"),
    [
        (stuck, "stuck", "episode 4, step 6, states[2]", "the same for 9 steps"),
        (constant_in_an_episode, "stuck", "episode 4, step 0, states[2]", "all steps"),
        (jump, "jump", "episode 4, step 6, states[2]", "changes by"),
        (unit, "unit", "episode 4, step 0, states[2]", "times the usual ones"),
        (smaller_unit, "unit", "episode 4, step 0, states[2]", "times the usual ones"),
        (saturated, "saturated", "episode 4, step 2, actions[1]", "at the limit"),
        (time_stands_still, "time", "episode 4, step 6, time", "do not go forward"),
        (time_leaps, "time", "episode 4, step 6, time", "3.1 pass"),
        (other_rate, "time", "episode 4, step 0, time", "0.2, of all episodes 0.1"),
        (copy, "copy", "episode 4, step 0", "copy of episode 1"),
    ],
)
def test_a_planted_fault_is_found_at_its_place(
    plant: Callable[[Episodes], None], check: str, place: str, words: str
) -> None:
    episodes = recording(clock=True)
    before = [fault for fault in faults_of(episodes) if fault.weight]
    assert before == []
    plant(episodes)
    found = [fault for fault in faults_of(episodes) if fault.weight]
    assert {fault.episode for fault in found} == {4}
    (fault,) = [fault for fault in found if fault.check == check]
    assert fault.place == place
    assert words in fault.what
    assert fault.cure
    assert fault.weight >= LEAVE_OUT


def test_what_is_usual_in_the_data_is_no_fault() -> None:
    episodes = recording()
    for episode in episodes:
        episode["states"][5:12, 2] = 0.5  # all rest for a while
        episode["states"][:, 0] *= np.float32(np.exp(3 * np.sin(episode["states"][0, 1] * 9)))
    assert not [fault for fault in faults_of(episodes) if fault.weight]


def test_an_episode_that_ends_early_is_in_no_other_unit() -> None:
    episodes = recording()
    episodes[4] = {name: values[:6] for name, values in episodes[4].items()}
    episodes[4]["states"][:, 2] /= 1000
    assert not [fault for fault in faults_of(episodes) if fault.check == "unit"]


def test_actions_that_are_often_at_their_limits_deserve_a_look() -> None:
    episodes = recording()
    for episode in episodes:
        np.clip(episode["actions"], -0.2, 0.2, out=episode["actions"])
    told = [fault for fault in faults_of(episodes) if fault.check == "saturated"]
    assert {fault.feature for fault in told} == {0, 1}
    assert all(fault.weight == 0 and "of all steps" in fault.what for fault in told)


def test_a_sensor_that_clips_in_some_episodes_is_not_stuck() -> None:
    episodes = recording(count=60)
    for e in (3, 8, 21):
        episodes[e]["states"][6:15, 2] = 10.0  # where its range ends
        episodes[e]["states"][5, 2] = episodes[e]["states"][15, 2] = 9.5
    assert not [fault for fault in faults_of(episodes) if fault.check == "stuck"]


def test_a_sensor_that_is_dead_all_along_is_stuck_however_many_are() -> None:
    episodes = recording()
    for e in (4, 8, 21):
        episodes[e]["states"][:, 2] = -9.0
    told = {fault.episode for fault in faults_of(episodes) if fault.check == "stuck"}
    assert told == {4, 8, 21}


def test_no_numbers_that_were_read_as_gaps_are_told_unless_the_user_said_so() -> None:
    episodes = recording()
    episodes[4]["states"][6:9, 2] = np.nan
    (fault,) = [f for f in faults_of(episodes, nan_is_absent=True) if f.weight]
    assert (fault.check, fault.place) == ("no number", "episode 4, step 6, states[2]")
    data = TrajectoryDataset.from_episodes(episodes, nan_is_absent=True)
    said = data.with_metadata(origin=Origin("x", Reading(nan_is_absent=True)))
    assert not [fault for fault in check_episodes(said) if fault.weight]


def test_what_lies_below_a_gap_has_no_influence() -> None:
    episodes = recording()
    data = TrajectoryDataset.from_episodes(episodes)
    known = np.ones(data.num_steps, bool)
    known[85:95] = False
    gappy = data.with_present({"states": known})
    assert not [fault for fault in check_episodes(gappy) if fault.weight]
    other = data.arrays["states"].copy()
    other[85:95] = 1e6
    changed = TrajectoryDataset.from_arrays(
        {**data.arrays, "states": other},
        np.append(data.starts, data.num_steps),
        modalities=data.modalities,
        present={"states": known},
    )
    assert list(check_episodes(changed)) == list(check_episodes(gappy))


def test_few_or_short_episodes_are_no_trouble() -> None:
    one = {"states": np.zeros((1, 2), np.float32), "actions": np.ones((1, 1), np.float32)}
    assert not [fault for fault in faults_of([one]) if fault.weight]
    assert not [fault for fault in faults_of([one] * 8) if fault.weight]


def write_files(folder: Path, episodes: Episodes, count: int, clock: bool = False) -> None:
    folder.mkdir()
    each = len(episodes) // count
    for number in range(count):
        mine = episodes[number * each : (number + 1) * each]
        arrays = {name: np.concatenate([e[name] for e in mine]) for name in mine[0]}
        np.savez(
            folder / f"{number}.npz", offsets=np.arange(0, each * LENGTH + 1, LENGTH), **arrays
        )


def test_units_that_differ_between_files(tmp_path: Path) -> None:
    episodes = recording()
    files = [f"{e // 10}.npz" for e in range(EPISODES)]
    assert list(check_files(TrajectoryDataset.from_episodes(episodes), files)) == []
    for episode in episodes[10:20]:
        episode["states"][:, 1] *= 1000
    (fault,) = check_files(TrajectoryDataset.from_episodes(episodes), files)
    assert (fault.check, fault.file, fault.modality, fault.feature) == (
        "unit",
        "1.npz",
        "states",
        1,
    )
    assert "magnitudes in this file are" in fault.what
    assert unit_of(0.9 / 1000) == ", perhaps metres and millimetres, or grams and kilograms"
    assert unit_of(57) == ", perhaps degrees and radians"
    assert unit_of(20) == ""


def test_episodes_and_files_are_left_out_and_nothing_else_changes(tmp_path: Path, capsys) -> None:
    write_files(tmp_path / "logs", recording(), 3)
    (tmp_path / "logs" / "broken.npz").write_bytes(b"no archive")
    assert list(data_files(tmp_path / "logs")) == ["0.npz", "1.npz", "2.npz", "broken.npz"]
    before = {file.name: file.read_bytes() for file in (tmp_path / "logs").iterdir()}
    file, out = tmp_path / "without.json", tmp_path / "clean"
    LeftOut((0, 11, *range(20, 30)), 30, ("broken.npz",)).write(file)
    words = ["data", "convert", str(tmp_path / "logs"), str(out), "--without", str(file)]
    assert main(words) == 0
    clean, whole = open_store(out), builtin.point_mass(EPISODES, LENGTH)
    kept = [e for e in range(20) if e not in (0, 11)]
    assert clean.num_episodes == len(kept)
    for number, e in enumerate(kept):
        for name, values in whole.episode(e).items():
            np.testing.assert_array_equal(clean.episode(number)[name], values)
    assert {file.name: file.read_bytes() for file in (tmp_path / "logs").iterdir()} == before
    assert main(words) == 2  # nothing is replaced
    assert "exists already" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[]", "a JSON object is needed"),
        ("{", "is damaged"),
        ('{"episodes": [1], "of": 30}', "files"),
        ('{"episodes": [30], "of": 30, "files": []}', "from 0 to 29"),
        ('{"episodes": [true], "of": 30, "files": []}', "from 0 to 29"),
        ('{"episodes": [], "of": 30, "files": [3]}', "files must be names"),
        ('{"episodes": [], "of": 30, "files": [], "x": 1}', "unknown key 'x'"),
        ('{"episodes": [1], "of": 29, "files": []}', "made for 29 episodes"),
        (json.dumps({"episodes": list(range(30)), "of": 30, "files": []}), "nothing remains"),
        ('{"episodes": [], "of": 30, "files": ["0.npz"]}', "made for 30 episodes"),
    ],
)
def test_a_faulty_list_is_refused(content: str, words: str, tmp_path: Path, capsys) -> None:
    write_files(tmp_path / "logs", recording(), 3)
    (tmp_path / "without.json").write_text(content)
    out = tmp_path / "clean"
    told = ["data", "convert", str(tmp_path / "logs"), str(out)]
    assert main([*told, "--without", str(tmp_path / "without.json")]) == 2
    assert words in capsys.readouterr().err
    assert not out.exists()


def test_a_list_and_isolation_are_told_apart(tmp_path: Path, capsys) -> None:
    words = ["data", "convert", "builtin:point-mass", str(tmp_path / "x"), "--isolated"]
    assert main([*words, "--without", "list.json"]) == 2
    assert "--without goes with a plain reading" in capsys.readouterr().err


def test_files_left_out_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.npz").write_bytes(b"no archive")
    with pytest.raises(DataError, match="that is not left out"):
        list(LeftOut((), 1, ("a.npz",)).parts(tmp_path / "logs"))
    with pytest.raises(DataError, match="not a zip"):
        load(tmp_path / "logs")
