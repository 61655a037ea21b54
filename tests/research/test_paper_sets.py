"""`mtm reproduce data`: sets of the paper's shape, with a manifest, made once."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("gymnasium", reason="gymnasium is not installed (extra sim)")
pytest.importorskip("stable_baselines3", reason="stable-baselines3 is not installed")
pytest.importorskip("matplotlib", reason="matplotlib is not installed (extra report)")

from mtm.cli import main
from mtm.core.errors import DataError
from mtm.data import loading
from mtm.research.collect import agents, paper_sets
from mtm.research.experiments import made_sets, table1
from mtm.research.experiments.data import facts

POINT_MASS = "point_mass_environment:PointMass-v0"
NAMES = [
    f"{env}-{kind}"
    for env in ("hopper", "walker2d", "halfcheetah")
    for kind in ("expert", "medium", "medium-replay", "medium-expert")
]

pytestmark = pytest.mark.usefixtures("_one_thread")


@pytest.fixture(scope="module")
def _quick() -> None:
    """A quick environment in place of the simulators; the rest is as it is."""
    with pytest.MonkeyPatch.context() as patch:
        for env in paper_sets.ENVIRONMENTS:
            patch.setitem(paper_sets.ENVIRONMENTS, env, POINT_MASS)
        patch.setattr(agents, "LEAST_SNAPSHOT_STEPS", 60)
        patch.setattr(agents, "JUDGED_EPISODES", 1)
        patch.setattr(paper_sets, "TIMED_STEPS", 20)
        patch.setattr(paper_sets, "MOST_THREADS", 1)
        yield


def make(folder: Path, *words: str) -> int:
    return main(["reproduce", "data", "--scale", "smoke", "--out", str(folder), *words])


@pytest.fixture(scope="module")
def folder(tmp_path_factory, _quick) -> Path:
    out = tmp_path_factory.mktemp("sets") / "made"
    assert make(out) == 0
    return out


def test_the_sets_are_listed_with_their_fingerprints(folder: Path) -> None:
    manifest = paper_sets.read_manifest(folder)
    assert sorted(manifest["sets"]) == sorted(NAMES)
    for name, entry in manifest["sets"].items():
        data = loading.load(str(folder / f"{name}.hdf5"))
        assert (entry["file"], entry["fingerprint"]) == (f"{name}.hdf5", data.fingerprint)
        assert (entry["steps"], entry["episodes"]) == (data.num_steps, data.num_episodes)
        assert entry["origin"] == "made here"
    assert manifest["sets"]["hopper-medium-expert"]["behaviour"] == "medium, then expert"


def test_what_is_there_is_not_made_again(folder: Path, capsys) -> None:
    manifest = (folder / "manifest.json").read_bytes()
    (folder / "hopper-medium.hdf5").unlink()  # its collection is still there
    assert make(folder) == 0
    assert "steps of SAC to do" not in capsys.readouterr().out
    assert (folder / "hopper-medium.hdf5").exists()
    assert (folder / "manifest.json").read_bytes() == manifest


@pytest.mark.usefixtures("_quick")
def test_the_time_is_told_before_it_is_spent(tmp_path: Path, monkeypatch, capsys) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(paper_sets, "collect", stop)
    assert make(tmp_path / "sets") != 0
    assert "600 steps of SAC to do, at " in capsys.readouterr().out


def test_recordings_are_listed_as_what_they_are(folder: Path, tmp_path: Path, capsys) -> None:
    file = tmp_path / "door-expert.npz"
    steps = {"states": np.zeros((30, 2)), "actions": np.zeros((30, 1)), "rewards": np.zeros(30)}
    np.savez(file, **steps, offsets=[0, 30])
    assert make(folder, "--data", str(file)) == 0
    entry = paper_sets.read_manifest(folder)["sets"]["door-expert"]
    assert (entry["origin"], entry["behaviour"]) == ("recorded elsewhere", "not said")
    assert made_sets.resolve([f"made:{folder}"], ["d4rl:door-expert-v1"]) == [str(file)]
    clash = tmp_path / "hopper-medium.npz"
    clash.write_bytes(file.read_bytes())
    assert make(folder, "--data", str(clash)) != 0
    assert "rename the file" in capsys.readouterr().err


def test_experiments_find_the_sets_of_the_paper_s_names(folder: Path, monkeypatch) -> None:
    monkeypatch.setenv("MTM_PAPER_SETS", str(folder))
    found = made_sets.resolve(["made"], table1.DATA["paper"])
    names = [spec.removeprefix("d4rl:").removesuffix("-v2") for spec in table1.DATA["paper"]]
    assert found == [str(folder / f"{name}.hdf5") for name in names]
    assert len(found) == 9
    assert facts(str(found[0])).name == "halfcheetah-medium-replay"
    assert not facts(str(found[0])).is_papers
    assert made_sets.resolve(["builtin:hopper"], table1.DATA["paper"]) == ["builtin:hopper"]
    with pytest.raises(DataError, match="has none of the sets that this experiment is about"):
        made_sets.resolve(["made"], ["d4rl:pen-expert-v1"])


def test_sets_that_are_not_what_they_were(folder: Path, tmp_path: Path, capsys) -> None:
    with pytest.raises(DataError, match="make them with `mtm reproduce data`"):
        made_sets.resolve([f"made:{tmp_path}"], table1.DATA["paper"])
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["sets"]["hopper-medium"]["fingerprint"] = "another"
    for name, entry in manifest["sets"].items():
        entry["file"] = str(folder / f"{name}.hdf5")
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(DataError, match=r"hopper-medium\.hdf5 has changed since it was listed"):
        made_sets.resolve([f"made:{tmp_path}"], ["d4rl:hopper-medium-v2"])
    (tmp_path / "manifest.json").write_text("[]")
    with pytest.raises(DataError, match="is not what `mtm reproduce data` writes"):
        made_sets.resolve([f"made:{tmp_path}"], table1.DATA["paper"])
    words = ["reproduce", "data", "--scale", "cpu", "--out", str(folder)]
    assert main(words) != 0
    assert "holds sets of the scale smoke, not cpu" in capsys.readouterr().err
    assert main([*words, "--seeds", "2"]) != 0
