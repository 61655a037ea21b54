"""The method behind the curves of TD3 on raw states and on a run's representations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mtm.errors import require
from mtm.experiments.spec import RunSpec


def run(spec: RunSpec, folder: Path, needs: Sequence[Path]) -> dict[str, Any]:
    """Train TD3 offline with `settings["td3"]`, on the representation of the run in `needs`.

    Returns:
        `curve`: a list of `{"updates", "seconds", "return_mean", "return_std"}`, and `seconds`.
    """
    td3 = require("mtm.baselines.td3_method", extra="baselines")
    plain = replace(spec, settings=spec.settings["td3"])
    result: dict[str, Any] = td3.method(plain, folder, needs)
    return result
