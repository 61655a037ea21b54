"""Training: repeatable, resumable, and it learns."""

from __future__ import annotations

import csv
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import mtm
from mtm.core.config import (
    DeviceConfig,
    ModelConfig,
    OptimizerConfig,
    ReturnsConfig,
    TrainConfig,
)
from mtm.core.errors import ConfigError, DataError, RunError
from mtm.core.plain_data import SEAL
from mtm.data.formats import builtin
from mtm.data.modalities import Modality
from mtm.data.normalizer import Normalizer
from mtm.data.preparation import prepare
from mtm.data.segments import Segments
from mtm.data.trajectories import TrajectoryDataset
from mtm.masks import training_mask
from mtm.masks.capabilities import NAMED_MASKS
from mtm.models.mtm import MTM
from mtm.models.network import make_network
from mtm.runs import checkpoint
from mtm.runs.description import Description
from mtm.runs.directory import LOCK
from mtm.training.batches import BatchMaker
from mtm.training.optimization import Muon, learning_rate, make_optimizers
from mtm.training.trackers import read_metrics
from mtm.training.train import train
from mtm.training.validation import Validator


def weights(path: Path) -> dict[str, torch.Tensor]:
    loaded = checkpoint.load(path / "checkpoints")
    return loaded.model | {f"optimizer.{k}": v for k, v in loaded.optimizer.items()}


