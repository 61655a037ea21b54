"""Evaluation, prediction, rollout and report from the command line, on real Hopper."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from mtm import checkpoint, datasets
from mtm.cli import main
from mtm.errors import DataError
from mtm.evaluate import held_out_episodes, prediction_error
from mtm.run import load_run

pytest.importorskip("mujoco", reason="the extra `sim` is not installed")
pytest.importorskip("matplotlib", reason="the extra `report` is not installed")


@pytest.fixture(scope="module")
def hopper(tmp_path_factory) -> Path:
    """A run on the bundled recording, trained for a second."""
    out = tmp_path_factory.mktemp("hopper") / "run"
    assert main(["train", "--data", "builtin:hopper", "--preset", "tiny", "--out", str(out)]) == 0
    return out


@pytest.fixture(scope="module")
def result(hopper: Path) -> dict:
    file = hopper.parent / "scores.json"
    assert main(["eval", str(hopper), "--episodes", "2", "--json", str(file)]) == 0
    return json.loads(file.read_text())


ROLL = {"target", "episodes", "return", "score", "length", "success", "failures"}


def test_the_json_has_its_stable_form(hopper: Path, result: dict) -> None:
    assert {"run", "step", "data", "tasks"} <= set(result)
    tasks = result["tasks"]
    assert set(tasks) == {"fd", "id", "bc", "rcbc", "two_stage"}
    assert set(tasks["fd"]) == {"normalized", "raw", "copy_last"}
    assert set(tasks["id"]) == {"normalized", "raw"}
    assert set(tasks["rcbc"]) == {"auto", "fixed", "sweep", "best"}
    assert list(tasks["rcbc"]["sweep"]) == ["0.6", "0.7", "0.8", "0.9", "1.0", "1.1"]
    for roll in (tasks["bc"], *tasks["rcbc"]["sweep"].values(), tasks["two_stage"]["auto"]):
        assert set(roll) == ROLL
        assert roll["episodes"] == 2
        assert set(roll["return"]) == set(roll["score"]) == {"mean", "std"}
    assert tasks["bc"]["target"] is None
    assert tasks["bc"]["success"] == {"mean": None}
    assert tasks["rcbc"]["fixed"] == tasks["rcbc"]["sweep"]["1.0"]
    best = max(r["return"]["mean"] for r in tasks["rcbc"]["sweep"].values())
    assert tasks["rcbc"]["best"]["return"]["mean"] == best
    assert json.loads((hopper / "evaluation.json").read_text()) == result


def test_numbers_repeat(hopper: Path, result: dict) -> None:
    file = hopper.parent / "again.json"
    words = ["eval", str(hopper), "--episodes", "2", "--tasks", "bc", "fd", "--json", str(file)]
    assert main(words) == 0
    again = json.loads(file.read_text())["tasks"]
    assert set(again) == {"bc", "fd"}
    assert again["fd"] == result["tasks"]["fd"]
    assert again["bc"]["return"]["mean"] == pytest.approx(result["tasks"]["bc"]["return"]["mean"])
    kept = json.loads((hopper / "evaluation.json").read_text())["tasks"]
    assert kept["rcbc"] == result["tasks"]["rcbc"]  # not asked for again, so still there


def test_errors_are_those_of_validation(hopper: Path) -> None:
    run = load_run(hopper)
    held_out = held_out_episodes(run)
    assert held_out.num_episodes == round(0.05 * 471)
    validated = checkpoint.load(hopper / "checkpoints").state.validation
    measured = prediction_error(run, held_out, "fd")
    assert measured["normalized"] == pytest.approx(validated["fd"], rel=0.3)  # other segments
    assert measured["copy_last"] == pytest.approx(validated["fd_copy_last"], rel=0.3)


def test_evaluation_without_an_environment(tmp_path: Path, capsys) -> None:
    out = str(tmp_path / "run")
    main(["train", "--data", "builtin:point-mass", "--preset", "tiny", "--out", out])
    assert main(["eval", out]) == 0
    printed = capsys.readouterr().out
    assert "the data name none" in printed
    result = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    assert result["tasks"]["bc"] is None
    assert result["tasks"]["fd"]["normalized"] > 0


def test_evaluation_without_the_data(tmp_path: Path, capsys, point_mass) -> None:
    file = tmp_path / "data.npz"
    np.savez(file, **point_mass.arrays, offsets=[0, *point_mass.ends])
    out = str(tmp_path / "run")
    main(["train", "--data", str(file), "--preset", "tiny", "--out", out, "--steps", "2"])
    file.unlink()
    assert main(["eval", out]) == 0
    assert "no prediction errors" in capsys.readouterr().out
    assert main(["eval", out, "--data", "builtin:point-mass", "--tasks", "fd"]) == 0
    kept = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    assert (kept["data"], list(kept["tasks"])) == ("builtin:point-mass", ["fd"])  # nothing mixed in
    np.savez(
        file, **{k: v + 1 for k, v in point_mass.arrays.items()}, offsets=[0, *point_mass.ends]
    )
    with pytest.raises(DataError, match="has changed since the run was trained"):
        held_out_episodes(load_run(out))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--tasks", "rbcb"], "unknown task"),
        (["--episodes", "0"], "episodes must be at least 1"),
        (["--env", "Hoper-v5"], "Hopper-v5"),
        (["--env", "Walker2d-v5"], "recorded on Hopper-v5, not on Walker2d-v5"),
        (["--json", "no/such/folder/x.json"], "there is no folder"),
    ],
)
def test_bad_requests(hopper: Path, words: list, message: str, capsys) -> None:
    assert main(["eval", str(hopper), *words]) == 2
    assert message in capsys.readouterr().err


def test_rollout_prints_every_episode(hopper: Path, capsys) -> None:
    words = ["rollout", str(hopper), "--episodes", "3", "--seed", "5", "--target", "score:50"]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert "Hopper-v5" in printed
    assert all(f" {seed} " in printed for seed in (5, 6, 7))


def test_video_is_recorded_or_its_absence_explained(hopper: Path, tmp_path: Path, capsys) -> None:
    video = tmp_path / "hop.gif"
    words = ["rollout", str(hopper), "--episodes", "1", "--policy", "bc", "--video", str(video)]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert video.exists() or "apt-get install libegl1" in printed
    assert main([*words[:-1], "hop.mp4"]) == 2


def test_predict_fills_a_file_with_gaps(hopper: Path, tmp_path: Path, capsys) -> None:
    data = datasets.load("builtin:hopper")
    longest = int(data.lengths.argmax())
    episode = {k: v[:40].copy() for k, v in data.episode(longest).items()}
    lost = np.arange(40) % 3 == 1
    episode["states"][lost] = np.nan
    source, filled = tmp_path / "gaps.npz", tmp_path / "filled.npz"
    np.savez(source, states=episode["states"], actions=episode["actions"], offsets=[0, 15, 40])
    words = ["predict", str(hopper), "--input", str(source), "--given", "states,actions"]
    assert main([*words, "--want", "states,returns", "--output", str(filled)]) == 0
    out = datasets.load(str(filled))
    assert out.names == ("states", "returns")
    assert out.lengths.tolist() == [15, 25]
    assert np.array_equal(out.arrays["states"][~lost], episode["states"][~lost])
    for want, output, message in [
        ("state", filled, "Did you mean 'states'"),
        ("states", tmp_path / "x.csv", "must end in .npz"),
    ]:
        assert main([*words, "--want", want, "--output", str(output)]) == 2
        assert message in capsys.readouterr().err


def test_the_report_is_one_self_contained_page(hopper: Path, capsys) -> None:
    assert main(["eval", str(hopper), "--episodes", "1", "--tasks", "fd", "bc", "rcbc"]) == 0
    assert main(["report", str(hopper)]) == 0
    page = Path(capsys.readouterr().out.strip().splitlines()[-1])
    text = page.read_text()
    pictures = {p.stem for p in page.parent.glob("*.png")}
    assert {
        "training",
        "fd",
        "id",
        "bc",
        "rcbc",
        "goal",
        "past",
        "open-loop",
        "returns",
    } <= pictures
    assert text.count("data:image/png;base64,") == len(pictures)
    assert "http" not in text
    assert "best of sweep" in text


def test_demo_shows_seven_uses(tmp_path: Path, capsys) -> None:
    out = tmp_path / "demo"
    assert main(["demo", "--preset", "tiny", "--episodes", "1", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    for use in (
        "forward dynamics",
        "inverse dynamics",
        "behaviour cloning",
        "return-conditioned",
        "reaching a goal",
        "filling gaps",
        "representation",
    ):
        assert use in printed
    assert (out / "report" / "report.html").exists()
