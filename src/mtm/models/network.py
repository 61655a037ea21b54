"""The one place where a network is chosen and built."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from mtm.core.config import ModelConfig
from mtm.data.modalities import Modality
from mtm.models.mlp import MLP
from mtm.models.mtm import MTM

Network: TypeAlias = MTM | MLP
"""What a run can hold: anything that is called with values and `visible`."""


def make_network(modalities: Sequence[Modality], config: ModelConfig) -> Network:
    """The network that the settings name, with weights drawn from torch's generator."""
    kind = MLP if config.network == "mlp" else MTM
    return kind(modalities, config)
