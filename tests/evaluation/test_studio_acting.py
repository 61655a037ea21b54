"""The studio lets runs act and ranks episodes, over HTTP, and says why where it cannot."""

from __future__ import annotations

import base64
import io
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("starlette", reason="the extra `studio` is not installed")
httpx = pytest.importorskip("httpx", reason="the extra `dev` is not installed")

import mtm
from mtm.data.environment_ids import EnvironmentMismatchError
from mtm.evaluation.studio.serving import Serving

ORDER = {"run": 0, "policy": "rcbc", "target": "fraction:0.5", "episodes": 2, "seed": 3}


@pytest.fixture
def act(client: Any) -> Any:
    """Starts an acting; whatever still goes on at the end is cancelled."""
    pytest.importorskip("mujoco", reason="the extra `sim` is not installed")
    jobs = []

    def start(**changes: Any) -> Any:
        answer = client.post("/api/act", json={**ORDER, **changes})
        if answer.status_code == 202:
            jobs.append(answer.json()["job"])
        return answer

    yield start
    for job in jobs:
        client.post(f"/api/act/{job}/cancel", json={})
        ended(client, job)


def ended(client: Any, job: int) -> Any:
    while (state := client.get(f"/api/act/{job}").json())["state"] == "running":
        time.sleep(0.05)
    return state


def events(client: Any, job: int, **headers: str) -> list[tuple[str, str, Any]]:
    """(id, kind, fields) of every event until the end."""
    found = []
    with client.stream("GET", f"/api/act/{job}/events", headers=headers) as answer:
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        fields: dict[str, str] = {}
        for line in answer.iter_lines():
            if line:
                name, _, value = line.partition(": ")
                fields[name] = value
            elif "event" in fields:
                data = json.loads(fields["data"])
                found.append((fields.get("id", ""), fields["event"], data))
                fields = {}
    return found


def test_returns_are_those_of_a_rollout(client: Any, act: Any, hopper_run: Path) -> None:
    answer = act()
    assert answer.status_code == 202
    about = answer.json()
    assert about["environment"] == "Hopper-v5"
    assert client.get("/api/act", params={"run": 0}).json() == about  # for a page that was away
    assert client.get("/api/act", params={"run": 1}).json() == {"job": None}
    told = events(client, about["job"])
    run = mtm.load_run(hopper_run)
    policy = mtm.policies.return_conditioned(run, "fraction:0.5")
    expected = mtm.rollout({"mine": policy}, "Hopper-v5", episodes=2, seed=3)["mine"]
    arrived = {e["seed"]: e for _, kind, e in told if kind == "episode"}
    assert [arrived[s]["return"] for s in (3, 4)] == pytest.approx(expected.returns.tolist())
    assert [arrived[s]["length"] for s in (3, 4)] == expected.lengths.tolist()
    assert arrived[3]["asked"] == about["target"]
    assert arrived[3]["score"] is not None
    assert told[-1][1] == "end"
    assert told[-1][2]["state"] == "done"
    assert told[-1][2]["mean"] == pytest.approx(expected.returns.mean())
    state = client.get(f"/api/act/{about['job']}").json()
    assert (state["state"], state["finished"], len(state["results"])) == ("done", 2, 2)
    last = told[-2][0]  # a page that lost the line goes on after what it has seen
    again = events(client, about["job"], **{"Last-Event-ID": last})
    assert [kind for _, kind, _ in again] == ["end"]


def test_frames_come_or_it_says_what_to_install(client: Any, act: Any) -> None:
    image = pytest.importorskip("PIL.Image", reason="the extra `studio` is not installed")
    job = act(policy="bc", frames=True, episodes=1).json()
    assert job["target"] is None
    told = events(client, job["job"])
    problem = next(fields["problem"] for _, kind, fields in told if kind == "frames")
    frames = [fields for _, kind, fields in told if kind == "frame"]
    assert bool(frames) == (problem is None)
    if frames:
        prefix, _, data = frames[0]["image"].partition(",")
        assert prefix == "data:image/png;base64"
        assert max(image.open(io.BytesIO(base64.b64decode(data))).size) == 320
    else:
        assert "apt-get install" in problem


def test_one_at_a_time_and_cancelled(client: Any, act: Any) -> None:
    job = act(policy="plan", episodes=50).json()["job"]
    busy = act()
    assert (busy.status_code, busy.json()["error"]["code"]) == (409, "busy")
    assert "hopper is acting already" in busy.json()["error"]["message"]
    assert client.post(f"/api/act/{job}/cancel", json={}).status_code == 200
    assert ended(client, job)["state"] == "cancelled"
    assert events(client, job)[-1][2]["state"] == "cancelled"
    assert act(episodes=1).status_code == 202


