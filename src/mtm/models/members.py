"""Several networks as one: trained in one loop, asked in one pass, answering together.

Members differ by their first weights. What they answer together is decided in `combined`, and
nowhere else. Letters as in `mtm.models.mtm`, E members.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from mtm.data.modalities import Modality
from mtm.models.heads import Predictions
from mtm.models.mlp import MLP
from mtm.models.mtm import MTM
from mtm.models.stacked import stack

SMALLEST_VARIANCE = 1e-12
"""Of an answer; members that agree to the last bit are still not certain."""


class Members(nn.Module):
    """Networks of one kind, stacked: every parameter has a leading axis, one entry per member.

    Args:
        networks: At least two, built alike. The first one is changed, and held.

    Attributes:
        stacked: All of them as one network, which answers for each.
    """

    def __init__(self, networks: Sequence[MTM | MLP]) -> None:
        super().__init__()
        first = networks[0]
        self.modalities, self.config = first.modalities, first.config
        stack(networks, first.input_layers())
        first.members = len(networks)
        self.stacked = first

    def forward(
        self, values: Mapping[str, Tensor], visible: Tensor, wanted: Tensor | None = None
    ) -> Predictions:
        """What the members answer together; arguments and results as for `MTM`."""
        return combined(self.modalities, self.each(values, visible, wanted))

    def each(
        self, values: Mapping[str, Tensor], visible: Tensor, wanted: Tensor | None = None
    ) -> Predictions:
        """What each member answers: arguments as for `MTM`, results with a leading axis of E."""
        predictions: Predictions = self.stacked(values, visible, wanted)
        return predictions

    def member(self, number: int) -> MTM | MLP:
        """A network of its own with the weights of one member, counted from 0."""
        with torch.random.fork_rng(devices=[]):  # the first weights are drawn, and replaced
            alone = type(self.stacked)(self.modalities, self.config)
        weights = self.stacked.state_dict()
        alone.load_state_dict({name: tensor[number] for name, tensor in weights.items()})
        return alone.to(next(self.parameters()).device).train(self.training)

    def outer_layers(self) -> list[nn.Module]:
        """The layers that touch the data: those that take values in, and those that give them."""
        return self.stacked.outer_layers()


def combined(modalities: Sequence[Modality], each: Predictions) -> Predictions:
    """What members answer together: the one place where that is decided.

    Numbers are the mean of the members' numbers, classes have the mean of their probabilities. The
    variance of a number is the mean of those that they predict, if they do, and on top of it the
    variance between their numbers: where they disagree, less is known.

    Args:
        modalities: The streams.
        each: With a leading axis of E members.

    Returns:
        The same without that axis; for classes, logarithms of probabilities as logits.
    """
    together = Predictions({}, {}, {})
    for m in modalities:
        if m.name not in each.values:
            continue
        values = each.values[m.name]
        if m.kind == "discrete":
            shares = values.log_softmax(dim=-1).exp().mean(dim=0)
            together.values[m.name] = shares.clamp(min=torch.finfo(shares.dtype).tiny).log()
            continue
        together.values[m.name] = values.mean(dim=0)
        if m.name in each.expectiles:
            together.expectiles[m.name] = each.expectiles[m.name].mean(dim=0)
        variance = values.var(dim=0, unbiased=False)
        if m.name in each.log_variances:
            variance = variance + each.log_variances[m.name].exp().mean(dim=0)
        together.log_variances[m.name] = variance.clamp(min=SMALLEST_VARIANCE).log()
    return together
