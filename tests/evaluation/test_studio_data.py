"""What the studio tells of runs and data: what is there, found fast however much there is."""

from __future__ import annotations

import hashlib
import itertools
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("starlette", reason="the extra `studio` is not installed")
httpx = pytest.importorskip("httpx", reason="the extra `dev` is not installed")

import mtm
from mtm.data.formats.store import open_store, write_store
from mtm.data.returns import episode_returns
from mtm.data.stored_blocks import digests_of
from mtm.data.trajectories import TrajectoryDataset
from mtm.evaluation.studio.serving import Serving
from mtm.inference.run_data import held_out_of, own_data

# As the studio computes: with another number of threads, sums are rounded otherwise.
pytestmark = pytest.mark.usefixtures("_one_thread")

HOPPER, GEARS = {"run": 0, "data": 0}, {"run": 1, "data": 1}
LARGE = 20_000_000


def get(client: Any, path: str, **fields: Any) -> Any:
    answer = client.get(f"/api/{path}", params=fields)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_runs_are_described(client: Any, hopper_run: Path) -> None:
    hopper, gears = get(client, "studio")["runs"]
    assert (hopper["name"], hopper["step"], hopper["segment_length"]) == ("hopper", 20, 4)
    assert [m["name"] for m in hopper["modalities"]] == ["states", "returns", "actions"]
    states, returns, _ = hopper["modalities"]
    assert (states["size"], states["role"], states["features"][10]) == (11, "state", "states[10]")
    assert states["std"] == mtm.load_run(hopper_run).normalizer.statistics["states"].std.tolist()
    assert returns["unit"] == "reward per remaining step of 1,000"
    assert all(mask["problem"] is None for mask in hopper["masks"])
    assert hopper["training_mask"]["name"] == "balanced"
    assert hopper["acting"]["environment"] == "Hopper-v5"
    assert 3000 < hopper["acting"]["returns"]["high"] < 4000
    assert [m["name"] for m in gears["modalities"]] == ["motion", "gear", "throttle"]
    motion, gear, throttle = gears["modalities"]
    assert motion["features"] == ["position", "speed"]
    assert (gear["kind"], gear["mean"], throttle["role"]) == ("discrete", None, "action")
    problems = {mask["name"]: mask["problem"] for mask in gears["masks"]}
    assert problems["rcbc"] == "The run has no modality of role return."
    assert problems["fd"] is None
    assert gears["acting"]["environment"] is None
    assert gears["acting"]["returns"] is None


def test_episodes_come_in_pages(client: Any, hopper_run: Path) -> None:
    own = own_data(mtm.load_run(hopper_run))
    page = get(client, "episodes", **HOPPER, offset=100, count=7)
    assert page["total"] == own.num_episodes
    assert [e["episode"] for e in page["episodes"]] == list(range(100, 107))
    assert [e["length"] for e in page["episodes"]] == own.lengths[100:107].tolist()
    returns = episode_returns(own)[100:107]
    np.testing.assert_allclose([e["return"] for e in page["episodes"]], returns, rtol=1e-4)
    assert get(client, "episodes", **HOPPER, offset=10**6)["episodes"] == []


@pytest.mark.parametrize("place", [HOPPER, GEARS])
def test_held_out_episodes_are_told_from_training_ones(
    client: Any, hopper_run: Path, gears_run: Path, place: dict[str, int]
) -> None:
    run = mtm.load_run((hopper_run, gears_run)[place["run"]])
    own = own_data(run)
    expected = held_out_of(run, own).starts.tolist()
    page = get(client, "episodes", **place, side="held-out", count=200)
    assert [own.starts[e["episode"]] for e in page["episodes"]] == expected
    assert {e["side"] for e in page["episodes"]} == {"held-out"}
    rest = get(client, "episodes", **place, side="training")
    assert rest["total"] + page["total"] == own.num_episodes
    data = get(client, "data", **place)
    assert data["own"]
    assert data["split"] == {
        "state": "ready",
        "held_out": page["total"],
        "training": rest["total"],
    }


