"""Filling gaps beside specialists: gaps, windows and every method."""

from __future__ import annotations

import importlib.util
import itertools
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mtm.core.config import TrainConfig, preset
from mtm.core.errors import ConfigError, DataError, MissingExtraError
from mtm.data import loading
from mtm.data.formats.stations import readings
from mtm.data.trajectories import TrajectoryDataset
from mtm.research.experiments import fill_gaps, imputation, methods
from mtm.research.experiments.data import facts
from mtm.research.experiments.runner import Result
from mtm.research.experiments.scales import SCALES
from mtm.research.experiments.spec import RunSpec
from mtm.research.imputation import gaps, specialists
from mtm.research.imputation.classical import KalmanSmoother, interpolate
from mtm.research.imputation.corrected import CorrectedSmoother, lessons
from mtm.research.imputation.names import SPECIALISTS
from mtm.research.imputation.own_model import OwnModel
from mtm.research.imputation.samples import Logs, as_sensors
from mtm.research.imputation.score import Filled, measure
from mtm.runs.run import load_run

DATA = "builtin:stations"
SMOKE = SCALES["smoke"]
HAS_PYPOTS = importlib.util.find_spec("pypots") is not None
needs_pypots = pytest.mark.skipif(not HAS_PYPOTS, reason="the extra `imputation` is not installed")
warns = pytest.mark.filterwarnings("default")  # PyPOTS and what it brings do so by themselves


def logs_of(spec: str = DATA, sensors: int = 3) -> Logs:
    return Logs.of(loading.load(spec), sensors, imputation.for_gaps(preset("tiny")))


def test_an_episode_that_chooses_weights_is_not_reported() -> None:
    values = readings(episodes=5).reshape(5 * 240, 12)
    few = TrajectoryDataset.from_arrays({"states": values}, np.arange(6) * 240)
    with pytest.raises(DataError, match="Bring more episodes"):
        Logs.of(few, 3, imputation.for_gaps(preset("tiny")))


def test_gaps_are_what_their_names_say() -> None:
    steps = gaps.draw("steps-30", 200, 50, 3, 0)
    assert (steps == steps[:, :, :1]).all()
    assert abs(steps.mean() - 0.3) < 0.02
    by_sensor = gaps.draw("readings-70", 200, 50, 3, 0)
    assert abs(by_sensor.mean() - 0.7) < 0.02
    assert (by_sensor[:, :, 0] != by_sensor[:, :, 1]).any()
    block = gaps.draw("block-10", 200, 12, 3, 0)
    assert block[:, 1:11].all()  # the only place that leaves both ends
    assert not block[:, [0, 11]].any()
    one = gaps.draw("sensor-20", 200, 50, 3, 0)
    assert (one.any(axis=1).sum(axis=1) == 1).all()
    assert (one.sum(axis=(1, 2)) == 20).all()
    edges = np.diff(one.any(axis=2).astype(int), axis=1)
    assert (np.abs(edges).sum(axis=1) == 2).all()  # on end
    assert set(one.any(axis=1).argmax(axis=1)) == {0, 1, 2}


