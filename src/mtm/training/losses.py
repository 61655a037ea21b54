"""How far predictions are from the truth, and what training makes of it.

The error of a token is its squared error or cross-entropy. Where the network also predicts how far
off its numbers may be, training weighs the errors of hidden tokens by that: a noisy action says
less about what to do than a clean one, and squared errors alone would listen to the noise. Visible
tokens are copied, not guessed, and count as they are.

Of most things the mean is learned, of an action that is to be chosen the median. Recorded policies
explore, and their noise is squashed into the bounds of the actions: its mean is too weak an action,
its median is nearer to what the policy does without noise. Nor is the noise the same everywhere.
What a policy does precisely has to be precise, and what it scatters hardly matters, so these errors
are weighed by the whole likelihood. An action of which a later state is visible is not chosen but
inferred, noise and all, so its mean is right (docs/research-log).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from mtm.core.config import ActionLoss
from mtm.data.modalities import Modality
from mtm.models.heads import Predictions

ROUNDED = 0.05
"""Share of the predicted deviation over which the distance of an action is rounded off."""


def token_errors(modality: Modality, prediction: Tensor, truth: Tensor) -> Tensor:
    """Error of each token of a modality, (B, T): mean squared over features, or cross-entropy."""
    if modality.kind == "discrete":
        return F.cross_entropy(prediction.flatten(0, 1), truth.flatten(), reduction="none").view(
            truth.shape
        )
    return _by_token((prediction - truth) ** 2)


def reconstruction_losses(
    modalities: Sequence[Modality],
    predictions: Predictions,
    values: Mapping[str, Tensor],
    weights: Tensor,
    hidden: Tensor,
    totals: Tensor,
    action_loss: ActionLoss,
    chosen: Tensor | None = None,
    total: Callable[[Tensor], Tensor] = lambda part: part,
) -> tuple[Tensor, Tensor]:
    """The loss of each modality, and the mean error of its tokens that count, (M,) each.

    Args:
        modalities: In the order of the last axis of `weights`.
        predictions: The model's output; every modality with a token that counts is in it.
        values: The truth, normalised; what is stored at other tokens has no influence.
        weights: How much each token counts, (B, T, M).
        hidden: Those that count and were not visible, (B, T, M) booleans.
        totals: The weights of each modality that the mean is taken over, (M,). A process that
            holds a part of a batch passes the totals of the whole.
        action_loss: How errors of hidden actions that are to be chosen count.
        chosen: At which steps that is, (B, T) booleans; elsewhere they count like all else. None:
            at all steps.
        total: Adds what each process holds, without gradients.
    """
    usual = _usual_variances(modalities, predictions, hidden, total)
    losses, errors = [], []
    for i, m in enumerate(modalities):
        weight, whole = weights[:, :, i], totals[i].clamp(min=1)
        here = weight > 0
        truth = values[m.name]
        known = here.view(*here.shape, *[1] * (truth.ndim - 2))
        truth = truth.masked_fill(~known, 0)
        tokens = token_errors(m, predictions.values[m.name], truth)
        errors.append((torch.where(here, tokens, 0.0) * weight).sum() / whole)
        if m.kind == "continuous":
            value, log_variance = predictions.values[m.name], predictions.log_variances.get(m.name)
            if log_variance is not None:
                guessed = weighed_errors(value, log_variance, truth, usual[m.name])
                tokens = torch.where(hidden[:, :, i], guessed, tokens)
            if m.role == "action" and action_loss == "absolute":
                if log_variance is not None:
                    guessed = weighed_distances(value, log_variance, truth, usual[m.name])
                else:
                    guessed = distances(value, truth)
                to_choose = hidden[:, :, i] if chosen is None else hidden[:, :, i] & chosen
                tokens = torch.where(to_choose, guessed, tokens)
        losses.append((torch.where(here, tokens, 0.0) * weight).sum() / whole)
    return torch.stack(losses), torch.stack(errors).detach()


def weighed_errors(value: Tensor, log_variance: Tensor, truth: Tensor, usual: Tensor) -> Tensor:
    """Half-way between squared error and the likelihood of a normal distribution, (B, T).

    The likelihood divides an error by its variance, so that few sure tokens drown out all others;
    the squared error does not divide at all. Here the error is divided by the standard deviation,
    in proportion to the usual one, so that a modality as a whole counts as much as before.

    Args:
        value: (B, T, *shape).
        log_variance: Of the value, same shape.
        truth: Same shape.
        usual: The mean variance of the modality's hidden tokens.
    """
    weight = (log_variance.detach().exp() * usual).sqrt()
    surprise = (value - truth) ** 2 * torch.exp(-log_variance) + log_variance
    return _by_token(weight * surprise)


def weighed_distances(value: Tensor, log_variance: Tensor, truth: Tensor, usual: Tensor) -> Tensor:
    """The likelihood of a Laplace distribution, (B, T): what is surer counts more in proportion.

    Near zero a distance is rounded off, over a twentieth of the deviation, so that its gradient
    does not jump there. Arguments are those of `weighed_errors`.
    """
    deviation = (log_variance / 2).exp()
    distance = ((value - truth) ** 2 + (ROUNDED * deviation.detach()) ** 2).sqrt()
    surprise = 2 * math.sqrt(2) * distance / deviation + log_variance
    return _by_token(usual * surprise)


def distances(value: Tensor, truth: Tensor) -> Tensor:
    """As `weighed_distances`, where the network does not say how far off it may be."""
    return 2 * math.sqrt(2) * _by_token(((value - truth) ** 2 + ROUNDED**2).sqrt())


def _usual_variances(
    modalities: Sequence[Modality],
    predictions: Predictions,
    hidden: Tensor,
    total: Callable[[Tensor], Tensor],
) -> dict[str, Tensor]:
    """The mean variance of the hidden tokens, for each modality whose variance is predicted.

    All of them are added up over the processes in one go.
    """
    parts = {}
    for i, m in enumerate(modalities):
        if m.name in predictions.log_variances:
            variances = _by_token(predictions.log_variances[m.name].detach().exp())
            expected = torch.where(hidden[:, :, i], variances, 0.0)
            parts[m.name] = torch.stack([expected.sum(), hidden[:, :, i].sum()])
    if not parts:
        return {}
    sums = total(torch.stack(list(parts.values())))  # (modalities, 2)
    means = [variance / number.clamp(min=1) for variance, number in sums]
    return dict(zip(parts, means, strict=True))


def _by_token(numbers: Tensor) -> Tensor:
    """The mean over the numbers of each token, (B, T, *shape) to (B, T)."""
    return numbers.reshape(*numbers.shape[:2], -1).mean(dim=2)
