"""TD3 as a method of an experiment, and the runs of `mtm reproduce representation`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from mtm.baselines.td3_config import TD3Config, td3_preset
from mtm.baselines.td3_curve import area, final_return, first_to_reach
from mtm.config import TrainConfig, from_plain, preset

TASKS = {"tiny": ("walk",), "cpu": ("stand", "walk"), "paper": ("stand", "walk", "run")}
"""Tasks of the walker at each scale."""

RETURN_TO_REACH = "return_to_reach"
"""A setting beside those of TD3: the return whose updates and seconds the result tells."""


class Spec(Protocol):
    """What a run is, as plain data."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """Those of `TD3Config` that differ from the defaults, and perhaps `return_to_reach`."""

    @property
    def data(self) -> str:
        """What names the data set: `exorl:TASK:DIRECTORY`."""

    @property
    def seed(self) -> int:
        """Of the run."""


def pretraining(scale: str) -> dict[str, Any]:
    """Settings of the run that is pretrained, states and actions only, as plain data."""
    return TrainConfig.from_json({"modalities": ["states", "actions"]}, preset(scale)).to_json()


def settings(scale: str, variant: str) -> dict[str, Any]:
    """Settings of TD3 for a scale and a variant, as plain data."""
    return asdict(from_plain({"variant": variant}, td3_preset(scale)))


def method(spec: Spec, work: Path, needs: Sequence[Path]) -> dict[str, Any]:
    """Train TD3, or go on with it.

    Args:
        spec: What to do.
        work: The directory to work in; what it holds is resumed.
        needs: The directory of the pretrained run; empty for the variant `raw`.

    Returns:
        `variant`, `curve` (a dict per evaluation), `area` under it per update, `final_return`,
        `seconds` in all, and `reached`: the evaluation that first had the return to reach, None if
        none had, or none was asked for.
    """
    from mtm.baselines.td3 import train_td3

    plain = dict(spec.settings)
    target = plain.pop(RETURN_TO_REACH, None)
    config = from_plain(plain | {"seed": spec.seed}, TD3Config())
    run = needs[0] if needs else None
    curve = train_td3(spec.data, config, work, encoder_run=run, resume=True)
    reached = None if target is None else first_to_reach(curve, target)
    return {
        "variant": config.variant,
        "curve": [asdict(point) for point in curve],
        "area": area(curve),
        "final_return": final_return(curve),
        "seconds": curve[-1].seconds,
        "reached": None if reached is None else asdict(reached),
    }