def test_gaps_are_the_same_for_everybody() -> None:
    assert (gaps.draw("steps-50", 9, 20, 3, 4) == gaps.draw("steps-50", 9, 20, 3, 4)).all()
    assert (gaps.draw("steps-50", 9, 20, 3, 4) != gaps.draw("steps-50", 9, 20, 3, 5)).any()
    rng = np.random.default_rng(0)
    mixed = gaps.draw_mixed(("steps-10", "block-5"), 400, 20, 3, rng)
    assert 150 < (mixed.sum(axis=(1, 2)) == 15).sum() < 260


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("holes-3", "got 'holes-3'"),
        ("block-x", "got 'block-x'"),
        ("block-9", "block-9 needs windows of at least 11 steps, got 10"),
    ],
)
def test_bad_patterns(pattern: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        gaps.draw(pattern, 2, 10, 3, 0)
    assert gaps.fitting(("steps-10", "block-8", "block-9"), 10) == ["steps-10", "block-8"]


def test_observed_columns_are_dealt_out() -> None:
    source = loading.load("builtin:point-mass")
    data = as_sensors(source, 3)
    assert [(m.name, m.shape, m.role) for m in data.modalities] == [
        ("sensor_0", (2,), "state"),
        ("sensor_1", (1,), "state"),
        ("sensor_2", (1,), "state"),
        ("actions", (2,), "action"),
    ]
    joined = np.hstack([data.arrays[f"sensor_{k}"] for k in range(3)])
    assert (joined == source.arrays["states"]).all()
    with pytest.raises(DataError, match="has 4 columns of observed numbers, too few for 5"):
        as_sensors(source, 5)
    known = np.ones(source.num_steps, bool)
    known[3] = False
    with pytest.raises(DataError, match="lacks values of states"):
        as_sensors(source.with_present({"states": known}), 2)


def test_windows_lie_within_held_out_episodes() -> None:
    logs = logs_of()
    assert logs.parts.test is not None
    windows = logs.windows(logs.parts.test, 24, 40, seed=0)
    assert windows.shape == (40, 24, 12)
    rows = {tuple(row) for row in windows[:, 0]}
    whole = [
        logs.normalised(logs.parts.test, np.arange(s, s + 240)) for s in logs.parts.test.starts
    ]
    begins = {tuple(episode[24 * k]) for episode in whole for k in range(10)}
    assert rows <= begins
    dense = logs.windows(logs.parts.training, 240, 50, seed=0, dense=True)
    assert abs(dense.mean()) < 0.15  # normalised
    assert 0.8 < dense.std() < 1.2
    with pytest.raises(DataError, match=r"has 999 steps; the longest of \d+ has 240"):
        logs.windows(logs.parts.test, 999, 5, seed=0)


def test_the_measure_by_hand() -> None:
    truth = np.array([[[0.0], [1.0], [2.0], [3.0]]], np.float32)
    hidden = np.array([[[False], [True], [True], [False]]])
    values = np.array([[[9.0], [1.5], [4.0], [9.0]]], np.float32)
    found = measure(Filled.normal(values, np.ones_like(values)), truth, hidden)
    assert found["error"] == (0.25 + 4) / 2
    assert (found["values"], found["coverage_50"], found["coverage_90"]) == (2, 0.5, 0.5)
    assert measure(Filled(values), truth, hidden)["coverage_50"] is None


def test_interpolation_by_hand() -> None:
    windows = np.array([[[1.0, 5], [9, 5], [9, 5], [4, 5], [9, 5]]], np.float32)
    hidden = np.zeros((1, 5, 2), bool)
    hidden[0, [1, 2, 4], 0] = hidden[0, :, 1] = True
    assert interpolate(windows, hidden).values[0].T.tolist() == [[1, 2, 3, 4, 4], [0] * 5]


def linear_logs(noise: float) -> Logs:
    rng = np.random.default_rng(0)
    turn = 0.95 * np.array([[np.cos(0.3), -np.sin(0.3)], [np.sin(0.3), np.cos(0.3)]])
    episodes = []
    for _ in range(60):
        state, push = rng.normal(size=2), rng.normal(size=(40, 1))
        states = []
        for t in range(40):
            states.append(state)
            state = turn @ state + push[t] * [0.5, 0.2] + noise * rng.normal(size=2)
        episodes.append({"states": np.array(states), "actions": push})
    config = replace(preset("tiny"), validation_fraction=0.2)
    return Logs.of(TrajectoryDataset.from_episodes(episodes), 2, config)


def test_the_smoother_is_the_conditional_mean() -> None:
    """As of the joint normal distribution of all steps, written out."""
    logs = linear_logs(0.3)
    smoother, W, S = KalmanSmoother.fit(logs), 5, 2
    windows = logs.windows(logs.parts.test, W, 3, seed=0)  # type: ignore[arg-type]
    hidden = np.zeros(windows.shape, bool)
    hidden[:, 1:3, 0] = hidden[:, 2, 1] = True
    filled = smoother(windows, hidden)
    for n in range(3):
        pushed = np.hstack([windows[n, :, S:], np.ones((W, 1))]) @ smoother.B.T
        mean, covariance = [smoother.mean], np.zeros((W, S, W, S))
        covariance[0, :, 0, :] = smoother.covariance
        for t in range(1, W):
            mean.append(smoother.A @ mean[-1] + pushed[t - 1])
            covariance[t, :, :t] = np.einsum("ij,jtk->itk", smoother.A, covariance[t - 1, :, :t])
            covariance[:t, :, t] = covariance[t, :, :t].transpose(1, 2, 0)
            before = covariance[t - 1, :, t - 1]
            covariance[t, :, t] = smoother.A @ before @ smoother.A.T + smoother.noise
        joint, lost = covariance.reshape(W * S, W * S), hidden[n, :, :S].ravel()
        middle, right = np.concatenate(mean), windows[n, :, :S].ravel()
        gain = np.linalg.solve(joint[np.ix_(~lost, ~lost)], joint[np.ix_(~lost, lost)]).T
        expected = middle[lost] + gain @ (right - middle)[~lost]
        variance = np.diag(joint[np.ix_(lost, lost)] - gain @ joint[np.ix_(~lost, lost)])
        assert filled.values[n, :, :S].ravel()[lost] == pytest.approx(expected, abs=2e-4)
        low, high = (ends[n, :, :S].ravel()[lost] for ends in filled.intervals[50])
        assert (high - low) / 2 / 0.67449 == pytest.approx(np.sqrt(variance), rel=2e-2)


def test_the_smoother_is_calibrated_where_its_lines_are_true() -> None:
    logs = linear_logs(0.3)
    truth = logs.windows(logs.parts.training, 20, 300, seed=0, dense=True)
    hidden = logs.hidden_columns(gaps.draw("block-10", 300, 20, 2, 0))
    found = measure(KalmanSmoother.fit(logs)(truth, hidden), truth, hidden)
    assert abs(found["coverage_50"] - 0.5) < 0.06
    assert abs(found["coverage_90"] - 0.9) < 0.04
    assert found["error"] < 0.3 * measure(interpolate(truth, hidden), truth, hidden)["error"]


def spec_of(method: str, **changes: object) -> RunSpec:
    spec = next(s for s in imputation.runs(SMOKE, [DATA], 1) if s.method == method)
    return replace(spec, settings={**spec.settings, **changes}, needs=spec.needs)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    folder = tmp_path_factory.mktemp("ours") / "work"
    return folder, fill_gaps.run(spec_of("mtm-acts"), folder, [])


def test_our_model_fills_every_pattern(trained: tuple[Path, dict]) -> None:
    folder, found = trained
    patterns = spec_of("mtm-gaps").settings["gaps"]["patterns"]
    assert list(found["patterns"]) == patterns == gaps.fitting(gaps.PATTERNS, 16)
    for measured in found["patterns"].values():
        assert np.isfinite(measured["error"])
        assert 0 < measured["coverage_50"] <= measured["coverage_90"] <= 1
        assert measured["values"] > 0
        assert measured["seconds"] > 0
    assert found["seconds"] == json.loads((folder / "seconds.json").read_text())["seconds"] > 0


def test_a_smoother_is_corrected(tmp_path: Path) -> None:
    spec = spec_of("mtm-smoothed")
    found = fill_gaps.run(spec, tmp_path, [])
    assert list(found["patterns"]) == spec.settings["gaps"]["patterns"]
    logs, config = logs_of(), TrainConfig.from_json(spec.settings["corrector"])
    smoother = KalmanSmoother.fit(logs)
    filler = CorrectedSmoother(smoother, load_run(tmp_path / "run"))
    truth = logs.windows(logs.parts.test, 16, 3, seed=1)  # type: ignore[arg-type]
    hidden = logs.hidden_columns(gaps.draw("steps-30", 3, 16, 3, 0))
    one, two = filler(truth, hidden), filler(np.where(hidden, np.float32(7), truth), hidden)
    assert (one.values == two.values).all()
    assert (one.values[~hidden] == truth[~hidden]).all()
    assert (one.values[hidden] != smoother(truth, hidden).values[hidden]).any()
    data = lessons(logs, smoother, ("steps-30",), 40, config)
    assert data.num_episodes == 40
    assert data.present["missed"].mean() == pytest.approx(0.3, abs=0.06)
    known = data.arrays["doubt"] == 0  # where nothing is lost, nothing is missed
    assert np.abs(data.arrays["missed"][known]).max() < 1e-3


def test_what_is_hidden_is_not_seen(trained: tuple[Path, dict]) -> None:
    logs = logs_of()
    truth = logs.windows(logs.parts.test, 16, 3, seed=1)  # type: ignore[arg-type]
    hidden = logs.hidden_columns(gaps.draw("readings-30", 3, 16, 3, 0))
    other = np.where(hidden, np.float32(7.0), truth)
    ours = OwnModel(load_run(trained[0] / "run"))
    for filler in (interpolate, KalmanSmoother.fit(logs), ours):
        one, two = filler(truth, hidden), filler(other, hidden)
        assert (one.values[hidden] == two.values[hidden]).all()
        assert (one.values[~hidden] == truth[~hidden]).all()
        assert (one.values[hidden] != truth[hidden]).any()


@needs_pypots
@warns
@pytest.mark.parametrize("name", SPECIALISTS)
def test_a_specialist_has_our_seconds(
    name: str, trained: tuple[Path, dict], tmp_path: Path
) -> None:
    folder = tmp_path / "needs"
    folder.mkdir()
    (folder / "seconds.json").write_text(json.dumps({"seconds": 0.0}))
    spec = spec_of(name)
    found = fill_gaps.run(spec, tmp_path / "work", [folder])
    assert found["epochs"] == 1  # the first part is always taken
    ticks = itertools.count()  # one for every look at the clock: parts end at 2, 5 and 8
    settings, clock = spec.settings["specialist"], lambda: float(next(ticks))
    longer = specialists.train_for(name, logs_of(), settings, 0, 10.0, clock)
    assert longer.epochs == 3  # at 9, a fourth would end at 10 at best
    stated = {m["coverage_90"] is not None for m in found["patterns"].values()}
    assert stated == {name == "csdi"}
    assert {p: m["values"] for p, m in found["patterns"].items()} == {
        p: m["values"] for p, m in trained[1]["patterns"].items()
    }


@needs_pypots
@warns
def test_saits_learns_more_in_more_time() -> None:
    logs, settings = logs_of(), spec_of("saits").settings["specialist"]
    truth = logs.windows(logs.parts.test, 16, 50, seed=1)  # type: ignore[arg-type]
    hidden = logs.hidden_columns(gaps.draw("readings-30", len(truth), 16, 3, 0))
    ticks = itertools.count()
    errors = [
        measure(
            specialists.train_for("saits", logs, settings, 0, budget, lambda: float(next(ticks)))(
                truth, hidden
            ),
            truth,
            hidden,
        )
        for budget in (0.0, 300.0)
    ]
    assert errors[1]["error"] < 0.8 * errors[0]["error"]


def test_without_pypots_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pypots.imputation", None)
    with pytest.raises(MissingExtraError, match=r"masked-trajectory-models\[imputation\]"):
        specialists.train_for("saits", logs_of(), spec_of("saits").settings["specialist"], 0, 0)


def test_the_stations_are_a_series_of_its_own_kind() -> None:
    drawn = readings(episodes=4)
    assert drawn.shape == (4, 240, 12)
    assert np.isfinite(drawn).all()
    assert (drawn == readings(episodes=4)).all()
    first, second = drawn[:, :, 0].ravel(), drawn[:, :, 4].ravel()
    assert np.corrcoef(first, second)[0, 1] > 0.7  # the same weather, later
    assert np.corrcoef(drawn[:, :, 0].ravel(), drawn[:, :, 1].ravel())[0, 1] < -0.7


def made_up(spec: RunSpec) -> Result:
    rate = {"mtm-acts": 1.0, "kalman": 0.5}.get(spec.method, 2.0) + 0.001 * spec.seed
    stated = (
        0.5
        if spec.method in ("mtm-acts", "mtm-gaps", "mtm-smoothed", "csdi", "csdi-own", "kalman")
        else None
    )
    one = {"error": rate, "values": 9, "coverage_50": stated, "coverage_90": stated, "seconds": 1.6}
    patterns = dict.fromkeys(spec.settings["gaps"]["patterns"], one)
    value = {"seconds": 60.0, "windows": 4, "patterns": patterns}
    return Result(spec, facts(DATA), value, None, None)


def test_the_comparison_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra `report` is not installed")
    specs = imputation.runs(SMOKE, [DATA], 3)
    assert {s.method for s in specs} == set(imputation.TITLES) == set(methods.FILLERS)
    assert {s.seed for s in specs if s.method.endswith("-own")} == {0}
    assert all((s.method in imputation.NETWORKS) == bool(s.needs) for s in specs)
    drawn = imputation.draw([made_up(spec) for spec in specs], tmp_path)
    errors, coverage, _, seconds = drawn.tables
    rows = {row[1]: row[2:] for row in errors.rows}
    assert rows["MTM"][:2] == ["3", "1.0010 ± 0.0010 [0.9985, 1.0035]"]
    assert rows["SAITS, own budget"][:2] == ["1", "2.0000"]
    assert {row[1] for row in coverage.rows} == {
        "MTM",
        "MTM, long segments",
        "CSDI",
        "CSDI, own budget",
        "Kalman smoother",
        "MTM on a smoother",
    }
    assert seconds.rows[0][2:] == ["60 ± 0 [60, 60]", "25.000 ± 0.000 [25.000, 25.000]"]
    verdicts = {c.text: c.verdict for c in drawn.claims}
    assert verdicts["MTM fills gaps better than SAITS"] == "supported"
    assert verdicts["MTM fills gaps better than Kalman smoother"] == "contradicted"
    smoothed = [t.rpartition(" than ")[2] for t in verdicts if t.startswith("MTM on a smoother")]
    assert smoothed == ["Kalman smoother", "interpolation"]  # other seconds than the specialists
    assert (tmp_path / "imputation.png").stat().st_size > 5000
    none = [replace(made_up(spec), value=None) for spec in specs]
    assert {c.verdict for c in imputation.draw(none, tmp_path).claims} == {"not measured"}


def test_the_settings_of_a_run_are_whole() -> None:
    spec = spec_of("mtm-gaps")
    config = TrainConfig.from_json(spec.settings["train"])
    assert config.model.segment_length == spec.settings["gaps"]["window"] == 16
    assert imputation.for_gaps(preset("cpu")).model.segment_length == 64