def test_what_cannot_act_says_why(client: Any, act: Any) -> None:
    nowhere = act(run=1)
    assert (nowhere.status_code, nowhere.json()["error"]["code"]) == (422, "data")
    assert "needs one modality of role state" in nowhere.json()["error"]["message"]
    senseless = act(target="much")
    assert senseless.status_code == 422
    assert "cannot understand the target 'much'" in senseless.json()["error"]["message"]
    assert act(policy="fly").status_code == 400
    assert act(frames="yes").status_code == 400
    assert client.get("/api/act/999").status_code == 404
    beyond = act(target=99_999.0, episodes=1).json()
    assert "episodes of the data returned" in beyond["notices"][0]


def acting_of(serving: Serving) -> dict[str, Any]:
    studio = httpx.get(f"{serving.address}api/studio", trust_env=False).json()
    return dict(studio["runs"][-1]["acting"])


@pytest.mark.usefixtures("_find_environments")
def test_an_environment_of_one_s_own_is_named_by_the_user(
    module_run: Path, hopper_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No module is imported on the word of a data file, and the page says how to name it."""
    env_id = "point_mass_environment:PointMass-v0"
    monkeypatch.delitem(sys.modules, "point_mass_environment", raising=False)
    with Serving([module_run], port=0) as serving:
        told = acting_of(serving)
    assert told["environment"] == env_id
    assert told["problem"].endswith(f"mtm studio {module_run} --env {env_id}")
    assert "point_mass_environment" not in sys.modules

    with (
        Serving([hopper_run, module_run], env_id=env_id, port=0) as serving,
        httpx.Client(base_url=serving.address, timeout=60, trust_env=False) as client,
    ):
        told = acting_of(serving)
        assert (told["environment"], told["problem"]) == (env_id, None)
        runs = client.get("/api/studio").json()["runs"]
        assert runs[0]["acting"]["environment"] == "Hopper-v5"  # it keeps to its own
        job = client.post("/api/act", json={**ORDER, "run": 1, "policy": "bc"}).json()
        ended(client, job["job"])
        found = events(client, job["job"])
    assert found[-1][2]["state"] == "done"
    policy = mtm.policies.behavior_cloning(mtm.load_run(module_run))
    expected = mtm.rollout({"bc": policy}, env_id, episodes=2, seed=3)["bc"]
    arrived = {e["seed"]: e["return"] for _, kind, e in found if kind == "episode"}
    assert [arrived[s] for s in (3, 4)] == pytest.approx(expected.returns.tolist())


def test_a_named_environment_must_be_that_of_a_run(hopper_run: Path) -> None:
    with pytest.raises(EnvironmentMismatchError, match="not on Walker2d-v5. Use Hopper-v5"):
        Serving([hopper_run], env_id="Walker2d-v5", port=0)


@pytest.mark.parametrize("place", [{"run": 0, "data": 0}, {"run": 1, "data": 1}])
def test_episodes_are_ranked_in_the_background(
    client: Any, place: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mtm.evaluation.studio.quality.SAMPLED_STEPS", 2000)
    assert client.get("/api/quality", params=place).json()["state"] == "none"
    assert client.post("/api/quality", json=place).status_code == 202
    while (found := client.get("/api/quality", params=place).json())["state"] == "running":
        time.sleep(0.1)
    assert (found["state"], found["progress"], found["error"]) == ("done", 1.0, None)
    assert 0 < found["steps"] <= found["of_steps"]
    scores = [e["surprise"] for e in found["episodes"]]
    assert scores == sorted(scores, reverse=True)
    worst = found["episodes"][0]
    assert max(worst["modalities"].values()) == worst["surprise"]
    assert worst["side"] in ("held-out", "training")
    step = worst["worst"][0]
    near = {**place, "episode": worst["episode"], "start": max(step["step"] - 2, 0), "length": 5}
    told = client.get("/api/surprise", params=near).json()
    assert len(told["surprise"][step["modality"]]) == told["length"]
    if place["run"] == 1:
        lost = {**place, "episode": 0, "start": 9, "length": 6}
        marks = client.get("/api/surprise", params=lost).json()["surprise"]["throttle"]
        assert [mark is None for mark in marks] == [False, True, True, True, True, False]
        assert np.isfinite([m for m in marks if m is not None]).all()
