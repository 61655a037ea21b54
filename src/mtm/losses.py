"""How far predictions are from the truth: squared error or cross-entropy, token by token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from mtm.modalities import Modality


def token_errors(modality: Modality, prediction: Tensor, truth: Tensor) -> Tensor:
    """Error of each token of a modality, (B, T): mean squared over features, or cross-entropy."""
    if modality.kind == "discrete":
        return F.cross_entropy(prediction.flatten(0, 1), truth.flatten(), reduction="none").view(
            truth.shape
        )
    squared = (prediction - truth) ** 2
    return squared.reshape(*truth.shape[:2], -1).mean(dim=2)


def reconstruction_losses(
    modalities: Sequence[Modality],
    predictions: Mapping[str, Tensor],
    values: Mapping[str, Tensor],
    scored: Tensor,
    counts: Tensor,
) -> dict[str, Tensor]:
    """Loss of each modality: the mean error of its scored tokens.

    Args:
        modalities: In the order of the last axis of `scored`.
        predictions: The model's output.
        values: The truth, normalised; what is stored at other tokens has no influence.
        scored: (B, T, M) booleans.
        counts: Scored tokens of each modality that the mean is taken over, (M,). A process that
            holds a part of a batch passes the counts of the whole.
    """
    losses = {}
    for i, m in enumerate(modalities):
        here = scored[:, :, i]
        truth = values[m.name]
        known = here.view(*here.shape, *[1] * (truth.ndim - 2))
        errors = token_errors(m, predictions[m.name], truth.masked_fill(~known, 0))
        losses[m.name] = torch.where(here, errors, 0.0).sum() / counts[i].clamp(min=1)
    return losses
