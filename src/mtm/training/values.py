"""The loss of an upper expectile of returns: the return that can be reached, not the mean one.

The mean of a value minimises squared errors. If errors below the truth cost more than those above
it, what minimises them lies higher: the expectile. That of 0.5 is the mean, and towards 1 it nears
the largest return that was seen with what is visible (Newey and Powell 1987; IQL and Reinformer
learn values so).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from mtm.data.modalities import Modality
from mtm.models.heads import Predictions


def expectile_losses(
    modalities: Sequence[Modality],
    predictions: Predictions,
    values: Mapping[str, Tensor],
    weights: Tensor,
    hidden: Tensor,
    totals: Tensor,
    expectile: float,
) -> Tensor:
    """The loss of each modality's expectile, (M,); zero for those that have none.

    Args:
        modalities: In the order of the last axis of `hidden`.
        predictions: The model's output.
        values: The truth, normalised; what is stored at other tokens has no influence.
        weights: How much each token counts, (B, T, M), as for `reconstruction_losses`.
        hidden: Those that count and were not visible, (B, T, M). What is visible has no upper side.
        totals: The weights of each modality, (M,), as for `reconstruction_losses`.
        expectile: From 0.5 to 1.
    """
    losses = []
    for i, m in enumerate(modalities):
        if m.name not in predictions.expectiles:
            losses.append(totals.new_zeros(()))
            continue
        here, truth = hidden[:, :, i], values[m.name]
        truth = truth.masked_fill(~here.view(*here.shape, *[1] * (truth.ndim - 2)), 0)
        costs = expectile_errors(predictions.expectiles[m.name], truth, expectile)
        tokens = costs.reshape(*here.shape, -1).mean(dim=2)  # (B, T)
        counted = torch.where(here, tokens, 0.0) * weights[:, :, i]
        losses.append(counted.sum() / totals[i].clamp(min=1))
    return torch.stack(losses)


def expectile_errors(prediction: Tensor, truth: Tensor, expectile: float) -> Tensor:
    """Squared errors, weighed by side and by two, so that those of 0.5 are plain squares."""
    above = truth - prediction
    weight = torch.where(above > 0, expectile, 1 - expectile)
    return 2 * weight * above**2
