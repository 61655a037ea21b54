"""`MTM` asked about a few windows, each with a mask of its own, as fast as a CPU can.

So few tokens cost little to compute; what costs is every call, and working out how to pack them. So
nothing is packed into rows here: attention is one product among all tokens, in which those of other
windows are struck out, and layers are called without the overhead of modules. The answers are those
of `MTM.forward`.

Letters as in `mtm.models.mtm`, N visible and W wanted tokens of all windows, H heads. Tokens are
ordered by modality here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, TypeGuard, cast

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from mtm.models.heads import Predictions
from mtm.models.lines import add_lines
from mtm.models.mtm import MTM
from mtm.models.transformer import Layer

MOST_TOKENS = 256
"""Up to which this is the faster way: products of all tokens with all grow with their square."""


def suits(network: nn.Module, visible: Tensor, wanted: Tensor) -> TypeGuard[MTM]:
    """Whether a question, (B, T, M) booleans, can be asked in this way, and should."""
    return (
        isinstance(network, MTM)
        and network.members == 1
        and not network.config.original
        and not network.training
        and visible.numel() <= MOST_TOKENS
        and network.mask_tokens.device.type == "cpu"
        and bool(visible.any())
        and bool(wanted.any())
    )


def answer(
    network: MTM, values: Mapping[str, Tensor], visible: Tensor, wanted: Tensor
) -> Predictions:
    """As `MTM.forward`, without gradients, where `suits` says so."""
    B, T, M = visible.shape
    shown, asked = _Tokens(visible.numpy()), _Tokens(wanted.numpy())
    latent = _encode(network, values, shown, T)  # (N, D)
    decoded = _decode(network, latent, shown, asked, (B, T, M))  # (W, D)
    predictions = Predictions({}, {}, {})
    for i, m in enumerate(network.modalities):
        if len(steps := asked.steps[i]):
            norm, first, _, last = cast("nn.Sequential", network.heads[m.name])
            out = _linear(last, F.gelu(_linear(first, _norm(norm, decoded[asked.mine[i]]))))
            whole = out.new_zeros(B * T, out.shape[1])
            whole[torch.from_numpy(steps)] = out
            network.heads.read(m, whole.view(B, T, -1), predictions)
    if network.config.residual:
        add_lines(network.modalities, predictions.values, values, visible)
    return predictions


class _Tokens:
    """Some tokens of a mask, (B, T, M), by modality.

    Attributes:
        steps: Of each modality, which of the B * T steps.
        mine: Of each modality, which of the chosen tokens.
        places: Of all of them among the B * L tokens.
        windows: Which window each is of.
    """

    def __init__(self, chosen: NDArray[np.bool_]) -> None:
        M = chosen.shape[2]
        self.steps = [np.flatnonzero(chosen[:, :, i]) for i in range(M)]
        ends = np.cumsum([0, *map(len, self.steps)]).tolist()
        self.mine = [slice(a, b) for a, b in pairwise(ends)]
        self.places = np.concatenate([steps * M + i for i, steps in enumerate(self.steps)])
        self.windows = self.places // (M * chosen.shape[1])


def _encode(network: MTM, values: Mapping[str, Tensor], shown: _Tokens, length: int) -> Tensor:
    """The encoder's output for the visible tokens, (N, D)."""
    parts = []
    for m, steps in zip(network.modalities, shown.steps, strict=True):
        if not len(steps):
            continue
        given = values[m.name].flatten(0, 1)[torch.from_numpy(steps)]  # (steps, *shape)
        embed: Any = network.encoders[m.name]
        discrete = m.kind == "discrete"
        parts.append(embed(given) if discrete else _linear(embed, given.reshape(len(steps), -1)))
    positions = network.positions(network.encoder_modality_encoding, length).flatten(0, 1)  # (L, D)
    x = torch.cat(parts) + positions[torch.from_numpy(shown.places % len(positions))]
    others = _struck_out(shown.windows, shown.windows)
    for layer in cast("list[Layer]", network.encoder.layers):
        q, k, v = _features(layer, _norm(layer.attention_norm, x), slice(None)).chunk(3, dim=1)
        x = _on(layer, x, _attend(q, k, v, others, layer.heads))
    return _norm(network.encoder.norm, x)


