"""A run is a directory that describes itself: load it and its model is ready to use.

    RUN/config.json     see mtm.runs.description
    RUN/checkpoints/    see mtm.runs.checkpoint

It loads without the data set, on another machine, years later.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from mtm.core.errors import ConfigError, RunError
from mtm.data.modalities import Modalities
from mtm.data.normalizer import Normalizer
from mtm.models.fixed_mask import FixedMasks
from mtm.models.members import Members
from mtm.models.mtm import MTM
from mtm.models.network import Network, make_network, move
from mtm.runs import checkpoint
from mtm.runs.checkpoint import Which
from mtm.runs.description import Description, read_description


@dataclass(frozen=True)
class Run:
    """A trained model, ready to use.

    Attributes:
        path: The directory.
        description: Settings, modalities, normalizer, data summary.
        model: The network in evaluation mode.
        step: Optimizer steps behind the weights.
        fixed_masks: The network specialised to the masks that were asked last.
    """

    path: Path
    description: Description
    model: Network
    step: int
    fixed_masks: FixedMasks = field(
        default_factory=FixedMasks, init=False, repr=False, compare=False
    )

    @property
    def modalities(self) -> Modalities:
        """The streams that the model knows, in order."""
        return self.description.modalities

    @property
    def normalizer(self) -> Normalizer:
        """Raw units to the model's units and back."""
        return self.description.normalizer

    @property
    def segment_length(self) -> int:
        """T: time steps that the model sees at once."""
        return self.model.config.segment_length

    @property
    def members(self) -> int:
        """K: networks that answer together."""
        return self.model.config.members

    @property
    def device(self) -> torch.device:
        """Where the model is; every question is answered there."""
        return next(self.model.parameters()).device

    def to(self, device: str | torch.device) -> Run:
        """This run with its model on a device, such as `cuda`.

        Raises:
            ConfigError: There is no such device here.
        """
        return replace(self, model=move(copy.deepcopy(self.model), device))

    @property
    def transformer(self) -> MTM:
        """The network, where something needs its encoder; of several members, all as one.

        Raises:
            ConfigError: It is not the transformer.
        """
        network = self.model.stacked if isinstance(self.model, Members) else self.model
        if not isinstance(network, MTM):
            raise ConfigError(
                f"the network of {self.path} is an MLP, which encodes no states; this needs a run "
                "of the transformer."
            )
        return network


def load_run(
    path: str | Path, which: Which | int = "last", *, device: str | torch.device = "cpu"
) -> Run:
    """Load a run's model; the data set is not needed.

    Args:
        path: The run directory.
        which: `last`, `best` (lowest held-out loss) or a step.
        device: Where the model is to answer: `cpu`, `cuda`, `cuda:1`, `mps`, ...

    Raises:
        RunError: The directory holds no readable run.
        ConfigError: There is no such device here.
    """
    path = Path(path)
    description = read_description(path)
    saved = checkpoint.load(path / "checkpoints", which, optimizer=False)
    with torch.random.fork_rng(devices=[]):  # the first weights are drawn, and replaced below
        model = make_network(description.modalities, description.train.model)
    try:
        model.load_state_dict(saved.model)
    except RuntimeError as error:
        raise RunError(f"the weights in {path} do not fit its config.json: {error}") from error
    return Run(path, description, move(model.eval(), device), saved.state.step)
