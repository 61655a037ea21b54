"""A run finds its data again: from another directory, or where they have moved to."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import mtm
from mtm.cli import main
from mtm.core.config import Reading, TrainConfig
from mtm.core.errors import DataError
from mtm.data import loading
from mtm.data.formats import builtin
from mtm.data.formats.store import write_store
from mtm.evaluation.evaluate import EvalConfig, evaluate
from mtm.inference.episode_batches import shown_to
from mtm.inference.run_data import (
    episode_shown_to,
    held_out_of,
    is_held_out,
    own_data,
    prepared_for,
    reported_episodes,
)
from mtm.research.baselines import agent_config, train_agent

EPISODES, LENGTH = 12, 10


def write_npz(path: Path, episodes: int = EPISODES) -> None:
    data = builtin.point_mass(episodes, LENGTH)
    np.savez(path, **data.arrays, offsets=[0, *data.ends])


def write_exorl(path: Path) -> None:
    path.mkdir()
    rng = np.random.default_rng(0)
    for i in range(4):
        np.savez(
            path / f"episode_{i}.npz",
            observation=rng.random((LENGTH, 3)),
            action=rng.random((LENGTH, 2)),
            reward=rng.random((LENGTH, 1)),
            discount=np.ones((LENGTH, 1)),
        )


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with one data set of every kind in `data`."""
    folder = tmp_path / "here" / "data"
    folder.mkdir(parents=True)
    write_npz(folder / "log.npz")
    (folder / "logs").mkdir()
    write_npz(folder / "logs" / "a.npz")
    write_npz(folder / "logs" / "b.npz", 3)
    write_store([builtin.point_mass(EPISODES, LENGTH)], folder / "store", "log")
    write_exorl(folder / "explored")
    (folder / "link.npz").symlink_to(folder / "log.npz")
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


@pytest.fixture
def quick(tiny: TrainConfig) -> TrainConfig:
    return replace(tiny, steps=2, drop={"actions": 0.5})