def test_gaps_are_told(client: Any, gears_run: Path) -> None:
    own = own_data(mtm.load_run(gears_run))
    steps = slice(int(own.starts[1]), int(own.ends[1]))
    (episode,) = get(client, "episodes", **GEARS, offset=1, count=1)["episodes"]
    assert episode["absent"]["throttle"] == pytest.approx(4 / 30)
    assert episode["absent"]["gear"] == pytest.approx(1 - own.present["gear"][steps].mean())
    assert episode["return"] is None
    line = get(client, "timeline", **GEARS, episode=1)
    assert line["name"] is None
    assert line["absent"]["throttle"] == [[10, 14]]
    told = np.zeros(30, bool)
    for first, end in line["absent"]["gear"]:
        told[first:end] = True
    np.testing.assert_array_equal(told, ~own.present["gear"][steps])
    window = get(client, "window", **GEARS, episode=1, start=8, length=8)
    assert window["present"]["throttle"] == "11000011"
    assert window["values"]["throttle"][2] is None
    np.testing.assert_array_equal(
        window["values"]["motion"], own.arrays["motion"][steps][8:16].astype(np.float64)
    )


def test_a_timeline_is_means_and_bounds(client: Any, hopper_run: Path) -> None:
    own = own_data(mtm.load_run(hopper_run))
    episode = int(own.lengths.argmax())
    line = get(client, "timeline", **HOPPER, episode=episode, points=50)
    rewards = own.arrays["rewards"][own.starts[episode] : own.ends[episode]]
    edges = [*line["steps"], len(rewards)]
    parts = [rewards[a:b] for a, b in itertools.pairwise(edges)]
    assert line["name"] == "rewards"
    assert len(parts) == 50
    np.testing.assert_allclose(line["mean"], [p.mean() for p in parts], rtol=1e-5)
    assert line["low"] == [p.min() for p in parts]
    assert line["high"] == [p.max() for p in parts]


def test_a_timeline_of_many_gaps_is_bounded() -> None:
    from mtm.evaluation.studio.episodes import MOST_STRETCHES, _stretches

    absent = np.tile([True, False], 3000)
    told = _stretches(absent, 1, 6000)
    assert len(told) == MOST_STRETCHES
    assert told[0][0] == 0
    assert told[-1][1] == 5999
    assert all(a < b for a, b in told)


