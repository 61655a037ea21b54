"""Torch's threads are the caller's: whoever changes their number gives it back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def restored_threads() -> Iterator[None]:
    """Leave with as many threads as there were on entering; `@restored_threads()` decorates."""
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)
