"""The method behind the curves of TD3 on raw states and on a run's representations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mtm.core.config_io import from_plain
from mtm.research.baselines.td3 import train_td3
from mtm.research.baselines.td3_config import TD3Config
from mtm.research.experiments.methods import Stopped
from mtm.research.experiments.spec import RunSpec


def run(spec: RunSpec, folder: Path, needs: Sequence[Path]) -> dict[str, Any]:
    """Train TD3 offline with `settings["td3"]`, on the representation of the run in `needs`.

    Returns:
        `curve`: the fields of `td3_curve.Point` for every evaluation, and `seconds`.

    Raises:
        Stopped: A signal ended the training early.
    """
    config = from_plain(spec.settings["td3"], TD3Config())
    pretrained = needs[0] if needs else None
    curve = train_td3(spec.data, config, folder, encoder_run=pretrained, resume=True, silent=True)
    if not curve or curve[-1].updates < config.updates:
        raise Stopped
    return {"curve": [asdict(point) for point in curve], "seconds": curve[-1].seconds}
