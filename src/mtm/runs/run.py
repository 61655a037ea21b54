"""A run is a directory that describes itself: load it and its model is ready to use.

    RUN/config.json     see mtm.runs.description
    RUN/checkpoints/    see mtm.runs.checkpoint

It loads without the data set, on another machine, years later. A run that was shared is one file
(see mtm.runs.packed) or lies on a hub (see mtm.runs.hub), and loads in the same way.
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
from mtm.runs.bundle import CONFIG, checkpoint_in
from mtm.runs.checkpoint import Checkpoint, State, Which
from mtm.runs.description import Description, parse_description, read_description
from mtm.runs.shared import pinned, read_shared


@dataclass(frozen=True)
class Run:
    """A trained model, ready to use.

    Attributes:
        path: The directory, the file, or `hub:OWNER/NAME@COMMIT`.
        description: Settings, modalities, normalizer, data summary.
        model: The network in evaluation mode.
        state: What the checkpoint says of itself.
        fixed_masks: The network specialised to the masks that were asked last.
    """

    path: Path
    description: Description
    model: Network
    state: State
    fixed_masks: FixedMasks = field(
        default_factory=FixedMasks, init=False, repr=False, compare=False
    )

    @property
    def step(self) -> int:
        """Optimizer steps behind the weights."""
        return self.state.step

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
        path: The run directory, a file of `mtm pack`, or `hub:OWNER/NAME[@REVISION]`.
        which: `last`, `best` (lowest held-out loss) or a step; a shared run has one checkpoint,
            which is both.
        device: Where the model is to answer: `cpu`, `cuda`, `cuda:1`, `mps`, ...

    Raises:
        RunError: There is no readable run, or it cannot be fetched.
        ConfigError: There is no such device here.
    """
    path = pinned(Path(path))
    files = read_shared(path)
    if files is None:
        description = read_description(path)
        saved = checkpoint.load(path / "checkpoints", which, optimizer=False)
    else:
        description = parse_description(files[CONFIG], path)
        saved = checkpoint_in(files, str(path))
        _check_step(path, which, saved.state.step)
        _check_size(path, description, saved)
    with torch.random.fork_rng(devices=[]):  # the first weights are drawn, and replaced below
        model = make_network(description.modalities, description.train.model)
    try:
        model.load_state_dict(saved.model)
    except RuntimeError as error:
        raise _misfit(path, error) from error
    return Run(path, description, move(model.eval(), device), saved.state)


def _check_step(path: Path, which: Which | int, step: int) -> None:
    if isinstance(which, int) and which != step:
        raise RunError(f"{path} was shared with the checkpoint of step {step} alone, not {which}.")


def _check_size(path: Path, description: Description, saved: Checkpoint) -> None:
    """Refuse settings of a stranger's that would make a network larger than its weights."""
    config = description.train.model
    numbers = sum(tensor.numel() for tensor in saved.model.values())
    if config.width * config.encoder_layers * config.members > numbers:
        raise _misfit(path, f"they are {numbers:,} numbers")
    with torch.device("meta"):
        outline = make_network(description.modalities, config)
    asked = {name: tuple(tensor.shape) for name, tensor in outline.state_dict().items()}
    if asked != {name: tuple(tensor.shape) for name, tensor in saved.model.items()}:
        raise _misfit(path, "names or shapes differ")


def _misfit(path: Path, reason: object) -> RunError:
    return RunError(f"the weights in {path} do not fit its config.json: {reason}")
