"""Locks: one holder at a time. That they end with their holder is tested where they are used."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from mtm.core.errors import RunError
from mtm.core.locks import locked


def test_one_holder_at_a_time(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    with locked(file, wait=False) as mine:
        assert mine
        with locked(file, wait=False) as another:
            assert not another
    with locked(file, wait=False) as mine:
        assert mine


def test_waiting_for_the_holder(tmp_path: Path) -> None:
    order, held = [], threading.Event()

    def wait() -> None:
        held.wait()
        with locked(tmp_path / "lock"):
            order.append("second")

    thread = threading.Thread(target=wait)
    thread.start()
    with locked(tmp_path / "lock"):
        held.set()
        thread.join(0.2)
        assert thread.is_alive()
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_what_cannot_be_locked_is_told(tmp_path: Path) -> None:
    (tmp_path / "lock").mkdir()
    with pytest.raises(RunError, match="lock cannot be locked"), locked(tmp_path / "lock"):
        pass
