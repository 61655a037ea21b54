"""What becomes a graph: the network with the normaliser around it, raw units in and out.

Each module says its `inputs` and `outputs`, which `policy.json` lists, and takes and gives tensors
in their order, with any batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from mtm.data.modalities import BoolArray, Modality
from mtm.data.normalizer import Normalizer
from mtm.deploy.policy_file import FEATURES, PREDICTED, VISIBLE, Port
from mtm.models.fixed_mask import FixedMask
from mtm.models.heads import Predictions
from mtm.models.members import Members, combined
from mtm.models.mtm import MTM
from mtm.models.reference import encode_densely, predict_densely
from mtm.runs.run import Run


class Graphed(nn.Module):
    """A module to export.

    Attributes:
        inputs: What `forward` takes, in this order.
        outputs: What it gives.
    """

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]


class FixedMaskGraph(Graphed):
    """A question whose mask is part of the graph: values of the visible steps to the wanted ones.

    Args:
        run: A trained run, on the CPU.
        visible: (T, M).
        wanted: (T, M).
        guidance: How far to go from the answer without returns to that with them; 1 asks once.
    """

    def __init__(
        self, run: Run, visible: BoolArray, wanted: BoolArray, guidance: float = 1.0
    ) -> None:
        super().__init__()
        self.units, self.guidance = _Units(run.modalities, run.normalizer), guidance
        self.network = _of_visible_steps(run, visible, wanted)
        self.shown, self.asked = self.network.shown, self.network.asked
        if guidance != 1:
            untold = visible.copy()
            untold[:, [m.role == "return" for m in run.modalities]] = False
            self.untold = _of_visible_steps(run, untold, wanted)
        self.inputs = tuple(_port(m, times) for m, times in self.shown)
        self.outputs = tuple(_port(m, times, PREDICTED) for m, times in self.asked)

    def forward(self, *values: Tensor) -> tuple[Tensor, ...]:
        """Raw values of the visible steps, (B, S, *shape) each, to those of the wanted ones."""
        shown = {
            m.name: self.units.normalized(m, v)
            for (m, _), v in zip(self.shown, values, strict=True)
        }
        answers = self._raw(self.network(shown))
        if self.guidance == 1:
            return answers
        untold = self._raw(self.untold(shown))
        return tuple(
            plain + self.guidance * (told - plain)
            for told, plain in zip(answers, untold, strict=True)
        )

    def _raw(self, predictions: Predictions) -> tuple[Tensor, ...]:
        return tuple(self.units.raw(m, predictions.values[m.name]) for m, _ in self.asked)


class AnyMaskGraph(Graphed):
    """Any question: all modalities and the mask to all modalities, by the plain forward pass.

    Args:
        run: A trained run of the transformer, on the CPU.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        everything = tuple(range(run.segment_length))
        self.modalities = run.modalities
        self.units = _Units(run.modalities, run.normalizer)
        self.has_members = isinstance(run.model, Members)
        self.networks = nn.ModuleList(_networks(run))
        shape = (run.segment_length, len(run.modalities))
        self.inputs = (
            *(_port(m, everything) for m in run.modalities),
            Port(VISIBLE, "bool", shape, everything),
        )
        self.outputs = tuple(_port(m, everything, PREDICTED) for m in run.modalities)

    def forward(self, *values: Tensor) -> tuple[Tensor, ...]:
        """Raw values, (B, T, *shape) each, and the mask, (B, T, M), to predictions of all."""
        *given, visible = values
        normalized = {
            m.name: self.units.normalized(m, v) for m, v in zip(self.modalities, given, strict=True)
        }
        each = [predict_densely(network, normalized, visible) for network in self.networks]  # type: ignore[arg-type]
        found = each[0]
        if self.has_members:
            found = combined(self.modalities, _stacked(each))
        return tuple(self.units.raw(m, found.values[m.name]) for m in self.modalities)


class EncoderGraph(Graphed):
    """The encoder's features of states, each alone: as `mtm.represent(run, states)`.

    Args:
        run: A trained run of the transformer, on the CPU.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.state = run.modalities.only("state")
        self.place = run.modalities.place(self.state.name)
        self.units = _Units([self.state], run.normalizer)
        self.networks = nn.ModuleList(_networks(run))
        features = len(self.networks) * run.transformer.config.width
        self.inputs = (Port(self.state.name, _type(self.state), self.state.shape),)
        self.outputs = (Port(PREDICTED + FEATURES, "float32", (features,)),)

    def forward(self, *values: Tensor) -> tuple[Tensor, ...]:
        """Raw states, (B, *shape), to features, (B, features), those of members side by side."""
        (states,) = values
        normalized = self.units.normalized(self.state, states)
        latents = [self._encode(network, normalized) for network in self.networks]  # type: ignore[arg-type]
        return (torch.cat(latents, dim=1),)

    def _encode(self, network: MTM, states: Tensor) -> Tensor:
        embed = network.encoders[self.state.name]
        token = embed(states if self.state.kind == "discrete" else states.flatten(1))  # (B, D)
        position = network.positions(network.encoder_modality_encoding, 1)[0, self.place]
        alone = torch.ones(1, 1, 1, dtype=torch.bool)
        return encode_densely(network, (token + position).unsqueeze(1), alone).squeeze(1)


class _Units(nn.Module):
    """The normaliser as part of a graph; classes are answered as the likeliest one."""

    def __init__(self, modalities: Sequence[Modality], normalizer: Normalizer) -> None:
        super().__init__()
        for m in modalities:
            if m.kind == "continuous":
                statistics = normalizer.statistics[m.name]
                self.register_buffer(f"mean_{m.name}", torch.from_numpy(np.array(statistics.mean)))
                self.register_buffer(f"std_{m.name}", torch.from_numpy(np.array(statistics.std)))

    def normalized(self, m: Modality, values: Tensor) -> Tensor:
        if m.kind == "discrete":
            return values
        return (values - self.get_buffer(f"mean_{m.name}")) / self.get_buffer(f"std_{m.name}")

    def raw(self, m: Modality, values: Tensor) -> Tensor:
        if m.kind == "discrete":
            return values.argmax(dim=-1)
        return values * self.get_buffer(f"std_{m.name}") + self.get_buffer(f"mean_{m.name}")


def _of_visible_steps(run: Run, visible: BoolArray, wanted: BoolArray) -> FixedMask:
    """The specialised network, given visible steps alone: there is nothing to pick them from."""
    fixed = FixedMask(run.model, torch.from_numpy(visible), torch.from_numpy(wanted))
    for name in fixed.inputs:
        fixed.inputs[name] = nn.Identity()
    return fixed


def _networks(run: Run) -> list[MTM]:
    """The network, or each of its members by itself."""
    whole = run.transformer
    if not isinstance(run.model, Members):
        return [whole]
    return [run.model.member(i) for i in range(run.members)]  # type: ignore[misc]


def _stacked(each: Sequence[Predictions]) -> Predictions:
    """With a leading axis for members."""
    kinds = zip(*each, strict=True)  # the values of each, the variances of each, ...
    return Predictions(
        *({name: torch.stack([part[name] for part in kind]) for name in kind[0]} for kind in kinds)
    )


def _port(m: Modality, times: Sequence[int], prefix: str = "") -> Port:
    return Port(prefix + m.name, _type(m), (len(times), *m.shape), tuple(times))


def _type(m: Modality) -> str:
    return "int64" if m.kind == "discrete" else "float32"
