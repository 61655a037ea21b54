"""Statistics count present values of the training split, and nothing else."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from mtm.core.errors import DataError
from mtm.data.normalizer import Normalizer
from mtm.data.trajectories import TrajectoryDataset


def random_set(seed: int = 0, absent_value: float = 0.0) -> TrajectoryDataset:
    rng = np.random.default_rng(seed)
    values = rng.normal(5, 3, size=(100, 4)).astype(np.float32)
    known = rng.random(100) < 0.7
    values[~known] = absent_value
    return TrajectoryDataset.from_arrays(
        {"states": values, "gripper": rng.integers(3, size=100)},
        [0, 30, 60, 100],
        present={"states": known},
    )


def test_statistics_of_present_values_in_the_view(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mtm.data.validate_arrays.CHUNK_STEPS", 7)  # many chunks to merge
    view = random_set().subset([0, 2])
    known = view.present["states"].copy()
    known[30:60] = False
    values = view.arrays["states"][known].astype(np.float64)
    statistics = Normalizer.fit(view).statistics["states"]
    np.testing.assert_allclose(statistics.mean, values.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(statistics.std, values.std(axis=0), rtol=1e-6)
    np.testing.assert_array_equal(statistics.low, values.min(axis=0).astype(np.float32))


@pytest.mark.parametrize("value", [1e9, np.nan, np.inf])
def test_absent_values_change_nothing(value: float) -> None:
    reference = Normalizer.fit(random_set()).to_json()
    assert Normalizer.fit(random_set(absent_value=value)).to_json() == reference


def test_there_and_back_and_json_to_the_bit() -> None:
    data = random_set()
    normalizer = Normalizer.fit(data)
    again = Normalizer.from_json(json.loads(json.dumps(normalizer.to_json())), data.modalities)
    x = torch.randn(5, 2, 4)
    assert torch.equal(normalizer.normalize("states", x), again.normalize("states", x))
    back = normalizer.denormalize("states", normalizer.normalize("states", x))
    torch.testing.assert_close(back, x)
    classes = torch.tensor([0, 1, 2])
    assert torch.equal(normalizer.normalize("gripper", classes), classes)


@pytest.mark.parametrize("scale", [1e-8, 5e-7, 1.0, 1e8])
def test_a_feature_of_any_scale_is_scaled(scale: float) -> None:
    values = np.random.default_rng(0).normal(0, scale, (1000, 1))
    data = TrajectoryDataset.from_arrays({"states": values}, [0, 1000])
    normalized = Normalizer.fit(data).normalize("states", torch.from_numpy(data.arrays["states"]))
    assert normalized.std().item() == pytest.approx(1.0, rel=0.01)


@pytest.mark.parametrize("value", [0.0, 1e-3, 1.0, 1e6])
def test_rounding_around_a_constant_is_not_blown_up(value: float) -> None:
    constant = np.full((1000, 1), value, np.float32)
    constant[::2] = np.nextafter(constant[::2], np.float32(np.inf)) if value else 1e-16
    data = TrajectoryDataset.from_arrays({"states": constant}, [0, 1000])
    assert Normalizer.fit(data).statistics["states"].std == 1.0


def test_a_constant_feature_is_not_blown_up() -> None:
    data = TrajectoryDataset.from_arrays({"states": np.full((10, 2), 7.0)}, [0, 10])
    normalized = Normalizer.fit(data).normalize("states", torch.full((1, 1, 2), 7.0))
    assert normalized.abs().max() == 0


def test_a_modality_absent_everywhere_is_named() -> None:
    data = TrajectoryDataset.from_arrays(
        {"states": np.zeros((4, 1)), "actions": np.zeros((4, 1))},
        [0, 4],
        present={"actions": np.zeros(4, bool)},
    )
    with pytest.raises(DataError, match="'actions' is absent in every step"):
        Normalizer.fit(data)