def equal(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def with_gaps(data: TrajectoryDataset, stored: float) -> TrajectoryDataset:
    """Half of the actions absent, with `stored` in their place."""
    known = np.random.default_rng(0).random(len(data.arrays["actions"])) < 0.5
    actions = np.where(known[:, None], data.arrays["actions"], np.float32(stored))
    return TrajectoryDataset.from_arrays(
        dict(data.arrays) | {"actions": actions},
        [0, *data.ends],
        present={"actions": known},
        metadata=data.metadata,
    )


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_ten_steps_and_ten_resumed_are_twenty_to_the_bit(
    point_mass, tiny, tmp_path, dropout
) -> None:
    config = replace(tiny, model=replace(tiny.model, dropout=dropout))
    train(point_mass, config, tmp_path / "whole", silent=True)
    part = train(point_mass, config, tmp_path / "parts", stop_at=10, silent=True)
    assert part.step == 10
    run = train(point_mass, config, tmp_path / "parts", resume=True, silent=True)
    assert run.step == 20
    assert equal(weights(tmp_path / "whole"), weights(tmp_path / "parts"))


@pytest.mark.parametrize("precision", ["bf16-mixed", "bf16-true", "64-true"])
def test_every_precision_trains_resumes_and_answers(point_mass, tiny, tmp_path, precision) -> None:
    device = DeviceConfig(accelerator="cpu", precision=precision)
    train(point_mass, tiny, tmp_path / "whole", device=device, silent=True)
    parts = tmp_path / "parts"
    train(point_mass, tiny, parts, device=device, stop_at=10, silent=True)
    run = train(point_mass, tiny, parts, device=device, resume=True, silent=True)
    assert equal(weights(tmp_path / "whole"), weights(parts))
    usual = train(point_mass, tiny, tmp_path / "usual", silent=True)
    losses = [read_metrics(r.path / "metrics.csv")[-1]["val/loss"] for r in (run, usual)]
    assert losses[0] == pytest.approx(losses[1], rel=0.05)
    states = point_mass.arrays["states"][:6]
    actions = mtm.inverse_dynamics(run, states)
    assert actions.dtype == np.float32
    np.testing.assert_allclose(actions, mtm.inverse_dynamics(usual, states), atol=0.1)


def test_same_seed_is_equal_and_another_differs(point_mass, tiny, tmp_path) -> None:
    for name, seed in [("a", 0), ("b", 0), ("c", 1)]:
        train(point_mass, replace(tiny, seed=seed), tmp_path / name, silent=True)
    assert equal(weights(tmp_path / "a"), weights(tmp_path / "b"))
    assert not equal(weights(tmp_path / "a"), weights(tmp_path / "c"))


def test_the_caller_s_random_numbers_are_left_alone(point_mass, tiny, out) -> None:
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    train(point_mass, tiny, out, silent=True)
    assert torch.equal(torch.rand(1), expected)


def test_no_device_but_the_one_in_use_is_touched(point_mass, tiny, out, monkeypatch) -> None:
    forked = []

    def fork(*arguments, **named):
        forked.append(named.get("devices"))
        return kept(*arguments, **named)

    kept = torch.random.fork_rng
    monkeypatch.setattr(torch.random, "fork_rng", fork)
    device = DeviceConfig(accelerator="cpu")
    train(point_mass, replace(tiny, steps=1), out, device=device, silent=True)
    assert forked
    assert all(devices == [] for devices in forked)


def test_every_parameter_moves(point_mass, tiny, out) -> None:
    train(point_mass, replace(tiny, checkpoint_every=1, keep_checkpoints=99), out, silent=True)
    first = checkpoint.load(out / "checkpoints", 1).model
    last = checkpoint.load(out / "checkpoints", 20).model
    assert [name for name in first if torch.equal(first[name], last[name])] == []


def test_absent_values_change_nothing_to_the_bit(point_mass, tiny, tmp_path) -> None:
    for name, stored in [("zero", 0.0), ("nan", np.nan)]:
        train(with_gaps(point_mass, stored), tiny, tmp_path / name, silent=True)
    assert equal(weights(tmp_path / "zero"), weights(tmp_path / "nan"))
    descriptions = [mtm.load_run(tmp_path / n).normalizer.to_json() for n in ("zero", "nan")]
    assert descriptions[0] == descriptions[1]


def test_it_learns_the_point_mass(tmp_path) -> None:
    """The next state to 5 % of its variance; copying the last one gives 44 %."""
    config = TrainConfig(
        steps=400,
        batch_size=128,
        validate_every=400,
        checkpoint_every=400,
        modalities=("states", "actions"),
        model=ModelConfig(width=64, segment_length=2, dropout=0.0),
        optimizer=OptimizerConfig(learning_rate=4e-3, warmup_steps=50),
    )
    train(builtin.point_mass(), config, tmp_path / "run", silent=True)
    held_out = checkpoint.load(tmp_path / "run" / "checkpoints").state.validation
    assert held_out["fd_copy_last"] > 0.3
    assert held_out["fd"] < 0.05
    assert held_out["states/visible"] < 0.01


def test_a_discrete_modality_is_learned(tmp_path) -> None:
    config = TrainConfig(
        steps=150,
        batch_size=64,
        validate_every=150,
        checkpoint_every=150,
        model=ModelConfig(width=32, heads=2, dropout=0.0),
        optimizer=OptimizerConfig(learning_rate=3e-3, warmup_steps=20),
    )
    train("builtin:sinusoids", config, tmp_path / "run", silent=True)
    held_out = checkpoint.load(tmp_path / "run" / "checkpoints").state.validation
    assert held_out["phase/visible"] < 0.1
    assert held_out["phase/hidden"] < 0.8 * np.log(4)  # well below guessing among four


@pytest.mark.parametrize("mask", ["random", *NAMED_MASKS])
def test_the_loop_trains_with_any_mask(point_mass, tiny, out, mask) -> None:
    run = train(point_mass, replace(tiny, mask=mask, steps=2), out, silent=True)
    assert run.description.train.mask == mask


def test_a_mask_of_one_s_own(point_mass, tiny, out) -> None:
    def first_step_only(modalities, segment_length, batch_size, rng):
        visible = np.zeros((batch_size, segment_length, len(modalities)), bool)
        visible[:, 0] = True
        return visible

    run = train(point_mass, replace(tiny, steps=2), out, mask=first_step_only, silent=True)
    assert run.description.train.mask == "custom"
    with pytest.raises(ConfigError, match=r"pass mask=\.\.\."):
        train(point_mass, run.description.train, out, silent=True)
    with pytest.raises(ConfigError, match=r"booleans of shape .* got float64"):
        train(point_mass, tiny, out, mask=lambda m, T, B, rng: np.ones((B, T)), silent=True)


def test_modalities_are_chosen(point_mass, tiny, out) -> None:
    config = replace(tiny, steps=2, modalities=("actions", "states"))
    assert [m.name for m in train(point_mass, config, out, silent=True).modalities] == [
        "actions",
        "states",
    ]
    with pytest.raises(DataError, match="Did you mean 'states'"):
        prepare(point_mass, replace(tiny, modalities=("state",)))


def test_no_validation_and_one_episode(tiny, out) -> None:
    states = np.random.default_rng(0).random((30, 2))
    data = TrajectoryDataset.from_arrays({"states": states}, [0, 30])
    run = train(data, replace(tiny, validation_fraction=0.0), out, silent=True)
    assert run.step == 20
    assert checkpoint.load(out / "checkpoints", "best").state.step == 20


def test_a_name_that_pytorch_takes_is_refused_before_anything_is_written(tiny, out) -> None:
    steps = np.random.default_rng(0).normal(size=(40, 2))
    data = TrajectoryDataset.from_arrays({"values": steps, "actions": steps}, [0, 20, 40])
    with pytest.raises(DataError, match="cannot have a modality named 'values'"):
        train(data, tiny, out, silent=True)
    assert not out.exists()


def test_a_run_loads_without_its_data(point_mass, tiny, tmp_path) -> None:
    file = tmp_path / "data.npz"
    np.savez(file, **point_mass.arrays, offsets=[0, *point_mass.ends])
    train(str(file), tiny, tmp_path / "run", silent=True)
    file.unlink()
    (tmp_path / "run").rename(tmp_path / "elsewhere")
    run = mtm.load_run(tmp_path / "elsewhere", "best")
    assert run.description.data["episodes"] == 60
    values = {"states": torch.zeros(1, 4, 4), "returns": torch.zeros(1, 4)}
    values["actions"] = torch.zeros(1, 4, 2)
    out = run.model(values, torch.ones(1, 4, 3, dtype=torch.bool))
    assert out.values["states"].shape == (1, 4, 4)


def test_metrics_are_continuous_over_a_crash(point_mass, tiny, out) -> None:
    """The crash came after step 15 was logged and before it was saved."""
    train(point_mass, tiny, out, silent=True, stop_at=15)
    for path in (out / "checkpoints").glob("step-*15"):
        for file in path.iterdir():
            file.unlink()
        path.rmdir()
    train(point_mass, tiny, out, silent=True, resume=True)
    with (out / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["step"]) for row in rows] == [5, 10, 15, 20]
    assert rows[1]["val/fd"]
    assert not rows[0]["val/fd"]
    assert float(rows[-1]["loss"]) == pytest.approx(
        sum(float(rows[-1][f"loss/{n}"]) for n in ("states", "returns", "actions")), rel=1e-4
    )


