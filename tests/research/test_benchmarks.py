"""The benchmarks' own parts: what they compare is what they say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from benchmarks import acting
from benchmarks.time_to_quality import original_mask
from benchmarks.timing import seconds_in_turns, seconds_of_each
from benchmarks.training import Stepper, one_for_all
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from mtm.core.config import OptimizerConfig, TrainConfig
from mtm.data.modalities import Modality
from mtm.data.trajectories import TrajectoryDataset
from mtm.masks import make_mask
from mtm.masks.training_masks import WEIGHTS


def test_the_original_draws_one_mask_for_all_and_hides_what_follows_a_token(
    modalities: tuple[Modality, ...],
) -> None:
    rng = np.random.default_rng(0)
    drawn = [original_mask(modalities, 4, 2, rng) for _ in range(4000)]
    for visible in drawn:
        assert visible.shape == (2, 4, 3)
        assert (visible == visible[0]).all()
    # The last state is not cut off if the last time is drawn, and not the state of it.
    kept = 1 / 4 * (1 - WEIGHTS["state"] / sum(WEIGHTS[m.role] for m in modalities))
    # The shares make 2, 2, 2, 3, 3, 3, 3 and 4 of four steps: 22 / 32 of them, all in 1 of 8 cases.
    assert np.mean([v[0, 3, 0] for v in drawn]) == pytest.approx(22 / 32 * kept, abs=0.015)
    assert np.mean([v[0, :, 0].all() for v in drawn]) == pytest.approx(1 / 8 * kept, abs=0.006)


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
