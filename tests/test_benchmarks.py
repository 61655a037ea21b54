"""The benchmarks' own parts: what they compare is what they say."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.time_to_quality import original_mask
from benchmarks.timing import seconds_of_each
from benchmarks.training import Stepper, one_for_all

from mtm.config import TrainConfig
from mtm.masks import make_mask
from mtm.modalities import Modality
from mtm.trajectories import TrajectoryDataset


def test_the_original_draws_one_mask_for_all_and_hides_what_follows_a_token(
    modalities: tuple[Modality, ...],
) -> None:
    rng = np.random.default_rng(0)
    drawn = [original_mask(modalities, 4, 8, rng) for _ in range(300)]
    for visible in drawn:
        assert visible.shape == (8, 4, 3)
        assert (visible == visible[0]).all()
    last_states = [visible[0, 3, 0] for visible in drawn]
    all_states = [visible[0, :, 0].all() for visible in drawn]
    assert 0 < np.mean(last_states) < 0.25
    assert np.mean(all_states) < 0.1  # three of four steps at most, but for the share 1.0


@pytest.mark.parametrize("mask", [make_mask("random"), one_for_all(make_mask("random"))])
def test_a_step_is_counted(point_mass: TrajectoryDataset, tiny: TrainConfig, mask) -> None:
    stepper = Stepper(point_mass, tiny)
    stepper.step(mask)
    assert stepper.flops(mask) > 0


def test_calls_are_timed_in_turns() -> None:
    order: list[str] = []
    calls = {name: lambda name=name: order.append(name) for name in "ab"}
    seconds = seconds_of_each(calls, at_least=0.0, warmup=1)
    assert order[:6] == list("ababab")
    assert set(seconds) == {"a", "b"}
