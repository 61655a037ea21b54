"""The one place where a network is chosen, built and moved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import torch

from mtm.core.config import ModelConfig
from mtm.core.errors import ConfigError
from mtm.data.modalities import Modality
from mtm.models.mlp import MLP
from mtm.models.mtm import MTM

Network: TypeAlias = MTM | MLP
"""What a run can hold: anything that is called with values and `visible`."""


def make_network(modalities: Sequence[Modality], config: ModelConfig) -> Network:
    """The network that the settings name, with weights drawn from torch's generator."""
    kind = MLP if config.network == "mlp" else MTM
    return kind(modalities, config)


def move(network: Network, device: str | torch.device) -> Network:
    """Put a network on a device.

    Raises:
        ConfigError: There is no such device here.
    """
    try:
        return network.to(torch.device(device))
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ConfigError(
            f"the device {str(device)!r} cannot be used here: {error} cpu always works; cuda and "
            "mps need such hardware and a build of PyTorch for it."
        ) from error
