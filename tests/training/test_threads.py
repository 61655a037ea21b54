"""Training leaves the caller's threads alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from mtm.core.config import DeviceConfig
from mtm.core.errors import RunError
from mtm.training.train import train


@pytest.fixture
def threads() -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield 3
    torch.set_num_threads(before)


def test_train_gives_the_threads_back(threads: int, point_mass, tiny, out) -> None:
    train(point_mass, replace(tiny, steps=2), out, device=DeviceConfig(threads=1), silent=True)
    assert torch.get_num_threads() == threads
    with pytest.raises(RunError):  # after the threads are set: there is a run already
        train(point_mass, replace(tiny, steps=2), out, device=DeviceConfig(threads=1), silent=True)
    assert torch.get_num_threads() == threads
