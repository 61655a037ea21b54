"""Sharing on a hub, against one on loopback that speaks its protocol."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import mtm
from hub_server import READER, WRITER, Hub, reachable_hub, running_hub, set_endpoint
from mtm.cli import main
from mtm.core.config import TrainConfig
from mtm.core.errors import ConfigError, RunError
from mtm.data.trajectories import TrajectoryDataset
from mtm.deploy.sharing import files_to_push
from mtm.runs import hub as sharing
from mtm.runs.bundle import MANIFEST
from mtm.runs.hub import Place
from mtm.runs.run import Run

pytest.importorskip("huggingface_hub", reason="the extra hub is not installed")

PLACE = Place("me/hopper")
WEIGHTS = "checkpoints/step-000000020/model.safetensors"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, point_mass: TrajectoryDataset) -> Run:
    config = TrainConfig.from_json(
        {"steps": 20, "batch_size": 16, "validate_every": 20, "checkpoint_every": 20}
        | {"validation_segments": 64, "model": {"width": 16, "encoder_layers": 1, "heads": 2}}
    )
    return mtm.train(point_mass, config, tmp_path_factory.mktemp("runs") / "run", silent=True)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub, and a person who may write to it; what is fetched is kept in a folder of the test."""
    monkeypatch.setenv("HF_TOKEN", WRITER)
    with reachable_hub(tmp_path, monkeypatch) as found:
        yield found


def push(run: Run, *, public: bool = False) -> Place:
    return sharing.push(PLACE, files_to_push(run.path, PLACE), public=public)


def same(one: Run, other: Run) -> bool:
    states = np.linspace(-1, 1, 20, dtype=np.float32).reshape(5, 4)
    answers = [mtm.inverse_dynamics(r, states) for r in (one, other)]
    return np.array_equal(*answers)


def test_what_is_pushed_loads(run: Run, hub: Hub) -> None:
    pushed = push(run)
    loaded = mtm.load_run("hub:me/hopper")
    assert same(loaded, run)
    assert str(loaded.path) == str(pushed)  # the commit, not what is newest some day
    repository = hub.repositories["me/hopper"]
    assert repository.private
    assert set(repository.head) == {
        *(".gitattributes", "README.md", "config.json", MANIFEST, WEIGHTS),
        "checkpoints/step-000000020/state.json",
    }
    assert b"mtm.load_run('hub:me/hopper')" in repository.head["README.md"]


def test_a_revision_stays_what_it_is(run: Run, hub: Hub, tmp_path: Path, tiny: TrainConfig) -> None:
    first = push(run)
    other = mtm.train("builtin:point-mass", tiny, tmp_path / "other", silent=True)
    hub.repositories["me/hopper"].head["notes.txt"] = b"of the owner"
    files = files_to_push(other.path, PLACE)
    files["checkpoints/step-000000010/state.json"] = b"{}"
    second = sharing.push(PLACE, files)
    third = push(other)
    assert len({first.revision, second.revision, third.revision}) == 3
    assert same(mtm.load_run(str(first)), run)
    assert same(mtm.load_run("hub:me/hopper"), other)
    head = hub.repositories["me/hopper"].head
    assert "notes.txt" in head  # what is not ours is left alone
    assert "checkpoints/step-000000010/state.json" not in head
    with pytest.raises(RunError, match="has no revision 'elsewhere'"):
        mtm.load_run("hub:me/hopper@elsewhere")


def test_nothing_becomes_public_by_accident(run: Run, hub: Hub) -> None:
    push(run, public=True)
    repository = hub.repositories["me/hopper"]
    assert not repository.private
    before = len(repository.commits)
    with pytest.raises(ConfigError, match="is public already.*say --public"):
        push(run)
    repository.private = True
    with pytest.raises(ConfigError, match="is private already.*leave --public out"):
        push(run, public=True)
    assert len(repository.commits) == before


def test_a_fetched_revision_loads_without_a_network(
    run: Run, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    pushed = push(run)
    mtm.load_run("hub:me/hopper")
    asked = len(hub.requests)
    mtm.load_run(str(pushed))
    assert len(hub.requests) == asked  # a commit that is kept needs no question at all
    set_endpoint(monkeypatch, "http://127.0.0.1:9")  # where nobody answers
    assert same(mtm.load_run("hub:me/hopper"), run)
    assert same(mtm.load_run(str(pushed)), run)
    with pytest.raises(RunError, match="hub:me/other cannot be reached.*Check the network"):
        mtm.load_run("hub:me/other")


def test_a_hub_that_is_down(run: Run, hub: Hub) -> None:
    push(run)
    mtm.load_run("hub:me/hopper")
    hub.broken = 500
    assert same(mtm.load_run("hub:me/hopper"), run)
    with pytest.raises(RunError, match="hub:me/other cannot be reached"):
        mtm.load_run("hub:me/other")
    with pytest.raises(RunError, match="hub:me/hopper: the hub answered 500"):
        push(run)


def test_a_cut_connection_is_gone_on_with(run: Run, hub: Hub) -> None:
    push(run)
    hub.cuts[WEIGHTS] = 2
    assert same(mtm.load_run("hub:me/hopper"), run)
    assert hub.cuts[WEIGHTS] == 0


def test_a_connection_that_is_always_cut(run: Run, hub: Hub) -> None:
    push(run)
    hub.replaced[WEIGHTS] = b""  # headers, and then nothing, however often it is asked
    hub.cuts[WEIGHTS] = 1000
    with pytest.raises(RunError, match="hub:me/hopper"):
        mtm.load_run("hub:me/hopper")
    hub.replaced.clear()
    hub.cuts.clear()
    assert same(mtm.load_run("hub:me/hopper"), run)


@pytest.mark.parametrize("name", [WEIGHTS, "config.json", MANIFEST])
def test_wrong_bytes_are_refused(run: Run, hub: Hub, name: str) -> None:
    push(run)
    content = hub.repositories["me/hopper"].head[name]
    place = len(content) // 2
    hub.replaced[name] = content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]
    with pytest.raises(RunError, match=r"damaged|which its manifest|is no part|lacks"):
        mtm.load_run("hub:me/hopper")
    hub.replaced.clear()
    assert same(mtm.load_run("hub:me/hopper"), run)  # what was kept is fetched again