@pytest.mark.parametrize(("home", "name"), [(Validator, "measure"), (checkpoint, "save")])
def test_the_speed_is_that_of_the_steps_alone(
    point_mass, tiny, out, monkeypatch, home, name
) -> None:
    """Neither validation nor saving counts, in the row of its step or in the next."""
    quick = getattr(home, name)

    def slowly(*arguments):
        time.sleep(0.5)
        return quick(*arguments)

    monkeypatch.setattr(home, name, slowly)
    config = replace(tiny, steps=4, validate_every=1, checkpoint_every=1)
    train(point_mass, config, out, silent=True)
    rows = read_metrics(out / "metrics.csv")
    assert max(row["segments_per_second"] for row in rows[1:]) > config.batch_size / 0.25
    assert rows[-1]["seconds"] > 1.5  # of the whole


def test_an_existing_run_is_not_overwritten(point_mass, tiny, out) -> None:
    train(point_mass, tiny, out, silent=True)
    before = weights(out)
    with pytest.raises(RunError, match="already holds a run.*--resume.*--overwrite"):
        train(point_mass, replace(tiny, seed=1), out, silent=True)
    assert equal(weights(out), before)
    train(point_mass, replace(tiny, seed=1), out, overwrite=True, silent=True)
    assert not equal(weights(out), before)


def test_overwriting_removes_what_belongs_to_the_old_weights(point_mass, tiny, out) -> None:
    train(point_mass, tiny, out, silent=True)
    for folder in ("report", "tensorboard"):
        (out / folder).mkdir()
        (out / folder / "old").touch()
    for file in ("evaluation.json", "notes.txt", ".metrics.csv.1.tmp"):
        (out / file).touch()
    train(point_mass, tiny, out, overwrite=True, silent=True)
    assert {path.name for path in out.iterdir()} - {LOCK} == {
        *("checkpoints", "config.json", "metrics.csv"),
        "notes.txt",  # the user's own
    }


@pytest.mark.parametrize("way", [{}, {"resume": True}, {"overwrite": True}])
def test_a_run_that_was_killed_while_it_was_made_is_made_anew(
    point_mass, tiny, out, way, monkeypatch
) -> None:
    def kill(path: Path, *_) -> None:
        (path / ".config.json.1.tmp").write_text("{")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("mtm.runs.directory.write_description", kill)
        with pytest.raises(KeyboardInterrupt):
            train(point_mass, tiny, out, silent=True)
    assert train(point_mass, tiny, out, silent=True, **way).step == 20
    assert {path.name for path in out.glob(".*")} <= {LOCK}