@pytest.mark.parametrize("loaded", [False, True])
def test_from_another_directory(
    here: Path, quick, loaded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = mtm.load_dataset("data/log.npz") if loaded else "data/log.npz"
    run = mtm.train(data, quick, "run", silent=True)
    assert run.description.data["spec"] == str(here / "data" / "log.npz")
    monkeypatch.chdir("/")
    assert reported_episodes(mtm.load_run(here / "run")).num_episodes == 1


@pytest.mark.parametrize(
    ("before", "name"),
    [("", name) for name in ("log.npz", "logs", "store", "explored", "link.npz")]
    + [("exorl:", "explored")],
)
def test_every_kind_is_found_from_everywhere(
    here: Path, before: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = mtm.load_dataset(f"{before}data/../data/{name}")
    origin = data.metadata.origin
    assert origin is not None
    assert origin.spec == f"{before}{here / 'data' / name}"
    monkeypatch.chdir("/")
    again = mtm.load_dataset(origin.spec, origin.reading)
    assert again.fingerprint == data.fingerprint
    assert again.metadata == data.metadata


def test_names_stay_names(here: Path) -> None:
    origin = mtm.load_dataset("builtin:point-mass").metadata.origin
    assert origin is not None
    assert origin.spec == "builtin:point-mass"
    assert loading.absolute("nowhere.npz") == "nowhere.npz"
    (here / "log").write_text("")
    assert loading.absolute("minari:log") == "minari:log"


def test_loading_a_store_reads_no_values_for_its_fingerprint(here: Path) -> None:
    assert "fingerprint" in vars(mtm.load_dataset("data/store"))


def test_tables_show_a_short_name(here: Path, quick, capsys) -> None:
    run = mtm.train("data/log.npz", quick, "run", silent=True)
    assert main(["eval", "run", "--tasks", "id"]) == 0
    printed = capsys.readouterr().out
    assert "data log.npz" in printed
    assert "1 of 1 held-out episode(s) are the only ones of their kind" in " ".join(printed.split())
    assert json.loads((run.path / "evaluation.json").read_text())["data"] == str(
        here / "data" / "log.npz"
    )
    assert loading.short("exorl:walk:/a/b/buffer") == "exorl:walk:buffer"
    assert loading.short("builtin:hopper") == "builtin:hopper"


def test_data_that_have_moved(here: Path, quick, capsys) -> None:
    """The error says where they were; at the new place they are the run's own all the same."""
    run = mtm.train("data/log.npz", quick, "run", silent=True)
    held_out = reported_episodes(run)
    old, new = here / "data" / "log.npz", here / "moved.npz"
    shutil.move(old, new)
    with pytest.raises(DataError, match=f"were expected at {old}: no data set.*have moved.*--data"):
        reported_episodes(run)
    assert reported_episodes(run, "moved.npz").fingerprint == held_out.fingerprint
    for words in (["eval", "run", "--tasks", "id"], ["report", "run"]):
        assert main(words) == 0
        assert f"expected at {old}" in capsys.readouterr().out
        assert main([*words, "--data", "moved.npz"]) == 0
        assert "expected at" not in capsys.readouterr().out
    page = (run.path / "report" / "report.html").read_text()
    assert "steps of log.npz." in page
    assert str(here) not in page
    words = ["relabel", "run", "--want", "actions", "--out"]
    assert main([*words, "full.npz"]) == 2
    assert f"expected at {old}" in capsys.readouterr().err
    assert main([*words, "full.npz", "--data", "moved.npz"]) == 0
    assert "11 episodes, 110 steps; filled: " in capsys.readouterr().out
    longer = ["train", "--out", "run", "--resume", "--steps", "4"]
    assert main(longer) == 2
    assert f"expected at {old}" in capsys.readouterr().err
    assert main([*longer, "--data", "moved.npz"]) == 0
    assert mtm.load_run("run").description.data["spec"] == str(new)


def test_held_out_errors_are_not_measured_on_what_was_trained_on(here: Path, quick) -> None:
    run = mtm.train("data/log.npz", quick, "run", silent=True)
    labels = mtm.relabel(run, held_out="data/log.npz").errors["actions"]
    assert labels == mtm.relabel(run).errors["actions"]


def test_data_that_have_changed(here: Path, quick) -> None:
    run = mtm.train("data/log.npz", quick, "run", silent=True)
    write_npz(here / "data" / "log.npz", 5)
    with pytest.raises(DataError, match="log.npz is not what the run was trained on"):
        reported_episodes(run)


def test_a_run_remembers_how_its_data_were_read(here: Path, quick) -> None:
    arrays = builtin.point_mass(EPISODES, LENGTH).arrays
    trial = np.repeat(np.arange(EPISODES), LENGTH)
    np.savez("own.npz", joints=arrays["states"], push=arrays["actions"], trial=trial)
    columns: dict[str, str | tuple[str, ...]] = {"states": "joints", "actions": "push"}
    data = mtm.load_dataset("own.npz", Reading(columns=columns, episode="trial"))
    run = mtm.train(data, quick, "run", silent=True)
    assert run.description.train.reading.episode == "trial"
    assert reported_episodes(mtm.load_run("run")).num_episodes == 1


def test_whatever_takes_a_path_takes_a_path(here: Path, quick) -> None:
    path = Path("data/log.npz")
    assert mtm.load_dataset(path).num_episodes == EPISODES
    assert mtm.load_dataset(Path("data/logs")).num_episodes == EPISODES + 3
    run = mtm.train(path, quick, Path("run"), silent=True)
    found = evaluate(run, EvalConfig(tasks=["id"], data=path), say=lambda _: None)
    assert found["tasks"]["id"] is not None
    assert found["data"] == str(here / path)
    labels = mtm.relabel(run, path, held_out=path)
    assert labels.dataset.num_episodes == 11
    agent = train_agent(
        "td3_bc", path, replace(agent_config("td3_bc", "tiny"), steps=2), Path("agent"), silent=True
    )
    assert agent.description.data["spec"] == str(here / path)


def test_data_made_in_memory_are_said_to_be_nowhere(point_mass, tiny, tmp_path) -> None:
    run = mtm.train(point_mass.with_metadata(source="memory"), tiny, tmp_path / "run", silent=True)
    with pytest.raises(mtm.DataError, match="made in memory.*Save them, and name them"):
        own_data(run)


def test_a_reading_for_data_that_have_been_read_is_refused(tiny, tmp_path) -> None:
    steps = np.zeros((20, 2), np.float32)
    np.savez(tmp_path / "x.npz", states=steps, actions=steps, cost=np.ones(20), offsets=[0, 10, 20])
    config = replace(tiny, reading=mtm.Reading(roles={"cost": "reward"}))
    data = mtm.load_dataset(tmp_path / "x.npz")
    with pytest.raises(mtm.ConfigError, match="have been read already"):
        mtm.train(data, config, tmp_path / "run", silent=True)
    read = mtm.load_dataset(tmp_path / "x.npz", config.reading)
    run = mtm.train(read, config, tmp_path / "run", silent=True)
    assert "returns" in run.modalities.names


@pytest.mark.parametrize("absent", [(), ("states",), ("rewards",), ("states", "rewards")])
def test_one_episode_is_as_the_whole_set_shows_it(
    tmp_path: Path, tiny: TrainConfig, absent: tuple[str, ...]
) -> None:
    """Values, presence and held out or not, without preparing the others."""
    whole = builtin.point_mass(EPISODES, LENGTH)
    rng = np.random.default_rng(0)
    marks = {name: rng.random(whole.num_steps) < 0.7 for name in absent}
    for mask in marks.values():
        mask[: 3 * LENGTH] = False  # some episodes have nothing of it
        mask[-2 * LENGTH :] = True
    data = whole.with_present(marks)
    run = mtm.train(data, replace(tiny, steps=2, validation_fraction=0.4), tmp_path / "run")
    held_out = held_out_of(run, data)
    np.testing.assert_array_equal(data.starts[is_held_out(run, data)], held_out.starts)
    shown = prepared_for(run, data)
    for index in (0, 5, EPISODES - 1):
        expected, found = shown.episode(index), episode_shown_to(run, data, index).episode(0)
        assert found.keys() == expected.keys()
        for name, values in expected.items():
            np.testing.assert_array_equal(found[name], values)
    with pytest.raises(DataError, match="there is no episode 12; the data have 0 to 11"):
        episode_shown_to(run, data, EPISODES)


def test_one_episode_of_longer_data_has_their_horizon(tmp_path: Path, tiny: TrainConfig) -> None:
    run = mtm.train(builtin.point_mass(EPISODES, LENGTH), replace(tiny, steps=2), tmp_path / "run")
    episodes = [builtin.point_mass(2, length).episode(0) for length in (LENGTH, 3 * LENGTH)]
    data = mtm.TrajectoryDataset.from_episodes(episodes)
    whole = shown_to(run, data).episode(0)["returns"]
    np.testing.assert_array_equal(episode_shown_to(run, data, 0).episode(0)["returns"], whole)