def large_store(path: Path) -> None:
    """A store of 20 million steps that takes no room: what was not written is a hole."""
    small = TrajectoryDataset.from_arrays(
        {
            "states": np.zeros((4, 11), np.float32),
            "actions": np.zeros((4, 3), np.float32),
            "rewards": np.ones(4, np.float32),
        },
        [0, 4],
    )
    write_store([small], path, "large")
    manifest = json.loads((path / "manifest.json").read_text())
    record = (path / "steps.bin").stat().st_size // 4
    manifest |= {"steps": LARGE, "episodes": LARGE // 500, "fingerprint": "of many"}
    np.arange(0, LARGE + 1, 500).astype("<i8").tofile(path / "offsets.bin")
    with (path / "steps.bin").open("r+b") as file:
        file.truncate(LARGE * record)
    (path / "digests.bin").write_bytes(digests_of(path / "steps.bin"))
    for name in manifest["sha256"]:
        manifest["sha256"][name] = hashlib.sha256((path / f"{name}.bin").read_bytes()).hexdigest()
    (path / "manifest.json").write_text(json.dumps(manifest))


def resident() -> int:
    """Bytes of this process in memory, those of mapped files that were read among them."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.filterwarnings("error:.*without digests")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc")
def test_many_steps_are_looked_at_without_reading_them_all(
    hopper_run: Path, tmp_path: Path
) -> None:
    large_store(tmp_path / "large")
    size = (tmp_path / "large" / "steps.bin").stat().st_size
    assert size > 1e9
    assert open_store(tmp_path / "large").num_steps == LARGE
    with (
        Serving([hopper_run], tmp_path / "large", port=0) as serving,
        httpx.Client(base_url=serving.address, timeout=60, trust_env=False) as client,
    ):
        place = {"run": 0, "data": 0, "episode": 39_999}
        get(client, "studio")
        before = resident()
        data = get(client, "data", run=0, data=0)
        assert (data["name"], data["steps"], data["own"]) == ("large", LARGE, False)
        page = get(client, "episodes", run=0, data=0, offset=39_000, count=50)
        assert page["episodes"][0]["side"] == "other"
        assert get(client, "timeline", **place)["length"] == 500
        window = get(client, "window", **place, start=490, length=16)
        assert window["length"] == 10
        answer = client.post(
            "/api/answer",
            json={**place, "start": 0, "length": 4, "visible": {"states": "1100"}},
        )
        assert answer.status_code == 200
        assert resident() - before < size / 10


def test_what_the_data_lack_can_be_made_up(hopper_run: Path, tmp_path: Path) -> None:
    """A log of states alone: all else is absent, and a return can still be asked for."""
    states = np.random.default_rng(0).random((8, 11), np.float32)
    np.savez(tmp_path / "states.npz", states=states, offsets=[0, 8])
    with (
        Serving([hopper_run], tmp_path / "states.npz", port=0) as serving,
        httpx.Client(base_url=serving.address, timeout=60, trust_env=False) as client,
    ):
        assert get(client, "data", run=0, data=0)["lacking"] == ["returns", "actions"]
        place = {"run": 0, "data": 0, "episode": 0, "start": 2, "length": 4}
        edit = {"modality": "returns", "step": 0, "feature": 0, "value": 2.5}
        visible = {"states": "1000", "returns": "1000"}
        body = {**place, "visible": visible, "edits": [edit]}
        answer = client.post("/api/answer", json=body).json()
    names: dict[str, Any] = {}
    exec(answer["python"], names)
    for name, values in names["answer"].items():
        found = np.array(answer["modalities"][name]["prediction"]).reshape(values.shape)
        np.testing.assert_array_equal(found, values)
    assert answer["modalities"]["returns"]["prediction"][0] == [2.5]
    assert answer["modalities"]["actions"]["error"]["tokens"] == 0


def test_data_that_cannot_be_had_are_told(hopper_run: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "other.npz", wings=np.zeros((4, 2)), offsets=[0, 4])
    with (
        Serving([hopper_run], tmp_path / "other.npz", port=0) as serving,
        httpx.Client(base_url=serving.address, timeout=60, trust_env=False) as client,
    ):
        misfit = client.get("/api/data", params={"run": 0, "data": 0})
        assert misfit.status_code == 422
        assert "none of them" in misfit.json()["error"]["message"]
        (tmp_path / "other.npz").unlink()
    with (
        Serving([hopper_run], tmp_path / "other.npz", port=0) as serving,
        httpx.Client(base_url=serving.address, timeout=60, trust_env=False) as client,
    ):
        gone = client.get("/api/data", params={"run": 0, "data": 0})
        assert gone.status_code == 422
        assert "no data set at" in gone.json()["error"]["message"]
        assert get(client, "data", run=0, data=1)["own"]


def test_runs_are_found_where_none_is_named(
    hopper_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "mine").symlink_to(hopper_run)
    (tmp_path / "runs" / "no-run").mkdir()
    (tmp_path / "runs" / "no-run" / "config.json").write_text("{}")
    with Serving([], port=0) as serving, httpx.Client(trust_env=False, timeout=60) as client:
        runs = client.get(f"{serving.address}api/studio").json()["runs"]
    assert [run["path"] for run in runs] == ["runs/mine"]