def test_a_run_that_was_killed_while_it_was_replaced_is_still_known(
    point_mass, tiny, out, monkeypatch
) -> None:
    train(point_mass, tiny, out, silent=True)

    def kill(*_) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("mtm.runs.directory.write_description", kill)
        with pytest.raises(KeyboardInterrupt):
            train(point_mass, tiny, out, overwrite=True, silent=True)
    with pytest.raises(RunError, match="already holds a run"):
        train(point_mass, tiny, out, silent=True)
    assert train(point_mass, tiny, out, overwrite=True, silent=True).step == 20


def test_checkpoints_without_a_description_are_left_alone(point_mass, tiny, out) -> None:
    train(point_mass, tiny, out, silent=True)
    for file in ("config.json", "metrics.csv"):
        (out / file).unlink()
    with pytest.raises(RunError, match="exists and is not a run"):
        train(point_mass, tiny, out, overwrite=True, silent=True)
    assert checkpoint.steps(out / "checkpoints") == [10, 20]


def test_a_directory_that_is_not_a_run_is_left_alone(point_mass, tiny, out) -> None:
    out.mkdir()
    (out / "thesis.tex").write_text("years of work")
    with pytest.raises(RunError, match="exists and is not a run"):
        train(point_mass, tiny, out, overwrite=True, silent=True)
    assert (out / "thesis.tex").read_text() == "years of work"


def test_resume_refuses_what_differs_and_says_what(point_mass, tiny, out) -> None:
    train(point_mass, tiny, out, silent=True)
    wider = replace(tiny, model=replace(tiny.model, width=32), seed=3)
    with pytest.raises(RunError, match=r"(?s)model.width: 16 -> 32.*seed: 0 -> 3"):
        train(point_mass, wider, out, resume=True, silent=True)
    with pytest.raises(RunError, match="data fingerprint"):
        train(builtin.point_mass(60, 20, seed=9), tiny, out, resume=True, silent=True)
    with pytest.raises(RunError, match=r"modalities: .* -> states\[4\]"):
        train(point_mass.select(["states"]), tiny, out, resume=True, silent=True)


def test_resume_refuses_another_precision(point_mass, tiny, out) -> None:
    """It would go on with other numbers than a run that was never stopped."""
    device = DeviceConfig(accelerator="cpu", precision="bf16-true")
    train(point_mass, tiny, out, device=device, stop_at=2, silent=True)
    with pytest.raises(RunError, match="precision: bf16-true -> 32-true"):
        train(point_mass, tiny, out, resume=True, silent=True)


def test_a_run_that_does_not_tell_its_precision_had_the_usual_one(point_mass, tiny, out) -> None:
    train(point_mass, tiny, out, stop_at=2, silent=True)
    file = out / "config.json"
    plain = json.loads(file.read_text())
    assert plain.pop("precision") == "32-true"
    file.write_text(json.dumps({k: v for k, v in plain.items() if k != SEAL}))
    assert train(point_mass, tiny, out, resume=True, silent=True).description.precision == "32-true"


def test_what_was_half_deleted_at_the_end_goes_with_the_next_start(point_mass, tiny, out) -> None:
    train(point_mass, tiny, out, silent=True)
    (out / "checkpoints" / ".step-000000005.gone.tmp").mkdir()
    assert train(point_mass, tiny, out, resume=True, silent=True).step == tiny.steps
    assert not list((out / "checkpoints").glob(".*"))


def test_a_damaged_description_is_noticed(point_mass, tiny, out) -> None:
    train(point_mass, tiny, out, stop_at=2, silent=True)
    file = out / "config.json"
    plain = json.loads(file.read_text())
    means = next(iter(plain["normalizer"].values()))
    plain["normalizer"] = {**plain["normalizer"], "foreign": means}
    file.write_text(json.dumps(plain))
    with pytest.raises(RunError, match="not what was written; if you edited it yourself"):
        mtm.load_run(out)


def test_resume_may_go_on_for_longer(point_mass, tiny, out) -> None:
    train(point_mass, tiny, out, silent=True)
    run = train(point_mass, replace(tiny, steps=25), out, resume=True, silent=True)
    assert run.step == 25
    assert json.loads((out / "config.json").read_text())["train"]["steps"] == 25


def test_resume_falls_back_from_a_damaged_checkpoint(point_mass, tiny, tmp_path) -> None:
    train(point_mass, tiny, tmp_path / "whole", silent=True)
    train(point_mass, tiny, tmp_path / "damaged", silent=True)
    newest = tmp_path / "damaged" / "checkpoints" / "step-000000020" / "model.safetensors"
    newest.write_bytes(newest.read_bytes()[:100])
    with pytest.warns(UserWarning, match="step-000000020 is damaged"):
        train(point_mass, tiny, tmp_path / "damaged", resume=True, silent=True)
    assert equal(weights(tmp_path / "whole"), weights(tmp_path / "damaged"))