def test_what_is_larger_than_the_manifest_says_is_not_fetched(run: Run, hub: Hub) -> None:
    push(run)
    head = hub.repositories["me/hopper"].head
    head[WEIGHTS] += b"more"
    with pytest.raises(RunError, match=r"model.safetensors has [\d,]+ bytes, where [\d,]+ are"):
        mtm.load_run("hub:me/hopper")
    assert not [r for r in hub.requests if r.startswith("GET") and WEIGHTS in r]


def test_damage_of_what_is_kept_is_found_and_cured(run: Run, hub: Hub, tmp_path: Path) -> None:
    push(run)
    mtm.load_run("hub:me/hopper")
    (kept,) = (tmp_path / "cache").rglob("snapshots/*/checkpoints/*/model.safetensors")
    for damage in (b"no", bytes(kept.stat().st_size)):
        kept.resolve().write_bytes(damage)
        assert same(mtm.load_run("hub:me/hopper"), run)


def test_manifests_of_strangers(run: Run, hub: Hub) -> None:
    push(run)
    head = hub.repositories["me/hopper"].head
    for name in ("../../.bashrc", "/etc/passwd", "model.pkl", "checkpoints/step-1/state.json"):
        plain = json.loads(head[MANIFEST])
        plain["files"][name] = {"bytes": 2, "sha256": "00"}
        hub.repositories["me/hopper"].commit({**head, MANIFEST: json.dumps(plain).encode()})
        with pytest.raises(RunError, match="is no part of a shared run"):
            mtm.load_run("hub:me/hopper")
    hub.repositories["me/hopper"].commit({"README.md": b"a model of another kind"})
    with pytest.raises(RunError, match=r"holds no manifest\.json"):
        mtm.load_run("hub:me/hopper")


def test_who_may_do_what(run: Run, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    push(run)
    monkeypatch.setenv("HF_TOKEN", READER)
    assert same(mtm.load_run("hub:me/hopper"), run)
    with pytest.raises(RunError, match="the token does not allow this.*may write to 'me'"):
        push(run)
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(RunError, match="does not know who is asking. Run `hf auth login`"):
        sharing.push(Place("me/new"), files_to_push(run.path, PLACE))
    with pytest.raises(RunError, match="no hub:me/new that you may see.*if it is private"):
        mtm.load_run("hub:me/new")
    monkeypatch.setenv("HF_TOKEN", WRITER)
    with pytest.raises(RunError, match="may write to 'they'"):
        sharing.push(Place("they/new"), files_to_push(run.path, PLACE))


def test_two_pushes_at_once(run: Run, hub: Hub) -> None:
    push(run)
    hub.moved = True
    with pytest.raises(RunError, match="was changed by somebody else meanwhile"):
        push(run)


@pytest.mark.parametrize(
    "name", ["hub:", "hub:me", "hub:me/a/b", "hub:me/a@", "hub:/me/a", "hub:a b/c"]
)
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(ConfigError, match="the form is hub:OWNER/NAME"):
        mtm.load_run(name)


def test_names_that_a_hub_refuses(run: Run, hub: Hub) -> None:
    with pytest.raises(ConfigError, match="cannot be the name of a repository"):
        mtm.load_run("hub:me/a--b")
    with pytest.raises(ConfigError, match="a push makes a new revision"):
        files_to_push(run.path, Place("me/hopper", "main"))
    assert not hub.requests


def test_on_the_command_line(run: Run, tmp_path: Path) -> None:
    """With the hub's own variables, in a process of its own."""
    words = ["push", str(run.path), "hub:me/cli", "--licence", "mit"]
    with running_hub() as hub:
        variables = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path), "HF_TOKEN": WRITER}
        done = subprocess.run(
            [sys.executable, "-m", "mtm", *words],
            env=os.environ | variables | {"HF_HUB_DISABLE_XET": "1"},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        assert WEIGHTS in done.stdout
        assert "private" in done.stdout
        assert f"hub:me/cli@{hub.repositories['me/cli'].branches['main']}" in done.stdout
        assert b"license: mit" in hub.repositories["me/cli"].head["README.md"]


def test_a_preview_pushes_nothing(run: Run, hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["push", str(run.path), "hub:me/cli", "--licence", "mit", "--dry-run"]) == 0
    told = capsys.readouterr().out
    assert "Nothing was pushed" in told
    assert "license: mit" in told
    assert not hub.requests
