"""S-MTM: the same transformer, trained with the mask of one capability."""

from __future__ import annotations

from dataclasses import replace

from mtm.core.config import TrainConfig, preset
from mtm.core.errors import ConfigError, unknown
from mtm.core.names import CAPABILITIES, Capability

SEGMENT_LENGTHS: dict[Capability, int] = {"bc": 1, "rcbc": 1, "id": 2, "fd": 2}
"""The shortest segment that each capability needs."""


def specialised_config(capability: Capability, scale: str = "cpu") -> TrainConfig:
    """The settings of a preset with the mask of one capability.

    Args:
        capability: bc, rcbc, id or fd.
        scale: The preset: tiny, cpu or paper.

    Raises:
        ConfigError: There is no such capability or preset.
    """
    if capability not in CAPABILITIES:
        raise ConfigError(unknown("capability", capability, CAPABILITIES))
    return replace(preset(scale), mask=capability)
