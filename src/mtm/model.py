"""The network, whole: a bidirectional masked autoencoder over the tokens of a segment.

    values --modality encoders, + time and modality encodings--> tokens
    visible tokens --transformer encoder--> latent
    latent, with a mask token wherever nothing was visible --transformer decoder--> (B, L, D)
    --head of each modality--> predictions of every token, the visible ones included

Letters: B batch, T time, M modalities, L = T*M tokens in time-major order, D width, N visible
tokens of the whole batch, K most visible tokens of one sample.

The encoder does not pay for what is hidden. Each sample has a mask of its own, so its visible
tokens are packed into one list of N for everything that works token by token (linear layers,
norms), and padded to (B, K) for attention alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mtm.config import ModelConfig
from mtm.trajectories import Modality

TOKEN_STD = 0.02
"""Spread of the initial mask tokens and modality encodings."""


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
        self.heads = nn.ModuleDict({m.name: _head(m, D) for m in modalities})

    def forward(
        self,
        values: Mapping[str, Tensor],
        visible: Tensor,
        wanted: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Predict tokens from the visible ones.

        Args:
            values: For each modality normalised values (B, T, *shape), or integer classes (B, T);
                T is at most `segment_length`. What is stored at hidden tokens has no influence.
            visible: (B, L) booleans. Keep it on the CPU, where masks are made: the layout of the
                packed tokens is worked out there, without waiting for a GPU.
            wanted: (B, L) booleans, on the CPU: predict only these tokens, which saves most of the
                decoder's work when they are few. All if None.

        Returns:
            For each modality with a wanted token (B, T, *shape), or logits (B, T, classes). What
            stands at tokens that are not wanted means nothing.
        """
        layout = Layout.of(visible, self.mask_tokens.device)
        latent = self.encode(values, visible, layout)  # (N, D)
        T = visible.shape[1] // len(self.modalities)
        predictions = self._heads(self.decode(latent, layout, T, wanted), layout.batch, T, wanted)
        for i, m in enumerate(self.modalities):
            changes = self.config.residual and m.role == "state" and m.kind == "continuous"
            if changes and m.name in predictions:
                here = visible.view(layout.batch, T, -1)[:, :, i]
                predictions[m.name] = predictions[m.name] + between_visible(values[m.name], here)
        return predictions

    def encode(self, values: Mapping[str, Tensor], visible: Tensor, layout: Layout) -> Tensor:
        """The encoder's output for the visible tokens, packed: (N, D)."""
        B, M = layout.batch, len(self.modalities)
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

    def decode(
        self, latent: Tensor, layout: Layout, length: int, wanted: Tensor | None = None
    ) -> Tensor:
        """The decoder's output for the wanted tokens, packed, from the packed latent (N, D)."""
        B, T, (M, D) = layout.batch, length, self.mask_tokens.shape
        blank = self.mask_tokens.expand(B, T, M, D).reshape(B * T * M, D)
        tokens = blank.index_copy(0, layout.tokens, self.to_decoder(latent).to(blank.dtype))
        tokens = tokens.view(B, T, M, D) + self._positions(self.decoder_modality_encoding, T)
        asked = None if wanted is None else Layout.of(wanted, latent.device)
        decoded: Tensor = self.decoder(tokens.view(B * T * M, D), Layout.full(B, T * M), asked)
        return decoded

    def _heads(
        self, decoded: Tensor, batch: int, length: int, wanted: Tensor | None
    ) -> dict[str, Tensor]:
        """Each modality's head on its tokens; zero where a token is not wanted."""
        B, T, M = batch, length, len(self.modalities)
        predictions = {}
        for i, m in enumerate(self.modalities):
            if wanted is None:
                out = self.heads[m.name](decoded.view(B, T, M, -1)[:, :, i])  # (B, T, size)
            else:
                places = wanted.flatten().nonzero().squeeze(1)
                mine = places % M == i
                if not mine.any():
                    continue
                rows = mine.nonzero().squeeze(1).to(decoded.device, non_blocking=True)
                steps = (places[mine] // M).to(decoded.device, non_blocking=True)
                out = self.heads[m.name](take(decoded, rows))
                out = put(out, steps, B * T).view(B, T, -1)
            predictions[m.name] = out if m.kind == "discrete" else _unflatten(out, m)
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


@dataclass(frozen=True)
class Layout:
    """Where the chosen tokens of a batch are, packed and padded: the visible, or the wanted ones.

    Attributes:
        batch: B.
        width: K, the most visible tokens of one sample.
        tokens: Place of each packed token among the B*L tokens, (N,).
        slots: Place of each packed token among the B*K padded ones, (N,); None if nothing is
            padded, because every sample shows K tokens.
        attend: Which padded slots hold a token, (B, 1, 1, K); None if all do.
    """

    batch: int
    width: int
    tokens: Tensor
    slots: Tensor | None
    attend: Tensor | None

    @classmethod
    def of(cls, visible: Tensor, device: torch.device) -> Layout:
        """The layout of a mask, (B, L)."""
        visible = visible.cpu()
        counts = visible.sum(dim=1)  # (B,)
        K = max(int(counts.max()), 1)
        B = len(visible)
        tokens = visible.flatten().nonzero().squeeze(1)
        slots = attend = None
        if len(tokens) < B * K:
            filled = torch.arange(K) < counts.unsqueeze(1)  # (B, K)
            slots = filled.flatten().nonzero().squeeze(1).to(device, non_blocking=True)
            attend = filled[:, None, None, :].to(device, non_blocking=True)
        return cls(B, K, tokens.to(device, non_blocking=True), slots, attend)

    @classmethod
    def full(cls, batch: int, width: int) -> Layout:
        """All tokens of every sample, nothing packed or padded."""
        return cls(batch, width, torch.empty(0, dtype=torch.int64), None, None)


class Transformer(nn.Module):
    """Pre-norm layers and a final norm, over packed tokens (N, D)."""

    def __init__(self, layers: int, config: ModelConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(config) for _ in range(layers))
        self.norm = nn.LayerNorm(config.width)

    def forward(self, x: Tensor, layout: Layout, wanted: Layout | None = None) -> Tensor:
        """All layers, (N, D) to (N, D), or to the wanted tokens only."""
        for layer in self.layers[:-1]:
            x = layer(x, layout)
        x = self.layers[-1](x, layout, wanted)
        out: Tensor = self.norm(x)
        return out


class Layer(nn.Module):
    """Attention among the tokens of a sample, then a two-layer perceptron on each token."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        D = config.width
        self.heads, self.dropout = config.heads, config.dropout
        self.attention_norm = nn.LayerNorm(D)
        self.to_queries_keys_values = nn.Linear(D, 3 * D)
        self.from_heads = nn.Linear(D, D)
        self.mlp_norm = nn.LayerNorm(D)
        self.mlp_in = nn.Linear(D, 4 * D)
        self.mlp_out = nn.Linear(4 * D, D)

    def forward(self, x: Tensor, layout: Layout, wanted: Layout | None = None) -> Tensor:
        """One layer, (N, D) to (N, D), or to the wanted tokens of a sequence that is not packed."""
        mixed = self._attention(self.attention_norm(x), layout, wanted)
        x = x if wanted is None else take(x, wanted.tokens)
        x = x + self._drop(mixed)
        hidden = self._drop(F.gelu(self.mlp_in(self.mlp_norm(x))))
        return x + self._drop(self.mlp_out(hidden))

    def _attention(self, x: Tensor, layout: Layout, wanted: Layout | None) -> Tensor:
        D, project = x.shape[-1], self.to_queries_keys_values
        asking = layout if wanted is None else wanted
        if wanted is None:
            q, k, v = self._by_head(project(x), layout, 3)
        else:
            (q,) = self._by_head(
                F.linear(take(x, wanted.tokens), project.weight[:D], project.bias[:D]), wanted, 1
            )
            k, v = self._by_head(F.linear(x, project.weight[D:], project.bias[D:]), layout, 2)
        mixed = F.scaled_dot_product_attention(
            q, k, v, attn_mask=layout.attend, dropout_p=self.dropout if self.training else 0.0
        )
        mixed = mixed.transpose(1, 2).reshape(asking.batch * asking.width, D)
        if asking.slots is not None:
            mixed = take(mixed, asking.slots)  # (N, D)
        out: Tensor = self.from_heads(mixed)
        return out

    def _by_head(self, packed: Tensor, layout: Layout, parts: int) -> tuple[Tensor, ...]:
        """(N, parts * D) to `parts` tensors of (B, H, K, D/H), padded with zeros."""
        B, K, H = layout.batch, layout.width, self.heads
        if layout.slots is not None:
            packed = put(packed, layout.slots, B * K)
        return packed.view(B, K, parts, H, -1).permute(2, 0, 3, 1, 4).unbind(0)

    def _drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout, self.training) if self.dropout else x


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


def take(rows: Tensor, places: Tensor) -> Tensor:
    """Rows at different places, (N, D); the backward pass copies instead of adding."""
    taken: Tensor = _Take.apply(rows, places)  # type: ignore[no-untyped-call]
    return taken


def put(rows: Tensor, places: Tensor, count: int) -> Tensor:
    """The inverse of `take`: `count` rows, zero where nothing is put."""
    padded: Tensor = _Put.apply(rows, places, count)  # type: ignore[no-untyped-call]
    return padded


class _Take(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows, places):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(places)
        ctx.count = len(rows)
        return rows.index_select(0, places)

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        (places,) = ctx.saved_tensors
        return put(gradient, places, ctx.count), None


class _Put(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows, places, count):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(places)
        return rows.new_zeros(count, rows.shape[1]).index_copy_(0, places, rows)

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        (places,) = ctx.saved_tensors
        return take(gradient, places), None, None


def _modality_encoder(modality: Modality, width: int) -> nn.Module:
    if modality.kind == "discrete":
        return nn.Embedding(modality.classes, width)
    return nn.Linear(modality.size, width)


def _head(modality: Modality, width: int) -> nn.Module:
    outputs = modality.classes if modality.kind == "discrete" else modality.size
    return nn.Sequential(
        nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.Linear(width, outputs)
    )


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