@pytest.mark.parametrize("damage", ["truncated", "missing"])
def test_a_run_answers_without_its_optimizer_but_does_not_go_on(
    point_mass, tiny, tmp_path, damage
) -> None:
    train(point_mass, tiny, tmp_path / "whole", silent=True)
    out = tmp_path / "run"
    train(point_mass, tiny, out, silent=True)
    first, last = sorted((out / "checkpoints").glob("*/optimizer.safetensors"))

    def spoil(file: Path) -> None:
        file.unlink() if damage == "missing" else file.write_bytes(file.read_bytes()[:-1])

    spoil(last)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert mtm.load_run(out).step == mtm.load_run(out, 20).step == 20
    with pytest.warns(UserWarning, match="step-000000020 is damaged and was passed over"):
        train(point_mass, tiny, out, resume=True, silent=True)  # from step 10
    assert equal(weights(out), weights(tmp_path / "whole"))
    spoil(first)
    spoil(last)
    assert mtm.load_run(out).step == 20
    with (
        pytest.warns(UserWarning, match="damaged"),
        pytest.raises(RunError, match="no checkpoint in .* can be read"),
    ):
        train(point_mass, tiny, out, resume=True, silent=True)


def test_ctrl_c_saves_and_resumes_to_the_same_end(point_mass, tiny, tmp_path) -> None:
    config = replace(tiny, steps=400, log_every=1)
    train(point_mass, config, tmp_path / "whole", silent=True)
    out = tmp_path / "stopped"

    def interrupt_once_under_way() -> None:
        while not (out / "metrics.csv").exists() or len(_lines(out)) < 4:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt_once_under_way)
    before = signal.getsignal(signal.SIGINT)
    thread.start()
    run = train(point_mass, config, out, silent=True)
    thread.join()
    assert 3 <= run.step < 400
    assert signal.getsignal(signal.SIGINT) is before
    train(point_mass, config, out, resume=True, silent=True)
    assert equal(weights(tmp_path / "whole"), weights(out))


def _lines(out: Path) -> list[str]:
    return (out / "metrics.csv").read_text().splitlines()


def test_a_loss_that_is_not_finite_stops_the_run(point_mass, tiny, out) -> None:
    hot = replace(
        tiny,
        steps=200,
        optimizer=OptimizerConfig(learning_rate=1e30, warmup_steps=0, clip_norm=0.0),
    )
    with pytest.raises(RunError, match="the loss became (nan|inf)"):
        train(point_mass, hot, out, silent=True)


def test_only_sound_weights_are_saved(point_mass, tiny, out) -> None:
    """Also where a checkpoint is due between two rows of metrics."""
    hot = OptimizerConfig(learning_rate=1e30, warmup_steps=0, clip_norm=0.0)
    config = replace(tiny, log_every=20, checkpoint_every=2, optimizer=hot)
    with pytest.raises(RunError, match=r"by step \d\. (Nothing was saved|.* is sound)"):
        train(point_mass, config, out, silent=True)
    for step in checkpoint.steps(out / "checkpoints"):
        saved = checkpoint.load(out / "checkpoints", step).model
        assert all(tensor.isfinite().all() for tensor in saved.values()), step


def test_a_gradient_that_is_not_finite_stops_the_run(point_mass, tiny, out, monkeypatch) -> None:
    """It spoils the weights one step before the loss shows it."""

    def make_spoilt(*arguments):
        network = make_network(*arguments)
        network.mask_tokens.register_hook(lambda gradient: gradient * np.nan)
        return network

    monkeypatch.setattr("mtm.training.masked_model.make_network", make_spoilt)
    with pytest.raises(RunError, match="the norm of its gradient nan, by step 1"):
        train(point_mass, replace(tiny, checkpoint_every=1), out, silent=True)
    assert checkpoint.steps(out / "checkpoints") == []


@pytest.mark.parametrize("step", [0, -1])
def test_a_sitting_takes_a_step_at_least(point_mass, tiny, out, step) -> None:
    with pytest.raises(ConfigError, match=f"stop_at must be at least 1, got {step}"):
        train(point_mass, tiny, out, stop_at=step, silent=True)
    assert not out.exists()


def test_a_run_with_an_action_loss_of_earlier_goes_on_with_the_nearest(
    point_mass, tiny, out
) -> None:
    train(point_mass, tiny, out, stop_at=5, silent=True)
    file = out / "config.json"
    plain = json.loads(file.read_text())
    plain["train"]["action_loss"] = "cauchy"
    del plain["sha256"]
    file.write_text(json.dumps(plain))
    assert mtm.load_run(out).description.train.action_loss == "absolute"
    assert train(point_mass, tiny, out, resume=True, silent=True).step == tiny.steps


