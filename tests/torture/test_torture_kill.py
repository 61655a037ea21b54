"""Every verb that writes, killed at random moments: `make torture` with few kills."""

from __future__ import annotations

import pytest
from torture.kill import kill
from torture.outcomes import check
from torture.verbs import VERBS
from torture.warm import Warm

pytest.importorskip("stable_baselines3", reason="the extra `collect` is not installed")
pytest.importorskip("onnxscript", reason="the extra `export` is not installed")
pytest.importorskip("torchrl", reason="the extra `baselines` is not installed")
pytest.importorskip("pyarrow", reason="the extra `parquet` is not installed")

KILLS = 3


def test_whoever_is_killed_goes_on_as_if_nothing_had_been(warm: Warm) -> None:
    rows = kill(warm, KILLS)
    check(rows)
    assert len(rows) == 2 * len(VERBS)  # and what each verb renamed was flushed before
    assert all(row.cases == KILLS for row in rows if row.part == "kill")
