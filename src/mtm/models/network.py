"""The one place where a network is chosen, built and moved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, TypeVar

import torch
from torch import nn

from mtm.core.config import ModelConfig
from mtm.core.errors import ConfigError, DataError
from mtm.data.modalities import Modality
from mtm.models.members import Members
from mtm.models.mlp import MLP
from mtm.models.mtm import MTM

Network: TypeAlias = MTM | MLP | Members
"""What a run can hold: anything that is called with values and `visible`."""


_Module = TypeVar("_Module", bound=nn.Module)


def make_network(modalities: Sequence[Modality], config: ModelConfig) -> Network:
    """The network that the settings name, with weights drawn from torch's generator.

    Several members draw theirs one after the other: the first has the weights that it would have
    alone, and each the same however many follow.

    Raises:
        DataError: As `check_names`.
    """
    check_names(modalities)
    kind = MLP if config.network == "mlp" else MTM
    networks = [kind(modalities, config) for _ in range(config.members)]
    return networks[0] if len(networks) == 1 else Members(networks)


def check_names(modalities: Sequence[Modality]) -> None:
    """Refuse names that PyTorch does not let a network's parts have.

    Raises:
        DataError: A modality has such a name.
    """
    taken = [m.name for m in modalities if hasattr(nn.ModuleDict, m.name)]
    if taken:
        raise DataError(
            f"a network cannot have a modality named {', '.join(map(repr, taken))}: PyTorch uses "
            "the name itself. Choose another, as with --reading.columns NAME=COLUMN."
        )


def move(network: _Module, device: str | torch.device) -> _Module:
    """Put a network on a device.

    Raises:
        ConfigError: There is no such device here.
    """
    try:
        return network.to(torch.device(device))
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ConfigError(
            f"the device {str(device)!r} cannot be used here: {str(error).rstrip('.')}. cpu always "
            "works; cuda and mps need such hardware and a build of PyTorch for it."
        ) from error