def test_runs_of_older_formats_are_read_and_resumed(point_mass, tiny, out) -> None:
    old = replace(
        tiny,
        model=replace(tiny.model, predict_variance=False),
        optimizer=replace(tiny.optimizer, name="adamw", final_share=0.0, averaged_share=0.0),
        complete_share=0.0,
        whole_modalities=0.0,
        action_loss="squared",
    )
    train(point_mass, old, out, stop_at=5, silent=True)
    file = out / "config.json"
    plain = json.loads(file.read_text())
    del plain["train"]["action_loss"]
    del plain["train"]["model"]["predict_variance"]  # `spread` until format 4, unsaid in the first
    del plain["train"]["optimizer"]["name"]
    del plain["train"]["optimizer"]["averaged_share"]
    plain["train"]["optimizer"]["final_learning_rate"] = 0.0
    del plain["train"]["optimizer"]["final_share"]
    plain["train"]["complete_share"] = None
    del plain["train"]["whole_modalities"]
    file.write_text(json.dumps(plain | {"format": 1}))
    assert mtm.load_run(out).description.train == old
    assert train(point_mass, old, out, resume=True, silent=True).step == old.steps


def test_learning_rate_is_a_function_of_the_step() -> None:
    config = OptimizerConfig(learning_rate=1.0, final_share=0.1, warmup_steps=10)
    rates = [learning_rate(step, 110, config) for step in range(111)]
    assert rates[0] == pytest.approx(0.1)
    assert rates[9] == rates[10] == pytest.approx(1.0)
    assert rates[60] == pytest.approx(0.55)
    assert rates[110] == pytest.approx(0.1)
    assert all(a > b for a, b in itertools.pairwise(rates[10:]))


@pytest.mark.parametrize("warmup", [19, 20])
def test_a_warm_up_without_end_is_warned_of(point_mass, tiny, out, warmup) -> None:
    config = replace(tiny, optimizer=OptimizerConfig(warmup_steps=warmup))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train(point_mass, config, out, stop_at=1, silent=True)
    told = [str(w.message) for w in caught if "warmup" in str(w.message)]
    assert len(told) == (warmup == 20)
    assert all("warmup_steps 20 is not below steps 20" in text for text in told)


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_no_decay_on_biases_norms_encodings_and_mask_tokens(modalities, name) -> None:
    model = MTM(modalities, ModelConfig(width=16, heads=2))
    optimizers = make_optimizers(model, OptimizerConfig(name=name, weight_decay=0.1))
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    names = {id(p): name for name, p in model.named_parameters()}
    of = {
        decay: [names[id(p)] for g in groups if g["weight_decay"] == decay for p in g["params"]]
        for decay in (0.1, 0.0)
    }
    assert sorted(of[0.1] + of[0.0]) == sorted(names.values())
    assert all(n.endswith(".weight") for n in of[0.1])
    assert {"mask_tokens", "encoder_modality_encoding", "encoder.norm.weight"} <= set(of[0.0])
    assert {n for n in names.values() if n.endswith("bias")} <= set(of[0.0])


def test_muon_takes_the_matrices_between_features_only(modalities) -> None:
    model = MTM(modalities, ModelConfig(width=32, heads=2, encoder_layers=1))
    adam, muon = make_optimizers(model, OptimizerConfig(name="muon"))
    names = {id(p): name for name, p in model.named_parameters()}
    taken = {names[id(p)] for group in muon.param_groups for p in group["params"]}
    assert {"encoder.layers.0.mlp_in.weight", "to_decoder.weight"} <= taken
    assert not any(name.startswith("encoders.") for name in taken)
    assert not any(name.startswith("heads.") and name.endswith(".3.weight") for name in taken)
    assert isinstance(adam, torch.optim.AdamW)
    (only,) = make_optimizers(model, OptimizerConfig(name="adamw"))
    assert isinstance(only, torch.optim.AdamW)


@pytest.mark.parametrize("network", ["transformer", "mlp"])
def test_muon_leaves_alone_what_touches_the_data_however_wide_it_is(network) -> None:
    wide = (Modality("states", (40,)), Modality("phase", (), "discrete", 50))
    config = ModelConfig(network=network, width=32, heads=2, encoder_layers=2)
    model = make_network(wide, config)
    adam, muon = make_optimizers(model, OptimizerConfig(name="muon"))
    outer = {id(layer.weight) for layer in model.outer_layers()}
    shapes = [layer.weight.shape for layer in model.outer_layers()]
    assert all(max(shape) > 32 for shape in shapes)
    assert not any(id(p) in outer for group in muon.param_groups for p in group["params"])
    assert outer <= {id(p) for group in adam.param_groups for p in group["params"]}
    assert muon.param_groups[0]["params"]


