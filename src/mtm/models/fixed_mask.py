"""The network specialised to one mask that all samples share, as when a policy acts.

What depends on the mask alone is worked out once: encodings of the visible tokens, mask tokens up
to the decoder's first attention, lines between visible states. Tokens that are neither visible nor
wanted, and heads that nobody asks, cost little or nothing. Nothing branches on values, so that
`torch.export` and `torch.onnx.export` take it, with any batch.

Letters as in `mtm.models.mtm`, E members, K visible tokens of a sample, W wanted ones, H heads.
Tokens are ordered by modality here, and those of one modality by time. Features are (B, tokens, D),
those of members (E, B, tokens, D).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from threading import Lock

import torch
from torch import Tensor, nn

from mtm.data.modalities import BoolArray
from mtm.models.fixed_mlp import FixedMLP
from mtm.models.fixed_parts import Pick, steps_of
from mtm.models.fixed_transformer import FixedTransformer
from mtm.models.heads import Predictions
from mtm.models.lines import between_visible, has_line
from mtm.models.members import Members, combined
from mtm.models.mlp import MLP
from mtm.models.mtm import MTM

MOST_MASKS_KEPT = 64
"""Of a run; each costs a millisecond to make, and memory like a small part of the network."""


class FixedMask(nn.Module):
    """A network that is asked one question, of whatever values.

    The weights are the network's own. What is made of some of them beforehand is not made anew when
    they change; those of a loaded run do not, and `is_outdated` tells.

    Args:
        network: In evaluation mode.
        visible: (T, M) booleans; T is at most `segment_length`, and equals it for an MLP.
        wanted: (T, M) booleans.
        values_only: Predict no log-variances and no expectiles; several members have the variance
            between them nevertheless.

    Attributes:
        shown: The visible tokens, of each modality that has some.
        asked: The wanted ones.
    """

    def __init__(
        self,
        network: MTM | MLP | Members,
        visible: Tensor,
        wanted: Tensor,
        *,
        values_only: bool = False,
    ) -> None:
        super().__init__()
        assert not network.training, "dropout has no place here"
        assert len(visible) <= network.config.segment_length
        visible, wanted = visible.cpu(), wanted.cpu()
        self.modalities, self.has_members = network.modalities, isinstance(network, Members)
        alone = network.stacked if isinstance(network, Members) else network
        self.shown, self.asked = (steps_of(alone.modalities, c) for c in (visible, wanted))
        self.inputs, self.lines = nn.ModuleDict(), nn.ModuleDict()
        # Plain tensors, whoever asks first: those of inference mode could not be exported.
        with torch.inference_mode(False), torch.no_grad():
            self.inputs.update({m.name: Pick(times, dim=1) for m, times in self.shown})
            self.network = (
                FixedTransformer(alone, visible, wanted, values_only=values_only)
                if isinstance(alone, MTM)
                else FixedMLP(alone, visible, wanted)
            )
            for m, times in self.asked if network.config.residual else ():
                if has_line(m) and m.name in self.inputs:
                    here = visible[:, alone.modalities.index(m)]
                    self.lines[m.name] = _Line(here, times)
            self.to(next(network.parameters()).device).eval()
        self._state_before = self._state()

    def is_outdated(self) -> bool:
        """Whether weights that this is made of have changed, or moved, since."""
        return self._state() != self._state_before

    def _state(self) -> list[object]:
        made_of = self.network.made_of
        return [made_of[0].device, *[weight._version for weight in made_of]]

    def forward(self, values: Mapping[str, Tensor]) -> Predictions:
        """Predict the wanted tokens.

        Args:
            values: For each modality with visible tokens normalised values (B, T, *shape), or
                integer classes (B, T). What is stored at hidden tokens is not read. Where nothing
                is visible, any modality tells B.

        Returns:
            Predictions of the wanted tokens alone, modality -> (B, w, *shape): `asked` has their
            steps. Members answer together.
        """
        each = self.each(values)
        return combined(self.modalities, each) if self.has_members else each

    def each(self, values: Mapping[str, Tensor]) -> Predictions:
        """As `forward`, but what each member answers, with a leading axis; as it is, of one."""
        batch = next(iter(values.values())).shape[0]
        shown = {name: pick(values[name]) for name, pick in self.inputs.items()}  # (B, k, *shape)
        found: Predictions = self.network(shown, batch)
        for name, line in self.lines.items():
            found.values[name] = found.values[name] + line(shown[name])
        return found


class FixedMasks:
    """The network of a run specialised to the masks that it was asked last.

    Several threads may ask. Copies of it, as with a copied or pickled run, begin empty.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[object, ...], FixedMask] = OrderedDict()
        self._lock = Lock()

    def __reduce__(self) -> tuple[type[FixedMasks], tuple[()]]:
        return FixedMasks, ()

    def specialised(
        self,
        network: MTM | MLP | Members,
        visible: BoolArray,
        wanted: BoolArray,
        *,
        values_only: bool = False,
    ) -> FixedMask:
        """The network for a mask, (T, M) each, made now or before."""
        key = (visible.shape, visible.tobytes(), wanted.tobytes(), values_only)
        with self._lock:
            found = self._known.get(key)
            if found is None or found.is_outdated():
                shown, asked = (torch.from_numpy(mask.copy()) for mask in (visible, wanted))
                found = FixedMask(network, shown, asked, values_only=values_only)
                self._known[key] = found
            self._known.move_to_end(key)
            if len(self._known) > MOST_MASKS_KEPT:
                self._known.popitem(last=False)
        return found


class _Line(nn.Module):
    """Straight lines between the visible values of a modality: a product with a constant matrix."""

    matrix: Tensor

    def __init__(self, visible: Tensor, times: Sequence[int]) -> None:
        super().__init__()
        unit = torch.eye(len(visible)).unsqueeze(0)
        lines = between_visible(unit, visible.unsqueeze(0))[0]  # (T, T)
        self.register_buffer("matrix", lines[list(times)][:, visible], persistent=False)  # (w, k)

    def forward(self, shown: Tensor) -> Tensor:
        """(B, k, *shape) to (B, w, *shape)."""
        if shown.ndim == 2:
            return shown @ self.matrix.T
        return (self.matrix @ shown.flatten(2)).reshape(-1, len(self.matrix), *shown.shape[2:])
