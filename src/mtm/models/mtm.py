"""The network: a bidirectional masked autoencoder over the tokens of a segment.

    values --modality encoders, + time and modality encodings--> tokens
    visible tokens --transformer encoder--> latent
    latent, with a mask token wherever nothing was visible --transformer decoder--> (B, L, D)
    --head of each modality--> predictions of every token, the visible ones included

Letters: B batch, T time, M modalities, L = T*M tokens in time-major order, D width, N visible
tokens of the whole batch.

The encoder does not pay for what is hidden. Each sample has a mask of its own, so its visible
tokens are packed into one list of N for everything that works token by token (linear layers,
norms). For attention, short samples are joined in rows, in which each sees itself alone. The
decoder pays for hidden tokens from its first attention on: before it, they are the same in all
samples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from mtm.core.config import ModelConfig
from mtm.data.modalities import Modality
from mtm.models.packing import Expansion, Layout, put, take
from mtm.models.transformer import Transformer

TOKEN_STD = 0.02
"""Standard deviation of the initial mask tokens and modality encodings."""

LARGEST_LOG_VARIANCE = 5.0
"""Predicted log-variances stay within so much of -1, where they begin."""


class Predictions(NamedTuple):
    """What a network says of the tokens it was asked for.

    Attributes:
        values: For each modality with a wanted token (B, T, *shape), or logits (B, T, classes).
        log_variances: How far off each number is expected to be, for continuous modalities, of the
            same shapes; empty if the network does not say.
    """

    values: dict[str, Tensor]
    log_variances: dict[str, Tensor]


class MTM(nn.Module):
    """Masked trajectory model.

    Args:
        modalities: The streams, in autoregressive order.
        config: Sizes.
    """

    def __init__(self, modalities: Sequence[Modality], config: ModelConfig) -> None:
        super().__init__()
        D, M = config.width, len(modalities)
        self.modalities = tuple(modalities)
        self.config = config
        self.encoders = nn.ModuleDict({m.name: _modality_encoder(m, D) for m in modalities})
        self.register_buffer(
            "time_encoding", _sinusoids(config.segment_length, D), persistent=False
        )
        self.encoder_modality_encoding = _token(M, D)
        self.decoder_modality_encoding = _token(M, D)
        self.mask_tokens = _token(M, D)
        self.encoder = Transformer(config.encoder_layers, config)
        self.to_decoder = nn.Linear(D, D)
        self.decoder = Transformer(config.decoder_layers, config)
        self.heads = nn.ModuleDict({m.name: _head(m, config) for m in modalities})

    def forward(
        self,
        values: Mapping[str, Tensor],
        visible: Tensor,
        wanted: Tensor | None = None,
    ) -> Predictions:
        """Predict tokens from the visible ones.

        Args:
            values: For each modality normalised values (B, T, *shape), or integer classes (B, T);
                T is at most `segment_length`. What is stored at hidden tokens has no influence.
            visible: (B, L) booleans. Keep it on the CPU, where masks are made: the layout of the
                packed tokens is worked out there, without waiting for a GPU.
            wanted: (B, L) booleans, on the CPU: predict only these tokens, which saves most of the
                decoder's work when they are few. All if None.

        Returns:
            Predictions; what stands at tokens that are not wanted means nothing.
        """
        visible = visible.cpu()
        device = self.mask_tokens.device
        layout = Layout.joined(visible, device)
        latent = self.encode(values, visible, layout)  # (N, D)
        B, M = len(visible), len(self.modalities)
        T = visible.shape[1] // M
        asked = None if wanted is None else Layout.of(wanted.cpu(), device, M)
        predictions = self._heads(self.decode(latent, layout, B, T, asked), B, T, asked)
        if self.config.residual:
            add_lines(self.modalities, predictions.values, values, visible)
        return predictions

    def encode(self, values: Mapping[str, Tensor], visible: Tensor, layout: Layout) -> Tensor:
        """The encoder's output for the visible tokens, packed: (N, D)."""
        B, M = len(visible), len(self.modalities)
        T = visible.shape[1] // M
        shown = visible.to(self.mask_tokens.device, non_blocking=True).view(B, T, M)
        tokens = torch.stack(
            [self._embed(m, values[m.name], shown[:, :, i]) for i, m in enumerate(self.modalities)],
            dim=2,
        )  # (B, T, M, D)
        tokens = tokens + self._positions(self.encoder_modality_encoding, T)
        packed = take(tokens.view(B * T * M, -1), layout.tokens)  # (N, D)
        encoded: Tensor = self.encoder(packed, layout)
        return encoded

    def encode_step(self, values: Mapping[str, Tensor]) -> Tensor:
        """The encoder's output for one step of some modalities, all of them visible.

        Args:
            values: Normalised, name -> (B, *shape).

        Returns:
            (B, K, D), a token for each of the K given modalities, in the order given.
        """
        names = [m.name for m in self.modalities]
        places = self._positions(self.encoder_modality_encoding, 1)[0]  # (M, D)
        embeddings = [self.encoders[name] for name in values]
        chosen = places[[names.index(name) for name in values]]  # (K, D)
        return encode_step(embeddings, chosen, self.encoder, list(values.values()))

    def decode(
        self, latent: Tensor, layout: Layout, batch: int, length: int, wanted: Layout | None = None
    ) -> Tensor:
        """The decoder's output for the wanted tokens, packed, from the packed latent (N, D)."""
        L = length * len(self.modalities)
        positions = self._positions(self.decoder_modality_encoding, length)  # (T, M, D)
        blank = (self.mask_tokens + positions).view(L, -1)  # what a hidden token is at each place
        shown = self.to_decoder(latent).to(blank.dtype)
        shown = shown + positions.view(L, -1)[layout.tokens % L]
        expand = Expansion(layout.tokens, batch, L)
        decoded: Tensor = self.decoder(
            torch.cat([shown, blank]), Layout.full(batch, L), wanted, expand
        )
        return decoded

    def outer_layers(self) -> list[nn.Module]:
        """The layers that touch the data: those that take values in, and those that give them."""
        return [*self.encoders.values(), *(head[-1] for head in self.heads.values())]  # type: ignore[index]

    def _heads(
        self, decoded: Tensor, batch: int, length: int, wanted: Layout | None
    ) -> Predictions:
        """Each modality's head on its tokens; zero where a token is not wanted."""
        B, T, M = batch, length, len(self.modalities)
        predictions = Predictions({}, {})
        # Taken apart at once, as slices would each make a gradient of the whole.
        parts = () if wanted is not None else decoded.view(B, T, M, -1).unbind(2)  # (B, T, D)
        for i, m in enumerate(self.modalities):
            if wanted is None:
                out = self.heads[m.name](parts[i])  # (B, T, size)
            else:
                rows = wanted.rows[i]
                if not len(rows):
                    continue
                out = self.heads[m.name](take(decoded, rows))
                out = put(out, wanted.tokens[rows] // M, B * T).view(B, T, -1)
            if m.kind == "discrete":
                predictions.values[m.name] = out
                continue
            predictions.values[m.name] = _unflatten(out[..., : m.size], m)
            if self.config.predict_variance:
                predictions.log_variances[m.name] = _unflatten(_bounded(out[..., m.size :]), m)
        return predictions

    def _embed(self, modality: Modality, values: Tensor, shown: Tensor) -> Tensor:
        """Values (B, T, *shape) to tokens (B, T, D); what is not shown counts as zero."""
        if modality.kind == "discrete":
            classes: Tensor = self.encoders[modality.name](values.masked_fill(~shown, 0))
            return classes
        flat = values.reshape(*shown.shape, modality.size)
        embedded: Tensor = self.encoders[modality.name](flat.masked_fill(~shown.unsqueeze(-1), 0.0))
        return embedded

    def _positions(self, modality_encoding: Tensor, length: int) -> Tensor:
        """Time and modality encodings together, (T, M, D)."""
        time: Tensor = self.time_encoding  # type: ignore[assignment]
        return time[:length].unsqueeze(1) + modality_encoding


def encode_step(
    embeddings: Sequence[nn.Module],
    positions: Tensor,
    transformer: Transformer,
    values: Sequence[Tensor],
) -> Tensor:
    """Encode one step whose K tokens are all visible, so that there is no mask to work out.

    Args:
        embeddings: Of each modality.
        positions: Time and modality encodings, (K, D).
        transformer: The encoder.
        values: Normalised values of each modality, (B, *shape); integer classes (B,).

    Returns:
        (B, K, D).
    """
    tokens = torch.stack(
        [
            embed(v if isinstance(embed, nn.Embedding) else v.reshape(len(v), -1))
            for embed, v in zip(embeddings, values, strict=True)
        ],
        dim=1,
    )
    B, K, D = tokens.shape
    encoded: Tensor = transformer((tokens + positions).view(B * K, D), Layout.full(B, K))
    return encoded.view(B, K, D)


def add_lines(
    modalities: Sequence[Modality],
    predictions: dict[str, Tensor],
    values: Mapping[str, Tensor],
    visible: Tensor,
) -> None:
    """Make predicted changes of states into states, in place; `visible` (B, L) is on the CPU."""
    shown = visible.view(len(visible), -1, len(modalities))  # (B, T, M)
    for i, m in enumerate(modalities):
        if m.role == "state" and m.kind == "continuous" and m.name in predictions:
            line = between_visible(values[m.name], shown[:, :, i])
            predictions[m.name] = predictions[m.name] + line


def between_visible(values: Tensor, visible: Tensor) -> Tensor:
    """Straight lines between visible values in time; before and after them, the nearest one.

    Args:
        values: (B, T, *shape).
        visible: (B, T), on the CPU; where a sample has none, the result is zero.
    """
    T = visible.shape[1]
    time = torch.arange(T)
    before = torch.where(visible, time, -1).cummax(dim=1).values  # (B, T), -1 if there is none
    after = torch.where(visible, time, T).flip(1).cummin(dim=1).values.flip(1)  # T if none
    first = torch.where(before < 0, after, before).clamp(max=T - 1)
    second = torch.where(after >= T, before, after).clamp(min=0)
    share = (time - first).clamp(min=0) / (second - first).clamp(min=1)  # of the way to `second`
    flat = values.flatten(2) if values.ndim > 2 else values.unsqueeze(2)
    width, device = flat.shape[2], values.device
    start, end = (
        flat.gather(1, place.to(device, non_blocking=True).unsqueeze(2).expand(-1, -1, width))
        for place in (first, second)
    )
    weight = share.to(flat.dtype).to(device, non_blocking=True).unsqueeze(2)
    line = torch.lerp(start, end, weight)
    found = visible.any(dim=1)[:, None, None].to(device, non_blocking=True)
    return line.masked_fill(~found, 0.0).view(values.shape)


def _modality_encoder(modality: Modality, width: int) -> nn.Module:
    if modality.kind == "discrete":
        return nn.Embedding(modality.classes, width)
    return nn.Linear(modality.size, width)


def _head(modality: Modality, config: ModelConfig) -> nn.Module:
    width, numbers = config.width, modality.size * (2 if config.predict_variance else 1)
    outputs = modality.classes if modality.kind == "discrete" else numbers
    return nn.Sequential(
        nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.Linear(width, outputs)
    )


def _bounded(log_variance: Tensor) -> Tensor:
    """Log-variances within bounds, so that no token's weight in the loss runs away."""
    return LARGEST_LOG_VARIANCE * torch.tanh(log_variance / LARGEST_LOG_VARIANCE) - 1.0


def _token(count: int, width: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(count, width) * TOKEN_STD)


def _sinusoids(length: int, width: int) -> Tensor:
    """Fixed encoding of time: sines, then cosines, of falling frequency, (length, width).

    Wavelengths go from 2 steps to 4 segments. With the usual 2 pi to 10,000 steps most features
    would hardly change over a short segment, and its steps would look alike.
    """
    exponent = torch.arange(width // 2) / (width // 2)
    frequency = math.pi * torch.exp(-math.log(2.0 * length) * exponent)
    angle = torch.arange(length).unsqueeze(1) * frequency  # (length, width/2)
    return torch.cat([angle.sin(), angle.cos()], dim=1)


def _unflatten(flat: Tensor, modality: Modality) -> Tensor:
    """(..., size) to (..., *shape)."""
    return flat.reshape(*flat.shape[:-1], *modality.shape)