@pytest.mark.parametrize("shape", [(24, 8), (8, 24), (16, 16)])
def test_muon_moves_all_directions_equally_far(shape) -> None:
    torch.manual_seed(0)
    matrix = torch.nn.Parameter(torch.zeros(shape))
    muon = Muon([matrix], weight_decay=0.0)
    muon.param_groups[0]["lr"] = 0.1
    matrix.grad = torch.randn(shape) @ torch.diag(torch.logspace(-0.5, 0.5, shape[1]))
    muon.step()
    lengths = torch.linalg.svdvals(-matrix.detach()) / (0.1 * 0.2 * max(shape) ** 0.5)
    assert lengths.min() > 0.5
    assert lengths.max() < 1.3
    assert (matrix.detach() * matrix.grad).sum() < 0  # downhill


def test_muon_takes_matrices_of_all_shapes_together_as_it_takes_each_alone() -> None:
    torch.manual_seed(0)
    gradients = [torch.randn(shape) for shape in [(8, 24), (24, 8), (8, 8), (8, 24), (6, 6)]]

    def moved(chosen: list[torch.Tensor]) -> list[torch.Tensor]:
        matrices = [torch.nn.Parameter(torch.ones_like(g)) for g in chosen]
        muon = Muon(matrices, weight_decay=0.1)
        muon.param_groups[0]["lr"] = 0.02
        for matrix, gradient in zip(matrices, chosen, strict=True):
            matrix.grad = gradient.clone()
        muon.step()
        return [matrix.detach() for matrix in matrices]

    for alone, together in zip(gradients, moved(gradients), strict=True):
        torch.testing.assert_close(moved([alone])[0], together)


def test_muon_keeps_its_measure_in_bfloat16() -> None:
    torch.manual_seed(0)
    matrix = torch.nn.Parameter(torch.zeros(16, 16, dtype=torch.bfloat16))
    muon = Muon([matrix], weight_decay=0.0)
    muon.param_groups[0]["lr"] = 1.0
    matrix.grad = (torch.randn(16, 16) @ torch.diag(torch.logspace(-1, 1, 16))).bfloat16()
    muon.step()
    lengths = torch.linalg.svdvals(matrix.detach().float()) / (0.2 * 16**0.5)
    assert lengths.max() < 1.3


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="PyTorch has it from 2.9 on")
def test_muon_agrees_with_pytorchs_own() -> None:
    torch.manual_seed(0)
    ours, theirs = (torch.nn.Parameter(torch.ones(16, 48)) for _ in range(2))
    muon = Muon([ours], weight_decay=0.1)
    muon.param_groups[0]["lr"] = 0.02
    reference = torch.optim.Muon(
        [theirs], lr=0.02, weight_decay=0.1, momentum=0.95, adjust_lr_fn="match_rms_adamw"
    )
    for _ in range(5):
        gradient = torch.randn(16, 48)
        ours.grad, theirs.grad = gradient.clone(), gradient.clone()
        muon.step()
        reference.step()
    # PyTorch's works in bfloat16, which has 8 bits.
    assert torch.allclose(ours, theirs, atol=5e-3)
    assert not torch.allclose(ours, torch.ones_like(ours), atol=5e-2)


def test_horizon_and_kind_of_returns_reach_the_model(point_mass, tiny) -> None:
    average = prepare(point_mass, tiny).arrays["returns"]
    total = prepare(point_mass, replace(tiny, returns=ReturnsConfig(kind="sum"))).arrays["returns"]
    assert total[0] == pytest.approx(20 * average[0], rel=1e-5)


def test_batch_size_must_be_shared_evenly(point_mass, tiny, out) -> None:
    with pytest.raises(ConfigError, match="batch_size 16 must be a multiple of the 3"):
        train(point_mass, tiny, out, device=DeviceConfig(devices=3), silent=True)


