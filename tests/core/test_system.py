"""What is asked of this machine."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from mtm.core import system


@pytest.mark.parametrize(
    ("allowed", "expected"),
    [
        (1 << 62, [(system.M_MMAP_THRESHOLD, 1 << 30), (system.M_TRIM_THRESHOLD, 1 << 30)]),
        (1 << 25, [(system.M_MMAP_THRESHOLD, 1 << 25), (system.M_TRIM_THRESHOLD, 1 << 30)]),
        (0, []),
    ],
    ids=["glibc 2.35", "glibc 2.34", "refused"],
)
def test_freed_memory_is_kept_as_far_as_glibc_lets_us(
    allowed: int, expected: list, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = []

    def mallopt(parameter: int, value: int) -> int:
        if parameter == system.M_MMAP_THRESHOLD and value > allowed:
            return 0
        taken.append((parameter, value))
        return 1

    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(system.ctypes, "CDLL", lambda name: SimpleNamespace(mallopt=mallopt))
    system.keep_freed_memory()
    assert taken == expected
