"""What is asked of this machine."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from mtm.core import system
from mtm.core.errors import ConfigError


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


@pytest.mark.parametrize("said", ["all", "0", "-2", "1.5", ""])
def test_a_number_of_cores_that_is_none_is_refused(
    said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MTM_CORES", said)
    with pytest.raises(ConfigError, match=rf"MTM_CORES is '{said}', .* 1 or more. Unset it"):
        system.available_cores()


def test_no_more_cores_are_used_than_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MTM_CORES", raising=False)
    cores = system.available_cores()
    for said, used in (("1", 1), (" 1 ", 1), (str(cores + 1), cores)):
        monkeypatch.setenv("MTM_CORES", said)
        assert system.available_cores() == used