DDP_PROGRAM = """
import sys
import numpy as np
from mtm.core.config import DeviceConfig, ModelConfig, TrainConfig
from mtm.data.formats import builtin
from mtm.training.train import train
from mtm.data.trajectories import TrajectoryDataset

if __name__ == "__main__":
    out, devices, members = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    base = builtin.point_mass(episodes=60, length=20)
    known = np.random.default_rng(0).random(1200) < 0.5
    data = TrajectoryDataset.from_arrays(
        base.arrays, [0, *base.ends], present={"actions": known}, metadata=base.metadata
    )
    config = TrainConfig(
        steps=6, batch_size=16, validation_segments=64, validate_every=3, checkpoint_every=3,
        log_every=3,
        model=ModelConfig(width=16, encoder_layers=1, heads=2, dropout=0.0, members=members),
    )
    strategy = "ddp" if devices > 1 else "auto"
    train(data, config, out, silent=True,
          device=DeviceConfig(accelerator="cpu", devices=devices, strategy=strategy, threads=1))
"""


@pytest.mark.parametrize("members", [1, 2])
def test_two_processes_match_one_with_the_joined_batch(tmp_path, members) -> None:
    """Half of the actions are absent, so the parts of a batch weigh differently."""
    program = tmp_path / "program.py"
    program.write_text(DDP_PROGRAM)
    for name, devices in [("one", "1"), ("two", "2")]:
        subprocess.run(
            [sys.executable, str(program), str(tmp_path / name), devices, str(members)],
            check=True,
            timeout=300,
        )
    one, two = (checkpoint.load(tmp_path / n / "checkpoints").model for n in ("one", "two"))
    for name in one:
        torch.testing.assert_close(one[name], two[name], rtol=1e-4, atol=1e-5)
    logged = [(tmp_path / n / "metrics.csv").read_text().splitlines()[1] for n in ("one", "two")]
    losses = [[float(cell) for cell in line.split(",")[1:5]] for line in logged]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


LOST_PROGRAM = """
import os
import sys
from pathlib import Path
from mtm.core.config import DeviceConfig, ModelConfig, TrainConfig
from mtm.core.errors import RunError
from mtm.data.formats import builtin
from mtm.training.train import train
from mtm.training.validation import Validator

def listening():
    mine = {p.readlink().name for p in Path("/proc/self/fd").iterdir() if p.is_symlink()}
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            place, state, inode = (line.split()[i] for i in (1, 3, 9))
            if state == "0A" and f"socket:[{inode}]" in mine:
                yield place.partition(":")[0]

if __name__ == "__main__":
    Validator.measure = lambda self, model: {"loss": float("nan"), "states/hidden": float("nan")}
    config = TrainConfig(
        steps=2, batch_size=16, validation_segments=16, log_every=1, validate_every=1,
        model=ModelConfig(width=8, encoder_layers=1, heads=1),
    )
    device = DeviceConfig(accelerator="cpu", devices=2, strategy="ddp", threads=1)
    try:
        train(builtin.point_mass(20, 10), config, sys.argv[1], silent=True, device=device)
    except RunError as error:
        Path(sys.argv[1], f"said-{os.getpid()}").write_text(
            f"{error} listens on {sorted(set(listening()))}"
        )
"""


def test_a_loss_that_is_no_number_stops_all_processes(tmp_path) -> None:
    """Which meet on the loopback address of the machine, where no other one hears of it."""
    program, out = tmp_path / "program.py", tmp_path / "out"
    program.write_text(LOST_PROGRAM)
    subprocess.run([sys.executable, str(program), str(out)], check=True, timeout=180)
    said = [file.read_text() for file in out.glob("said-*")]
    assert len(said) == 2
    for text in said:
        assert "the held-out loss became nan by step 1, of loss, states/hidden" in text
        assert set(text.partition("listens on ")[2].strip("[]").split(", ")) <= {"'0100007F'"}
    assert any("0100007F" in text for text in said)


def test_samples_are_asked_only_for_what_they_have() -> None:
    config = replace(mtm.preset("tiny"), mask="fd+id", batch_size=64)
    data = prepare(builtin.point_mass(20, 30), config).without(episodes={"actions": 0.5})
    description = Description(config, data.modalities, Normalizer.fit(data), {})
    make_batch = BatchMaker(
        description,
        Segments(data, config.model.segment_length),
        training_mask(config),
    )
    inputs = make_batch(0)
    visible = inputs.masks.visible
    names = [m.name for m in data.modalities]
    states, actions = names.index("states"), names.index("actions")
    drawn = make_batch.segments.draw(config.batch_size, config.seed, 0)
    has_actions = make_batch.segments.present(drawn)[:, :, actions].any(axis=1)
    lacks_actions = torch.from_numpy(~has_actions)
    all_states = visible[:, :, states].all(dim=1)  # inverse dynamics; the other mask hides the last
    assert 10 < lacks_actions.sum() < 54
    assert not all_states[lacks_actions].any()
    assert 5 < all_states[~lacks_actions].sum() < (~lacks_actions).sum() - 5