def _decode(
    network: MTM, latent: Tensor, shown: _Tokens, asked: _Tokens, size: tuple[int, int, int]
) -> Tensor:
    """The decoder's output for the wanted tokens, (W, D).

    As in `mtm.models.transformer.Decoder`, a hidden token is the same in all windows before the
    first attention, and after the last only what is wanted goes on.
    """
    B, T, M = size
    L, N, D = T * M, *latent.shape
    positions = network.positions(network.decoder_modality_encoding, T)  # (T, M, D)
    blank = (network.hidden_to_decoder() + positions).flatten(0, 1)  # (L, D)
    mine = positions.flatten(0, 1)[torch.from_numpy(shown.places % L)]  # (N, D)
    x = torch.cat([_linear(network.to_decoder, latent) + mine, blank])  # (N + L, D)
    origin = np.tile(np.arange(N, N + L), B)  # of each of the B * L tokens, its row
    origin[shown.places] = np.arange(N)
    windows = np.repeat(np.arange(B), L)
    *before, last = cast("list[Layer]", list(network.decoder.layers))
    for layer in before:
        features = _features(layer, _norm(layer.attention_norm, x), slice(None))
        q, k, v = features[torch.from_numpy(origin)].chunk(3, dim=1)
        mixed = _attend(q, k, v, _struck_out(windows, windows), layer.heads)
        x, origin = _on(layer, x[torch.from_numpy(origin)], mixed), np.arange(B * L)
    normed = _norm(last.attention_norm, x)
    rows = torch.from_numpy(origin[asked.places])
    queries = _features(last, normed[rows], slice(D))  # (W, D)
    k, v = _features(last, normed, slice(D, None))[torch.from_numpy(origin)].chunk(2, dim=1)
    mixed = _attend(queries, k, v, _struck_out(asked.windows, windows), last.heads)
    return _norm(network.decoder.norm, _on(last, x[rows], mixed))


def _attend(q: Tensor, k: Tensor, v: Tensor, others: Tensor, heads: int) -> Tensor:
    """Attention of all queries, (Q, D), to all keys, (K, D), but those struck out."""
    q, k, v = (part.view(len(part), heads, -1).transpose(0, 1) for part in (q, k, v))
    scores = torch.baddbmm(others, q, k.mT, alpha=1 / math.sqrt(q.shape[2]))  # (H, Q, K)
    return torch.bmm(scores.softmax(dim=2), v).transpose(0, 1).flatten(1)


def _struck_out(asking: NDArray[np.int64], asked: NDArray[np.int64]) -> Tensor:
    """What is added to scores, (1, Q, K): nothing within a window, minus infinity elsewhere."""
    other = torch.from_numpy(asking[:, None] != asked)
    return torch.zeros(1, *other.shape).masked_fill_(other, -math.inf)


def _on(layer: Layer, x: Tensor, mixed: Tensor) -> Tensor:
    """What follows the attention of a layer."""
    x = x + _linear(layer.from_heads, mixed)
    hidden = F.gelu(_linear(layer.mlp_in, _norm(layer.mlp_norm, x)))
    return x + _linear(layer.mlp_out, hidden)


def _features(layer: Layer, x: Tensor, part: slice) -> Tensor:
    """Some of the queries, keys and values, which lie side by side."""
    project = layer.to_queries_keys_values
    return F.linear(x, project.weight[part], project.bias[part])


def _linear(layer: Any, x: Tensor) -> Tensor:
    return F.linear(x, layer.weight, layer.bias)


def _norm(layer: Any, x: Tensor) -> Tensor:
    return torch.layer_norm(x, layer.normalized_shape, layer.weight, layer.bias, layer.eps)
