"""How things are timed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Row:
    """One measured number."""

    part: str
    what: str
    value: float
    unit: str


def seconds_per_call(
    call: Callable[[], object], *, at_least: float = 1.5, warmup: int = 2
) -> float:
    """The median over calls that take `at_least` seconds together."""
    for _ in range(warmup):
        call()
    times: list[float] = []
    while sum(times) < at_least or len(times) < 3:
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return sorted(times)[len(times) // 2]


def peak_flops(size: int = 2048) -> float:
    """Floating-point operations per second of a large matrix product: this machine's limit."""
    a, b = torch.randn(size, size), torch.randn(size, size)
    return 2 * size**3 / seconds_per_call(lambda: a @ b)
