"""What the tests of the campaign share: one warm process, as to import torch takes seconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from torture.warm import Warm


@pytest.fixture(scope="session")
def warm() -> Iterator[Warm]:
    with Warm() as process:
        yield process
