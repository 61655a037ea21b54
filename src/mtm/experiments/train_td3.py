"""The method behind the curves of TD3 on raw states and on a run's representations."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mtm.errors import require
from mtm.experiments.spec import RunSpec


def run(spec: RunSpec, folder: Path, needs: Sequence[Path]) -> dict[str, Any]:
    """Train TD3 offline with `settings["td3"]`, on the representation of the run in `needs`.

    Returns:
        `curve`: a list of `{"update", "seconds", "return"}`.
    """
    td3 = require("mtm.baselines.td3", extra="baselines")
    result: dict[str, Any] = td3.reproduce(spec, folder, needs)
    return result
