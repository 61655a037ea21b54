"""The benchmarks' own parts: what they compare is what they say."""

from __future__ import annotations

import os
from argparse import ArgumentTypeError, Namespace
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from benchmarks import acting, beside_original, studio, time_to_quality
from benchmarks.timing import seconds_in_turns, seconds_of_each
from benchmarks.training import Stepper, one_for_all
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from mtm.core.config import OptimizerConfig, TrainConfig, preset
from mtm.core.config_io import differences
from mtm.data.formats.store import open_store
from mtm.data.modalities import Modality
from mtm.data.trajectories import TrajectoryDataset
from mtm.masks import make_mask


def test_a_level_counts_when_the_first_learning_rate_reaches_it() -> None:
    def curve(*errors: float) -> list[dict[str, float]]:
        return [{"step": i, "seconds": 10.0 * i, "fd": e, "id": e} for i, e in enumerate(errors)]

    ours = {"0.003": curve(0.9, 0.4, 0.1)}
    theirs = {"0.0001": curve(0.9, 0.8, 0.7), "0.001": curve(0.9, 0.6, 0.5)}
    curves = {time_to_quality.OURS: ours, time_to_quality.ORIGINAL: theirs}
    found = time_to_quality._reached(curves, "fd", 0.6)
    assert found[time_to_quality.OURS] == {"step": 1, "seconds": 10.0, "rate": "0.003"}
    assert found[time_to_quality.ORIGINAL] == {"step": 1, "seconds": 10.0, "rate": "0.001"}
    assert time_to_quality._reached(curves, "fd", 0.2)[time_to_quality.ORIGINAL] is None
    levels = {"fd": [], "id": []}
    assert list(time_to_quality._bests(curves, levels, copying=0.55)) == [("fd", 0.5), ("id", 0.5)]
    assert list(time_to_quality._bests(curves, levels, copying=0.5)) == [("id", 0.5)]
    with pytest.raises(ArgumentTypeError, match="below 1"):
        time_to_quality._share("1.2")


def test_the_original_s_recipe_is_the_paper_preset_at_our_size() -> None:
    recipes = time_to_quality._recipes(4000, 7, [1e-4, 1e-3])
    theirs = recipes[time_to_quality.ORIGINAL]
    assert list(theirs) == ["0.0001", "0.001"]
    changed = differences(preset("paper").to_json(), theirs["0.0001"].to_json())
    names = {line.split(":")[0] for line in changed}
    looks = {"keep_checkpoints", "checkpoint_every", "validate_every", "validation_segments"}
    sizes = {"batch_size", "model.width", "steps", "optimizer.warmup_steps", "seed"}
    assert names == looks | sizes


def options(**changes: object) -> Namespace:
    chosen = {"steps": 3000, "every": 100, "width": 512, "batch_size": 1024}
    return Namespace(**chosen | changes)


def test_beside_the_original_stands_the_paper_preset_with_its_share_of_warm_up() -> None:
    config = beside_original.settings(options(), seed=5)
    changed = differences(preset("paper").to_json(), config.to_json())
    names = {line.split(":")[0] for line in changed}
    assert names == {
        *("steps", "seed", "optimizer.warmup_steps"),
        *("validate_every", "checkpoint_every"),
    }
    assert config.optimizer.warmup_steps == round(3000 * 40 / 140)


@pytest.mark.skipif(
    "MTM_REFERENCE" not in os.environ,
    reason="MTM_REFERENCE names no checkout of facebookresearch/mtm",
)
def test_the_original_is_trained_on_our_segments_and_measured_as_ours() -> None:
    config = beside_original.settings(options(steps=12, every=4, width=32, batch_size=64), seed=100)
    curve = beside_original._its(Path(os.environ["MTM_REFERENCE"]), "builtin:point-mass", config)
    assert [row["step"] for row in curve] == [4, 8, 12]
    assert all(0.3 < row[name] < 6 for row in curve for name in beside_original.SHOWN)
    assert curve[-1]["loss"] != curve[0]["loss"]


def everything(modalities, segment_length, batch_size, rng) -> np.ndarray:
    return np.ones((batch_size, segment_length, len(modalities)), bool)


@pytest.mark.parametrize("variance", [True, False])
def test_operations_are_counted_as_pytorch_counts_them(tiny: TrainConfig, variance: bool) -> None:
    """PyTorch counts products of matrices; so the optimizer is one that takes none."""
    rng = np.random.default_rng(0)
    data = TrajectoryDataset.from_arrays(
        {"states": rng.random((60, 40)), "gear": rng.integers(30, size=60)}, [0, 60]
    )
    config = replace(tiny, model=replace(tiny.model, predict_variance=variance))
    stepper = Stepper(data, replace(config, optimizer=OptimizerConfig(name="adamw")))
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        stepper.step(everything)
    assert stepper.flops(everything) == pytest.approx(counter.get_total_flops(), rel=0.01)


def test_fewer_visible_tokens_are_fewer_operations(
    point_mass: TrajectoryDataset, tiny: TrainConfig
) -> None:
    stepper = Stepper(point_mass, tiny)
    D, B, L = tiny.model.width, tiny.batch_size, 12
    # One encoder layer, on to the decoder, and there what samples do not have in common.
    per_token = 24 * D * D + 4 * D * L + 2 * D * D + 6 * D * D
    spared = stepper.flops(everything) - stepper.flops(lambda *a: np.zeros_like(everything(*a)))
    assert spared == pytest.approx(3 * B * L * per_token)


def test_operations_of_an_action_are_those_that_it_needs() -> None:
    D, numbers = 128, 11 + 1  # width; a state and a return
    encoder = 2 * 2 * 12 * D * D  # two layers, two visible tokens
    to_decoder = 2 * (D * D + (D + 4) * D)  # of each: its values, and its scores for four heads
    wanted = 9 * D * D + D * D + D * 6  # one token: the decoder's layer, and its head
    operations = 2 * (numbers * D + encoder + to_decoder + wanted)
    assert acting.flops(1) == operations
    assert acting.flops(3) == 3 * operations


def test_a_mask_for_all_is_the_same_for_each_sample(modalities: tuple[Modality, ...]) -> None:
    visible = one_for_all(make_mask("random"))(modalities, 4, 8, np.random.default_rng(0))
    assert visible.shape == (8, 4, 3)
    assert (visible == visible[0]).all()


def test_calls_are_timed_in_turns() -> None:
    order: list[str] = []
    calls = {name: lambda name=name: order.append(name) for name in "ab"}
    seconds = seconds_of_each(calls, at_least=0.0, warmup=1)
    assert order[:6] == list("ababab")
    assert set(seconds) == {"a", "b"}


def test_programs_compute_in_turns(tmp_path) -> None:
    training = ("one_training", tmp_path / "run", "--preset=tiny", "--steps=20", "--in-turns")
    turn = seconds_in_turns({"training": training}, steps=3, warmup=1)["training"]
    assert 0 < turn.step < turn.whole < 60
    nonsense = {"no such preset": ("one_training", tmp_path, "--preset=none")}
    with pytest.raises(RuntimeError, match="ended with exit code"):
        seconds_in_turns(nonsense, steps=1, warmup=0)


@pytest.mark.filterwarnings("error")
def test_the_studio_is_measured_with_a_store_of_today(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(studio, "STEPS", 5000)
    monkeypatch.setattr(studio, "PART", 1000)
    studio._write_large(tmp_path / "store")
    stored = open_store(tmp_path / "store")
    assert (stored.num_steps, stored.num_episodes) == (5000, 10)
    assert stored.blocks is not None
    assert stored.blocks.have_digests
