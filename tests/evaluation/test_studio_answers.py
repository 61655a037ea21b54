"""The studio answers what `mtm.predict` does, over HTTP, and measures it beside baselines."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("starlette", reason="the extra `studio` is not installed")
httpx = pytest.importorskip("httpx", reason="the extra `dev` is not installed")

import mtm
from mtm.evaluation.studio.faults import OvertakenError, StudioError
from mtm.evaluation.studio.turns import Turns
from mtm.inference.certainty import ask_how_sure
from mtm.inference.run_data import episode_shown_to, own_data

# As the studio computes: with another number of threads, sums are rounded otherwise.
pytestmark = pytest.mark.usefixtures("_one_thread")

HOPPER, GEARS = {"run": 0, "data": 0}, {"run": 1, "data": 1}


def window_of(place: dict[str, int], episode: int, start: int, length: int) -> dict[str, int]:
    return {**place, "episode": episode, "start": start, "length": length}


def masked(client: Any, place: dict[str, int], mask: str, **more: Any) -> dict[str, Any]:
    answered = client.post("/api/mask", json={**place, "mask": mask, **more})
    assert answered.status_code == 200, answered.text
    return dict(answered.json())


def asked(client: Any, place: dict[str, int], visible: dict[str, str], **more: Any) -> Any:
    answered = client.post("/api/answer", json={**place, "visible": visible, **more})
    assert answered.status_code == 200, answered.text
    return answered.json()


def reproduced(answer: dict[str, Any]) -> dict[str, np.ndarray]:
    """What the program that the page shows gives."""
    names: dict[str, Any] = {}
    exec(answer["python"], names)
    found: dict[str, np.ndarray] = names["answer"]
    return found


def predictions(answer: dict[str, Any]) -> dict[str, np.ndarray]:
    return {name: np.array(m["prediction"]) for name, m in answer["modalities"].items()}


def assert_same(answer: dict[str, Any], expected: dict[str, np.ndarray]) -> None:
    found = predictions(answer)
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name].reshape(values.shape), values)


MASKS = ["fd", "id", "bc", "rcbc", "goal", "waypoints", "past", "plan", "training"]


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("length", [4, 11])
def test_an_answer_is_that_of_predict(
    client: Any, hopper_run: Path, mask: str, length: int
) -> None:
    place = window_of(HOPPER, 60, 7, length)
    visible = masked(client, place, mask)["visible"]
    run = mtm.load_run(hopper_run)
    episode = episode_shown_to(run, own_data(run), 60).episode(0)
    given = {}
    for name, row in visible.items():
        if "1" in row:
            given[name] = episode[name][7 : 7 + length].copy()
            given[name][[mark == "0" for mark in row]] = np.nan
    answer = asked(client, place, visible)
    assert_same(answer, mtm.predict(run, given, list(run.modalities.names)))
    assert_same(answer, reproduced(answer))


@pytest.mark.parametrize("mask", ["fd", "waypoints", "training"])
def test_names_classes_and_gaps_of_ones_own(client: Any, mask: str) -> None:
    place = window_of(GEARS, 0, 2, 14)
    shown = masked(client, place, mask, seed=3)["visible"]
    answer = asked(client, place, shown)
    assert_same(answer, reproduced(answer))
    gear = answer["modalities"]["gear"]
    for step, (visible, shares) in enumerate(
        zip(shown["gear"], gear["probabilities"], strict=True)
    ):
        assert (shares is None) == (visible == "1")
        if shares is not None:
            assert sum(shares) == pytest.approx(1, abs=1e-5)
            assert int(np.argmax(shares)) == gear["prediction"][step]
    assert set(shown) == {"motion", "gear", "throttle"}
    assert gear["present"][1] == "0"
    assert shown["gear"][1] == "0"  # absent cells cannot be shown
    assert answer["modalities"]["throttle"]["present"][8:12] == "0000"


def test_what_if(client: Any) -> None:
    place = window_of(HOPPER, 60, 7, 4)
    visible = {"states": "1000", "returns": "1000"}
    plain = asked(client, place, visible)
    edits = [
        {"modality": "returns", "step": 0, "feature": 0, "value": 3.1},
        {"modality": "states", "step": 0, "feature": 2, "value": -0.25},
    ]
    changed = asked(client, place, visible, edits=edits)
    assert changed["edited"]
    assert not plain["edited"]
    assert predictions(changed)["returns"][0] == pytest.approx(3.1)
    assert predictions(changed)["states"][0, 2] == -0.25
    assert (predictions(changed)["actions"] != predictions(plain)["actions"]).any()
    assert_same(changed, reproduced(changed))
    class_changed = asked(
        client,
        window_of(GEARS, 0, 5, 4),
        {"gear": "1000"},
        edits=[{"modality": "gear", "step": 0, "feature": 0, "value": 2}],
    )
    assert predictions(class_changed)["gear"][0] == 2
    assert_same(class_changed, reproduced(class_changed))


def test_an_absent_value_can_be_made_up_but_not_shown(client: Any) -> None:
    place = window_of(GEARS, 0, 3, 4)  # gear is absent at step 3
    body = {**place, "visible": {"gear": "1000", "motion": "1100"}}
    refused = client.post("/api/answer", json=body)
    assert refused.status_code == 400
    assert "gear is absent at step 3" in refused.json()["error"]["message"]
    edit = {"modality": "gear", "step": 0, "feature": 0, "value": 1}
    answer = asked(client, place, body["visible"], edits=[edit])
    assert answer["modalities"]["gear"]["prediction"][0] == 1
    assert_same(answer, reproduced(answer))


def test_errors_and_baselines_by_hand(client: Any, hopper_run: Path) -> None:
    place = window_of(HOPPER, 60, 7, 6)
    answer = asked(client, place, {"states": "010010"})
    truth = np.array(client.get("/api/window", params=place).json()["values"]["states"])
    std = mtm.load_run(hopper_run).normalizer.statistics["states"].std.astype(float)
    mean = mtm.load_run(hopper_run).normalizer.statistics["states"].mean.astype(float)
    hidden = [0, 2, 3, 5]
    copied = truth[[1, 1, 1, 4]]
    line = np.stack([truth[1], truth[1] * 2 / 3 + truth[4] / 3, truth[1] / 3 + truth[4] * 2 / 3])
    line = np.concatenate([line, truth[4:5]])
    guesses = {"copy": copied, "interpolation": line, "mean": np.tile(mean, (4, 1))}
    error = answer["modalities"]["states"]["error"]
    assert error["tokens"] == 4
    found = predictions(answer)["states"][hidden]
    assert error["raw"] == pytest.approx(((found - truth[hidden]) ** 2).mean())
    assert error["normalized"] == pytest.approx((((found - truth[hidden]) / std) ** 2).mean())
    for name, guess in guesses.items():
        off = guess - truth[hidden]
        assert error[name]["raw"] == pytest.approx((off**2).mean(), rel=1e-4)
        assert error[name]["normalized"] == pytest.approx(((off / std) ** 2).mean(), rel=1e-4)
    actions = answer["modalities"]["actions"]["error"]
    assert actions["copy"] is actions["interpolation"] is None  # nothing to copy
    assert actions["mean"]["normalized"] > 0


def test_the_expected_error_is_the_models(client: Any, hopper_run: Path) -> None:
    """Of one segment, asked in one pass."""
    place = window_of(HOPPER, 60, 7, 4)
    answer = asked(client, place, {"states": "1110", "actions": "1110"})
    run = mtm.load_run(hopper_run)
    episode = episode_shown_to(run, own_data(run), 60).episode(0)
    window = {name: values[None, 7:11] for name, values in episode.items()}
    visible = np.zeros((1, 4, 3), bool)
    visible[0, :3, [0, 2]] = True
    wanted = np.zeros_like(visible)
    wanted[0, 3, 0] = True
    sure = ask_how_sure(run, window, visible, ["states"], wanted)
    states = answer["modalities"]["states"]
    np.testing.assert_allclose(states["deviation"][3], sure.deviations["states"][0, 3], rtol=1e-5)
    assert states["deviation"][:3] == [None] * 3
    assert min(states["deviation"][3]) > 0


def test_a_mask_says_what_it_means(client: Any) -> None:
    place = window_of(HOPPER, 60, 7, 6)
    answer = masked(client, place, "fd", now=2)
    assert answer["visible"] == {"states": "111000", "returns": "000000", "actions": "111000"}
    assert answer["wanted"]["states"] == "000100"
    assert (answer["now"], answer["moments"]) == (2, [0, 4])
    assert answer["summary"] == "states and actions until now -> the next state"
    assert "sees 4 steps at once" in answer["note"]
    assert masked(client, window_of(HOPPER, 60, 7, 4), "fd")["note"] is None
    draws = [masked(client, place, "training", seed=seed)["visible"] for seed in (1, 1, 2, 3)]
    assert draws[0] == draws[1]
    assert draws[0] != draws[2] or draws[0] != draws[3]


def test_a_window_is_cut_at_the_end(client: Any) -> None:
    length = client.get("/api/timeline", params={**HOPPER, "episode": 60}).json()["length"]
    place = window_of(HOPPER, 60, length - 3, 8)
    assert client.get("/api/window", params=place).json()["length"] == 3
    cut = masked(client, place, "id")
    assert cut["length"] == 3
    answer = asked(client, {**place, "length": 3}, cut["visible"])
    assert_same(answer, reproduced(answer))


FAULTS: list[tuple[dict[str, Any], int, str]] = [
    ({"run": 9}, 404, "there is no run 9"),
    ({"run": -1}, 400, "run must be a whole number"),
    ({"run": True}, 400, "run must be a whole number"),
    ({"run": "../hopper"}, 400, "run must be a whole number"),
    ({"data": 7}, 404, "there is no data set 7"),
    ({"episode": 10**9}, 404, "there is no episode"),
    ({"episode": 10**30}, 400, "episode must be"),
    ({"start": 10**6}, 400, "the episode has the steps"),
    ({"length": 257}, 400, "length must be a whole number from 1 to 256"),
    ({"length": 4.5}, 400, "length must be"),
    ({"visible": {"states": "111"}}, 400, "must be 4 characters"),
    ({"visible": {"states": "11x1"}}, 400, "must be 4 characters"),
    ({"visible": {"wings": "1111"}}, 400, "unknown modality 'wings'"),
    ({"visible": []}, 400, "visible must be an object"),
    ({"visible": {}}, 422, "show at least one token"),
    ({"edits": 3}, 400, "edits must be a list"),
    ({"edits": [{"modality": "states", "step": 3, "value": 1}]}, 400, "hidden; show it first"),
    ({"edits": [{"modality": "states", "step": 9, "value": 1}]}, 400, "the window has 4 steps"),
    ({"edits": [{"modality": "states", "step": 0, "value": 1e39}]}, 400, "must be finite"),
    ({"edits": [{"modality": "states", "step": 0, "value": "1"}]}, 400, "must be a number"),
    ({"edits": [{"modality": ["x"], "step": 0, "value": 1}]}, 400, "unknown modality"),
    ({"path": "/etc/passwd"}, 400, "unknown field 'path'"),
    ({"client": "x" * 65}, 400, "at most 64 characters"),
]


@pytest.mark.parametrize(("change", "status", "message"), FAULTS)
def test_faults_are_told(client: Any, change: dict[str, Any], status: int, message: str) -> None:
    body = {**window_of(HOPPER, 60, 7, 4), "visible": {"states": "1110"}, **change}
    answered = client.post("/api/answer", json=body)
    assert answered.status_code == status
    assert message in answered.json()["error"]["message"]


@pytest.mark.parametrize("body", [b"", b"[1]", b"{", b'{"run": NaN}', b"[" * 100_000, b"\xff"])
def test_what_is_no_json_object_is_told(client: Any, body: bytes) -> None:
    answered = client.post(
        "/api/answer", content=body, headers={"Content-Type": "application/json"}
    )
    assert answered.status_code == 400
    assert answered.json()["error"]["code"] == "bad-request"


def test_masks_that_make_no_sense_are_told(client: Any) -> None:
    place = window_of(GEARS, 0, 0, 4)
    refused = client.post("/api/mask", json={**place, "mask": "rcbc"})
    assert refused.status_code == 422
    assert "no modality of role return" in refused.json()["error"]["message"]
    unknown = client.post("/api/mask", json={**place, "mask": "<b>"})
    assert unknown.status_code == 400
    assert "allowed are training, bc" in unknown.json()["error"]["message"]
    short = client.post("/api/mask", json={**place, "length": 1, "mask": "fd"})
    assert short.status_code == 422
    assert "at least 2 steps" in short.json()["error"]["message"]


def test_an_older_request_is_dropped(client: Any) -> None:
    body = {**window_of(HOPPER, 60, 7, 4), "visible": {"states": "1110"}, "client": "pane"}
    assert client.post("/api/answer", json={**body, "sequence": 5}).json()["sequence"] == 5
    late = client.post("/api/answer", json={**body, "sequence": 4})
    assert (late.status_code, late.json()["error"]["code"]) == (409, "overtaken")
    assert client.post("/api/answer", json={**body, "sequence": 6}).status_code == 200
    other = {**body, "client": "other pane", "sequence": 1}
    assert client.post("/api/answer", json=other).status_code == 200


def test_overtaken_work_is_skipped_and_stopped() -> None:
    turns, begun, done = Turns(), threading.Event(), []

    def slow(check: Any) -> None:
        begun.set()
        for _ in range(500):
            time.sleep(0.01)
            check()

    async def click() -> list[Any]:
        first = asyncio.create_task(turns.take(slow, "page", 1))
        await asyncio.to_thread(begun.wait)
        second = asyncio.create_task(turns.take(lambda check: done.append(2), "page", 2))
        await asyncio.sleep(0)
        third = asyncio.create_task(turns.take(lambda check: done.append(3), "page", 3))
        return await asyncio.gather(first, second, third, return_exceptions=True)

    results = asyncio.run(click())
    turns.close()
    assert isinstance(results[0], OvertakenError)
    assert isinstance(results[1], OvertakenError)
    assert done == [3]


def test_an_answer_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mtm.evaluation.studio.turns.SECONDS", 0.0)
    turns = Turns()
    with pytest.raises(StudioError, match="take a shorter window"):
        asyncio.run(turns.take(lambda check: time.sleep(0.01) or check()))
    turns.close()
