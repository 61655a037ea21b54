"""The network in plain PyTorch, with the same weights: what `MTM` computes, without its tricks.

Every sample has all of its L tokens, (B, L, D); hidden ones are kept out of attention by a mask.
`MTM.forward` gives the same, up to rounding, without the work for what is hidden or not wanted.
Letters as in `mtm.models.mtm`.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from mtm.models.heads import Predictions
from mtm.models.mtm import MTM
from mtm.models.original import MapsIntoDecoder
from mtm.models.transformer import Layer


def predict_densely(model: MTM, values: Mapping[str, Tensor], visible: Tensor) -> Predictions:
    """Predict all tokens from the visible ones, without dropout.

    Args:
        model: The weights.
        values: For each modality normalised values (B, T, *shape), or integer classes (B, T).
        visible: (B, T, M) booleans.
    """
    B, T, M = visible.shape
    L, D = T * M, model.config.width
    shown = visible.view(B, L, 1)

    # The encoder. A hidden token attends to itself as well, so that it attends to something even
    # where nothing is visible; nobody looks at it.
    positions = model.positions(model.encoder_modality_encoding, T).view(L, D)
    x = model.encoders(values, visible).view(B, L, D) + positions
    may_attend = shown.mT | torch.eye(L, dtype=torch.bool)  # (B, L, L)
    latent = encode_densely(model, x, may_attend)

    # The decoder sees the latent of visible tokens, and the modality's mask token for the others.
    positions = model.positions(model.decoder_modality_encoding, T).view(L, D)
    hidden, latent = _into_decoder(model, latent.view(B, T, M, D))  # (M, D), (B, T, M, D)
    x = torch.where(shown, latent.reshape(B, L, D), hidden.repeat(T, 1)) + positions
    for layer in model.decoder.layers:
        x = _layer(layer, x, torch.ones(B, L, L, dtype=torch.bool))  # type: ignore[arg-type]
    decoded = model.decoder.norm(x)

    predictions: Predictions = model.heads(decoded, B, T)
    if model.config.residual:  # states are predicted as changes from a line
        for i, m in enumerate(model.modalities):
            if m.role == "state" and m.kind == "continuous":
                here = visible[:, :, i]
                shown_values = values[m.name].reshape(B, T, -1).masked_fill(~here.unsqueeze(2), 0.0)
                line = line_weights(here) @ shown_values  # (B, T, size)
                predictions.values[m.name] = predictions.values[m.name] + line.view(B, T, *m.shape)
    return predictions


def encode_densely(model: MTM, tokens: Tensor, may_attend: Tensor) -> Tensor:
    """The encoder's output for tokens with their encodings, (B, L, D) to (B, L, D).

    Args:
        model: The weights.
        tokens: Embedded values, with the encodings of time and modality.
        may_attend: Which token (row) may look at which (column), (B, L, L).
    """
    x = tokens
    for layer in model.encoder.layers:
        x = _layer(layer, x, may_attend)  # type: ignore[arg-type]
    latent: Tensor = model.encoder.norm(x)
    return latent


def line_weights(visible: Tensor) -> Tensor:
    """How much each visible step counts on the straight lines between them, (B, T, T).

    Before the first and after the last visible step the line is the nearest one; where a sample has
    none, all weights are zero.

    Args:
        visible: Steps of one modality, (B, T).
    """
    T = visible.shape[1]
    time = torch.arange(T)
    past = time <= time.unsqueeze(1)  # (T, T): the step of a row may look at that of a column
    candidates = visible.unsqueeze(1)  # (B, 1, T)
    before = torch.where(candidates & past, time, -1).amax(dim=2)  # (B, T), -1 if there is none
    after = torch.where(candidates & past.mT, time, T).amin(dim=2)  # (B, T), T if there is none
    first = torch.where(before < 0, after, before)
    second = torch.where(after >= T, before, after)
    share = (time - first).clamp(min=0) / (second - first).clamp(min=1)  # of the way to `second`
    at_first, at_second = (steps.unsqueeze(2) == time for steps in (first, second))  # (B, T, T)
    return at_first * (1 - share).unsqueeze(2) + at_second * share.unsqueeze(2)


def _into_decoder(model: MTM, latent: Tensor) -> tuple[Tensor, Tensor]:
    """What hidden tokens are to the decoder, and visible ones: one map for all, or one each."""
    if not isinstance(model.to_decoder, MapsIntoDecoder):
        return model.mask_tokens, model.to_decoder(latent)
    maps = list(model.to_decoder.values())
    hidden = [map_(model.mask_tokens[i]) for i, map_ in enumerate(maps)]
    shown = [map_(latent[:, :, i]) for i, map_ in enumerate(maps)]
    return torch.stack(hidden), torch.stack(shown, dim=2)


def _layer(layer: Layer, x: Tensor, may_attend: Tensor) -> Tensor:
    """One pre-norm layer, (B, L, D) to (B, L, D)."""
    B, L, D = x.shape
    features = layer.to_queries_keys_values(layer.attention_norm(x))  # (B, L, 3 D)
    q, k, v = features.view(B, L, 3, layer.heads, -1).permute(2, 0, 3, 1, 4)  # (B, H, L, D/H)
    scores = q @ k.mT / q.shape[-1] ** 0.5  # (B, H, L, L)
    weights = scores.masked_fill(~may_attend.unsqueeze(1), float("-inf")).softmax(dim=-1)
    x = x + layer.from_heads((weights @ v).transpose(1, 2).reshape(B, L, D))
    hidden = F.gelu(layer.mlp_in(layer.mlp_norm(x)))  # (B, L, 4 D)
    out: Tensor = x + layer.mlp_out(hidden)
    return out
