"""Load, and what is installed: `make torture` with few clients and a short while."""

from __future__ import annotations

import pytest
from torture.load import load, soaked
from torture.outcomes import Row, check
from torture.supply import _bill, pins
from torture.warm import Warm

pytest.importorskip("uvicorn", reason="the extras `serve` and `studio` are not installed")
pytest.importorskip("gymnasium", reason="the extra `sim` is not installed")


def test_many_episodes_and_clients_and_a_while(warm: Warm) -> None:
    check(load(warm, episodes=50, clients=30))
    check(soaked(warm, minutes=0.05))


def test_the_bill_of_materials_lists_what_is_pinned() -> None:
    row = Row("supply", "the bill of materials")
    _bill(row)
    check([row])
    assert row.cases == len(pins())
