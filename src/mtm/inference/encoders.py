"""A trained run's encoder as `torch.nn.Module`: raw states, or states and actions, to features.

    encoder = StateEncoder("runs/walker")    frozen: its weights are buffers, nothing can train them
    features = encoder(states)               (..., *shape) -> (..., encoder.features)

The modules hold copies of what encoding needs (no decoder, no heads) and no reference to the run:
they can be moved, copied, saved and put into another network like any other module. They see one
step at a time, so there are no masks: a batch of B states is B tokens, one of states and actions
is B pairs. Of a run with several members, the features of all lie side by side: each has learned
features of its own, of which a mean would mean nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from mtm.core.errors import ConfigError, DataError
from mtm.data.modalities import Modality, Role
from mtm.models.mtm import encode_step
from mtm.runs.run import Run, load_run

if TYPE_CHECKING:
    from typing_extensions import Self

ENCODED_AT_ONCE = 8192
"""Rows that `encode_all` gives the network at a time."""


class StepEncoder(nn.Module):
    """What the encoders of a step share; each says of which roles it encodes a modality.

    Args:
        run: A trained run, or its directory.
        trainable: Whether the pretrained weights are parameters. If not they are buffers: no
            optimizer finds them, no weight decay and no averaging of targets touches them, and
            dropout stays off. Gradients still flow through to the inputs.
        with_state: Whether the normalised state is put after the encoding.
        projection: Map the encoding linearly to so many features, if given. The projection is
            new, so it is trainable even when the encoder is not.

    Attributes:
        modalities: What is encoded, the state first.
        features: Size of the output.

    Raises:
        ConfigError: The run lacks a modality of one of the roles, or has several.
        RunError: The directory holds no readable run.
    """

    roles: tuple[Role, ...]
    positions: Tensor

    def __init__(
        self,
        run: Run | str | Path,
        *,
        trainable: bool = False,
        with_state: bool = False,
        projection: int | None = None,
    ) -> None:
        super().__init__()
        run = run if isinstance(run, Run) else load_run(run)
        names = [run.modalities.only(role).name for role in self.roles]
        if projection is not None and projection < 1:
            raise ConfigError(f"projection must be at least 1, got {projection}.")
        model = run.transformer
        self.modalities = tuple(run.modalities.named(name) for name in names)
        self.trainable, self.with_state = trainable, with_state
        self.embeddings = nn.ModuleList(copy.deepcopy(model.encoders[name]) for name in names)
        self.transformer = copy.deepcopy(model.encoder)
        rows = [run.modalities.place(name) for name in names]
        positions = model.positions(model.encoder_modality_encoding, 1)[..., 0, rows, :]
        self.positions = nn.Parameter(positions.detach())  # (K, D), of E members (E, K, D)
        for place, m in enumerate(self.modalities):
            if m.kind == "continuous":
                statistics = run.normalizer.statistics[m.name]
                self.register_buffer(f"mean_{place}", torch.tensor(statistics.mean))
                self.register_buffer(f"std_{place}", torch.tensor(statistics.std))
        if not trainable:
            _freeze(self)
        self.projection: nn.Linear | None = None
        self.features = len(names) * model.members * model.config.width
        if projection is not None:
            self.projection = nn.Linear(self.features, projection)
            self.features = projection
        if with_state:
            if self.modalities[0].kind == "discrete":
                raise ConfigError(
                    f"with_state needs a state of numbers; {names[0]!r} is discrete. Leave it out."
                )
            self.features += self.modalities[0].size
        self.train(trainable)

    def train(self, mode: bool = True) -> StepEncoder:
        """As usual, but a frozen encoder stays in evaluation mode."""
        super().train(mode and self.trainable)
        return self

    def apply(self, fn: Callable[[nn.Module], None]) -> Self:
        """As usual, but pretrained weights are left out: libraries draw new ones in this way."""
        if self.projection is not None:
            self.projection.apply(fn)
        return self

    def _encode(self, values: Sequence[Tensor]) -> Tensor:
        """Raw values of each modality, (..., *shape), to (..., features)."""
        leading = values[0].shape[: values[0].ndim - len(self.modalities[0].shape)]
        units = [
            self._units(place, m, v, leading)
            for place, (m, v) in enumerate(zip(self.modalities, values, strict=True))
        ]
        latent = encode_step(list(self.embeddings), self.positions, self.transformer, units)
        features = latent.flatten(1)  # (B, K * D), of members (B, K * E * D)
        if self.projection is not None:
            features = self.projection(features)
        if self.with_state:
            features = torch.cat([features, units[0].flatten(1)], dim=1)
        return features.view(*leading, self.features)

    def _units(self, place: int, m: Modality, values: Tensor, leading: Sequence[int]) -> Tensor:
        """Checked and normalised values, (B, *shape)."""
        if values.shape != (*leading, *m.shape):
            raise DataError(
                f"modality {m.name!r} has shape {tuple(values.shape)}; this encoder was trained on "
                f"values of shape {m.shape}, with the same leading axes for all modalities."
            )
        flat = values.reshape(-1, *m.shape)
        if m.kind == "discrete":
            return flat
        mean, std = getattr(self, f"mean_{place}"), getattr(self, f"std_{place}")
        normalised: Tensor = (flat.to(mean.dtype) - mean) / std
        return normalised


class StateEncoder(StepEncoder):
    """Encodes states, each alone: as `mtm.represent(run, states)`."""

    roles = ("state",)

    def forward(self, states: Tensor) -> Tensor:
        """Raw states, (..., *shape), to (..., features)."""
        return self._encode([states])


class StateActionEncoder(StepEncoder):
    """Encodes states and actions jointly: as `mtm.represent(run, states, actions)`."""

    roles = ("state", "action")

    def forward(self, states: Tensor, actions: Tensor) -> Tensor:
        """Raw states and actions, (..., *shape) each, to (..., features)."""
        return self._encode([states, actions])


@torch.no_grad()
def encode_all(encoder: nn.Module, *values: Tensor) -> Tensor:
    """Encode a whole data set once, a bounded piece at a time: (N, *shape) to (N, features)."""
    parts = [
        encoder(*(v[start : start + ENCODED_AT_ONCE] for v in values))
        for start in range(0, len(values[0]), ENCODED_AT_ONCE)
    ]
    return torch.cat(parts)


def _freeze(module: nn.Module) -> None:
    """Turn every parameter into a buffer of the same name."""
    for part in module.modules():
        for name, parameter in list(part.named_parameters(recurse=False)):
            delattr(part, name)
            part.register_buffer(name, parameter.detach())
