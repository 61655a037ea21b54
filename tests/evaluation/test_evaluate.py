"""Evaluation, prediction, rollout and report from the command line, on real Hopper."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mtm.cli import main
from mtm.core.config import ReturnsConfig
from mtm.core.errors import ConfigError, DataError
from mtm.data import loading
from mtm.data.preparation import prepare
from mtm.data.returns import add_returns
from mtm.data.trajectories import Metadata, TrajectoryDataset
from mtm.evaluation.demo import mean_of_quantiles
from mtm.evaluation.evaluate import (
    SWEEP,
    EvalConfig,
    assemble,
    evaluate,
    find_environment,
    prediction_error,
)
from mtm.inference.run_data import reported_episodes
from mtm.runs import checkpoint
from mtm.runs.run import Run, load_run
from mtm.training.train import train

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
    header = {
        *("run", "step", "weights", "data", "part", "environment", "episodes", "seed"),
        *("acting", "tasks"),
    }
    assert set(result) == header
    assert result["part"] == "test"
    assert (result["environment"], result["episodes"]) == ("Hopper-v5", 2)
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


@pytest.fixture
def point_mass_file(point_mass: TrajectoryDataset, tmp_path: Path) -> Path:
    file = tmp_path / "data.npz"
    np.savez(file, **point_mass.arrays, offsets=[0, *point_mass.ends])
    return file


def test_numbers_of_the_same_weights_are_kept_together(
    point_mass_file: Path, tmp_path: Path
) -> None:
    out, kept = tmp_path / "run", tmp_path / "run" / "evaluation.json"
    words = ["--preset", "tiny", "--steps", "2", "--out", str(out)]

    def measured(*more: str) -> dict:
        assert main(["eval", str(out), *more]) == 0
        return json.loads(kept.read_text())

    assert main(["train", "--data", str(point_mass_file), *words]) == 0
    first = measured("--tasks", "fd")
    digests = json.loads((out / "checkpoints" / "step-000000002" / "state.json").read_text())
    assert first["weights"] == digests["sha256"]["model.safetensors"]
    both = measured("--tasks", "id")["tasks"]
    assert set(both) == {"fd", "id"}
    hidden = point_mass_file.rename(tmp_path / "hidden.npz")
    assert measured("--tasks", "id", "bc")["tasks"] == both | {"bc": None}  # nothing was lost
    hidden.rename(point_mass_file)
    assert set(measured("--tasks", "fd", "--episodes", "3")["tasks"]) == {"fd"}
    assert set(measured("--tasks", "fd", "--seed", "3")["tasks"]) == {"fd"}
    before = kept.read_text()
    assert set(measured("--tasks", "id", "--seed", "3")["tasks"]) == {"fd", "id"}
    again = ["train", "--data", str(point_mass_file), *words, "--seed", "5", "--overwrite"]
    assert main(again) == 0
    kept.write_text(before)
    assert set(measured("--tasks", "id", "--seed", "3")["tasks"]) == {"id"}  # other weights
    kept.write_text(json.dumps({"step": 2, "data": first["data"], "seed": 3, "tasks": both}))
    assert set(measured("--tasks", "fd", "--seed", "3")["tasks"]) == {"fd"}  # of an older version


def test_the_sweep_may_have_fewer_episodes(hopper: Path) -> None:
    counted: list[int] = []

    def progress(done: int, total: int) -> None:
        counted.append(total)

    config = EvalConfig(("rcbc",), episodes=3, sweep_episodes=1, seed=5)
    found = evaluate(load_run(hopper), config, say=lambda text: None, progress=progress)
    rcbc = found["tasks"]["rcbc"]
    assert rcbc["auto"]["episodes"] == rcbc["sweep"]["1.0"]["episodes"] == 3
    assert {rcbc["sweep"][str(f)]["episodes"] for f in SWEEP if f != 1.0} == {1}
    assert set(counted) == {3, len(SWEEP) - 1}
    with pytest.raises(ConfigError, match="sweep_episodes must be at least 1, got 0"):
        EvalConfig(sweep_episodes=0)


def test_acting_as_published_stands_beside_our_own(hopper: Path, result: dict, capsys) -> None:
    ours = (hopper / "evaluation.json").read_bytes()
    words = ["eval", str(hopper), "--acting", "paper", "--episodes", "1"]
    assert main([*words, "--tasks", "bc", "rcbc", "two_stage"]) == 0
    assert (hopper / "evaluation.json").read_bytes() == ours
    found = json.loads((hopper / "evaluation-paper.json").read_text())
    assert (result["acting"], found["acting"]) == ("default", "paper")
    assert set(found["tasks"]["rcbc"]["sweep"]) == {str(f) for f in SWEEP}
    known = load_run(hopper).normalizer.statistics["returns"]
    asked = found["tasks"]["rcbc"]["auto"]["target"]
    assert asked == pytest.approx(1000 * float(known.high))  # of any step, not of the first ones
    assert found["tasks"]["two_stage"]["auto"]["target"] == asked
    assert found["tasks"]["bc"]["target"] is None
    assert main(["rollout", str(hopper), "--acting", "paper", "--episodes", "1"]) == 0
    assert main([*words, "--tasks", "plan"]) != 0
    assert "does not plan" in capsys.readouterr().err
    assert main(["rollout", str(hopper), "--acting", "paper", "--history", "2"]) != 0
    assert "leave out --history" in capsys.readouterr().err


def test_the_best_of_a_sweep_may_have_earned_nothing() -> None:
    means = dict(zip(SWEEP, [-2.0, None, 0.0, -1.0, None, -3.0], strict=True))
    rolls = {f"rcbc/{f}": {"return": {"mean": mean}} for f, mean in means.items()}
    best = assemble("rcbc", rolls | {"rcbc/auto": rolls.pop("rcbc/1.0")})["best"]
    assert best["return"]["mean"] == 0.0


def test_errors_are_near_those_of_validation(hopper: Path) -> None:
    run = load_run(hopper)
    held_out = reported_episodes(run)
    assert held_out.num_episodes == round(0.05 * 471) // 2  # the other half is for validation
    validated = checkpoint.load(hopper / "checkpoints").state.validation
    measured = prediction_error(run, held_out, "fd")
    assert measured["normalized"] == pytest.approx(validated["fd"], rel=0.3)  # other episodes
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


def test_no_module_is_imported_on_the_word_of_the_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "untrusted_module.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    metadata, said = Metadata(env_id="untrusted_module:Thing-v0"), []
    assert find_environment(metadata, EvalConfig(), said.append) is None
    assert "--env untrusted_module:Thing-v0" in said[0]
    assert "untrusted_module" not in sys.modules
    typed = EvalConfig(env_id="untrusted_module:Thing-v0")
    assert find_environment(metadata, typed, said.append) == typed.env_id


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: {**a, "states": a["states"][:, :3]}, r"'states' has shape .*, 3\); .* \(4,\)"),
        (lambda a: {"states": a["states"]}, r"data have states; .* needs returns, actions"),
        (lambda a: {k: a[k] for k in ("states", "actions")}, r"needs returns\. .* of rewards"),
        (lambda a: {"waves": a["states"]}, "the model knows states, returns, actions"),
    ],
)
def test_other_data_must_fit(
    change, message: str, point_mass: TrajectoryDataset, point_mass_run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "other.npz"
    np.savez(file, **change(point_mass.arrays), offsets=[0, *point_mass.ends])
    with pytest.raises(DataError, match=message):
        reported_episodes(point_mass_run, str(file))


def test_other_data_may_have_more(
    point_mass: TrajectoryDataset, point_mass_run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "other.npz"
    more = {"camera": point_mass.arrays["states"][:, :1]}
    np.savez(file, **point_mass.arrays, **more, offsets=[0, *point_mass.ends])
    held_out = reported_episodes(point_mass_run, str(file))
    assert held_out.names == ("states", "returns", "actions")
    assert prediction_error(point_mass_run, held_out, "fd")["normalized"] > 0


@pytest.fixture(scope="module")
def point_mass_run(point_mass: TrajectoryDataset, tmp_path_factory) -> Run:
    return _trained(point_mass, tmp_path_factory.mktemp("point-mass") / "run")


@pytest.fixture(scope="module")
def chain(tmp_path_factory) -> Run:
    """States and actions are classes."""
    steps = np.arange(800)
    arrays = {"states": steps % 5, "actions": steps % 3, "rewards": steps % 2.0}
    file = tmp_path_factory.mktemp("chain") / "data.npz"
    np.savez(file, **arrays, offsets=np.arange(0, 801, 40))
    return _trained(str(file), file.parent / "run")


def _trained(data: str | TrajectoryDataset, out: Path) -> Run:
    from mtm.core.config import preset

    return train(data, replace(preset("tiny"), steps=2), out, silent=True)


def test_classes_have_no_normalised_error(chain: Run, tmp_path: Path, capsys) -> None:
    file = tmp_path / "scores.json"
    assert main(["eval", str(chain.path), "--tasks", "fd", "id", "--json", str(file)]) == 0
    tasks = json.loads(file.read_text(), parse_constant=pytest.fail)["tasks"]
    assert tasks["id"]["normalized"] is None
    assert tasks["fd"]["copy_last"] is None
    assert 0 <= tasks["fd"]["raw"] <= 1
    assert "inverse dynamics" in capsys.readouterr().out


def test_data_are_named_by_a_path(point_mass_file: Path, tmp_path: Path) -> None:
    run = _trained(str(point_mass_file), tmp_path / "run")
    names = (point_mass_file, str(point_mass_file))
    found = [evaluate(run, EvalConfig(("fd",), data=name)) for name in names]
    assert found[0] == found[1]
    json.dumps(found[0])


def test_evaluation_without_the_data(tmp_path: Path, capsys, point_mass, point_mass_file) -> None:
    file = point_mass_file
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
    with pytest.raises(DataError, match="is not what the run was trained on"):
        reported_episodes(load_run(out))


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


def test_planning_tells_its_speed_and_is_measured_on_request(
    hopper: Path, tmp_path: Path, capsys
) -> None:
    few = ["--plan.candidates", "4", "--plan.per-pass", "None"]
    words = ["rollout", str(hopper), "--policy", "plan", *few, "--episodes", "2"]
    assert main(words) == 0
    printed = capsys.readouterr().out
    for batch in (1, 64):
        assert re.search(rf"[\d,]+ actions/s at batch {batch}$", printed, re.MULTILINE)
    assert all(f" {seed} " in printed for seed in (0, 1))
    file = tmp_path / "scores.json"
    words = ["eval", str(hopper), "--tasks", "plan", "--episodes", "1", "--json", str(file)]
    assert main(words) == 0
    assert "planning" in capsys.readouterr().out
    (planned,) = json.loads(file.read_text())["tasks"].values()
    assert set(planned) == ROLL
    assert planned["target"] is not None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--policy", "bc", "--plan.candidates", "9"], "--plan and --plain are for --policy plan"),
        (["--policy", "rcbc", "--plain", "bc"], "--plan and --plain are for --policy plan"),
        (["--policy", "plan", "--plain", "bc", "--target", "9"], "cloning asks for no return"),
        (["--policy", "plan", "--future", "2"], "--future is for --policy two_stage"),
        (["--policy", "plan", "--plan.temperature", "0"], "plan.temperature must be above 0"),
        (["--policy", "plan", "--plan.no-tail"], "nothing to score candidates by"),
    ],
)
def test_plans_that_make_no_sense(hopper: Path, words: list, message: str, capsys) -> None:
    assert main(["rollout", str(hopper), *words]) == 2
    assert message in capsys.readouterr().err


def test_a_video_is_recorded(hopper: Path, tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    opened = subprocess.run(
        [sys.executable, "-c", "import mujoco; mujoco.GLContext(16, 16).make_current()"],
        env=os.environ | {"MUJOCO_GL": "egl"},
        capture_output=True,
        text=True,
    )
    if opened.returncode:
        pytest.skip(f"there is no OpenGL back end here: {opened.stderr.strip()[-200:]}")
    video = tmp_path / "hop.gif"
    words = ["rollout", str(hopper), "--episodes", "2", "--policy", "bc", "--video", str(video)]
    assert main(words) == 0
    printed = capsys.readouterr().out
    from PIL import Image

    steps = int(re.search(r"^ *0 .* (\d+) +-", printed, re.MULTILINE)[1])
    with Image.open(video) as film:
        assert f"{video}: {film.n_frames} frames" in printed
        assert (film.n_frames, film.size) == (1 + steps // 2, (240, 240))
        assert len(set(film.convert("RGB").getdata())) > 100  # something is to be seen


def test_the_absence_of_a_video_is_explained(
    hopper: Path, tmp_path: Path, capsys, monkeypatch
) -> None:
    monkeypatch.setenv("MUJOCO_GL", "no-such-back-end")
    video = tmp_path / "hop.gif"
    words = ["rollout", str(hopper), "--episodes", "1", "--policy", "bc", "--video", str(video)]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert "no video: no OpenGL back end works here (no-such-back-end: " in printed
    assert "apt-get install libegl1" in printed
    assert "Hopper-v5" in printed
    assert not video.exists()
    assert main([*words[:-1], "hop.mp4"]) == 2
    assert main([*words[:-1], str(tmp_path / "no" / "hop.gif")]) == 2
    assert "there is no folder" in capsys.readouterr().err


def test_predict_fills_a_file_with_gaps(hopper: Path, tmp_path: Path, capsys) -> None:
    data = loading.load("builtin:hopper")
    longest = int(data.lengths.argmax())
    episode = {k: v[:40].copy() for k, v in data.episode(longest).items()}
    lost = np.arange(40) % 3 == 1
    episode["states"][lost] = np.nan
    source, filled = tmp_path / "gaps.npz", tmp_path / "filled.npz"
    np.savez(source, states=episode["states"], actions=episode["actions"], offsets=[0, 15, 40])
    words = ["predict", str(hopper), "--input", str(source), "--given", "states,actions"]
    assert main([*words, "--want", "states,returns", "--output", str(filled)]) == 0
    out = loading.load(str(filled))
    assert out.names == ("states", "returns")
    assert out.lengths.tolist() == [15, 25]
    assert np.array_equal(out.arrays["states"][~lost], episode["states"][~lost])
    for want, output, message in [
        ("state", tmp_path / "other.npz", "Did you mean 'states'"),
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


@pytest.mark.parametrize(
    ("states", "message"),
    [
        ({"states": np.arange(800) % 5}, "open-loop .* not drawn: 'states' holds classes"),
        ({"left": np.zeros(800), "right": np.ones(800)}, "open-loop .* not drawn: .* left, right"),
    ],
)
def test_a_report_leaves_out_what_cannot_be_drawn(states, message: str, tmp_path: Path) -> None:
    from mtm.evaluation.report.page import write_report

    data, file, said = states | {"actions": np.arange(800) % 3}, tmp_path / "data.npz", []
    np.savez(file, **data, offsets=np.arange(0, 801, 40))
    run = _trained(str(file), tmp_path / "run")
    (run.path / "metrics.csv").unlink()
    nothing = {"mean": None, "std": None}
    roll = {"target": 1.0, "episodes": 0, "return": nothing, "score": nothing, "length": nothing}
    errors = {"normalized": None, "raw": 0.5, "copy_last": None}
    rcbc = {"auto": roll, "fixed": roll, "sweep": {"1.0": roll}, "best": roll}
    result = {"step": 2, "seed": 0, "tasks": {"bc": roll, "rcbc": rcbc, "fd": errors}}
    (run.path / "evaluation.json").write_text(json.dumps(result))
    page = write_report(run, tmp_path / "report", say=said.append)
    assert "Forward dynamics" in page.read_text()
    for expected in ("no training curves .*metrics.csv", message, "no episode finished"):
        assert any(re.search(expected, line) for line in said), said


def test_no_truth_is_drawn_where_none_was_recorded(
    point_mass_run: Run, point_mass: TrajectoryDataset
) -> None:
    from mtm.evaluation.report.pictures import capability

    known = np.arange(point_mass.num_steps) % 20 >= 10  # the last half of every episode
    known[:20] = False
    data = prepare(point_mass, point_mass_run.description.train)
    axes = capability(point_mass_run, data.with_present({"actions": known}), "id").axes[0]
    truth, prediction = (line.get_ydata() for line in axes.lines)
    assert np.isnan(truth[:8]).all()
    assert np.isfinite(truth[8:]).all()
    assert np.isfinite(prediction).all()


def test_targets_of_discounted_returns_are_drawn_apart() -> None:
    from mtm.evaluation.report.pictures import asked_and_got

    rolls = {
        str(target): {"target": target, "return": {"mean": 2 * target, "std": 1.0}}
        for target in (1.0, 2.0)
    }
    tasks = {"rcbc": {"auto": rolls["2.0"], "sweep": rolls}}
    for discounted, label in ((False, "return asked for"), (True, "discounted return asked for")):
        (axes,) = asked_and_got(tasks, discounted=discounted).axes
        assert axes.get_xlabel() == label
        assert ("asked" in [line.get_label() for line in axes.lines]) != discounted


def test_whole_error_bars_are_drawn() -> None:
    from mtm.evaluation.report.pictures import asked_and_got

    roll = {"target": 1.0, "return": {"mean": -2.0, "std": 1.5}}
    (axes,) = asked_and_got({"rcbc": {"auto": roll, "sweep": {"1.0": roll}}}).axes
    assert axes.get_ylim()[0] <= -3.5


def test_the_mean_of_the_data_from_their_quantiles() -> None:
    values = np.random.default_rng(0).uniform(size=5000) ** 4
    quantiles = np.percentile(values, range(101))
    assert mean_of_quantiles(quantiles) == pytest.approx(values.mean(), rel=0.002)
    assert quantiles.mean() > 1.01 * values.mean()
    hopper = add_returns(loading.load("builtin:hopper"), ReturnsConfig(kind="sum"))
    first = hopper.arrays["returns"][hopper.starts]
    mean = mean_of_quantiles(np.percentile(first, range(101)))
    assert mean == pytest.approx(first.mean(), rel=0.002)


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
