"""Layers of attention and perceptrons: the encoder over visible tokens, the decoder over all.

Letters as in `mtm.models.packing`, D width.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mtm.core.config import ModelConfig
from mtm.models.attention import attend, attend_from
from mtm.models.dropout import drop
from mtm.models.packing import Expansion, Layout, take
from mtm.models.products import Linear, linear
from mtm.models.stacked import StackedLinear

RowsFunction = Callable[[Tensor], Tensor]
"""From rows of features to others, or to more of them."""


def _as_they_are(rows: Tensor) -> Tensor:
    return rows


def _some(expand: RowsFunction, rows: Tensor, wanted: Layout) -> Tensor:
    """The wanted ones of the tokens that are made of rows."""
    if isinstance(expand, Expansion):
        return expand.some(rows, wanted.tokens)
    return take(expand(rows), wanted.tokens)


class Encoder(nn.Module):
    """Pre-norm layers and a final norm over the visible tokens, packed."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.encoder_layers))
        self.norm = nn.LayerNorm(config.width)

    def forward(self, x: Tensor, layout: Layout) -> Tensor:
        """All layers, (N, D) to (N, D)."""
        for layer in self.layers:
            x = layer(x, layout)
        latent: Tensor = self.norm(x)
        return latent


class Decoder(nn.Module):
    """Pre-norm layers and a final norm over all tokens of every sample.

    Before the first attention, a hidden token is the same in all samples, so its queries, keys and
    values are worked out once. After the last, only what is wanted goes on.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.decoder_layers))
        self.norm = nn.LayerNorm(config.width)

    def forward(
        self,
        shown: Tensor,
        blank: Tensor,
        places: Tensor,
        batch: int,
        wanted: Layout | None = None,
    ) -> Tensor:
        """All layers.

        Args:
            shown: The visible tokens of all samples, packed, (N, D), member after member.
            blank: What a hidden token is at each place of a sample, (L, D), of E members (E, L, D).
            places: Of the visible tokens among the B * L, (N,), or those of all members.
            batch: B.
            wanted: The tokens to answer for; all if None.

        Returns:
            (B * L, D), or the wanted tokens, packed.
        """
        L, D, E = *blank.shape[-2:], len(blank) if blank.ndim == 3 else 1
        everything = Layout.full(E * batch, L)
        expand = Expansion(places, batch, L, E)
        x = torch.cat([shown.view(*blank.shape[:-2], -1, D), blank], dim=-2)
        x = x.view(-1, D)  # (N + L, D) of each member, and from the first layer on (B * L, D)
        last = len(self.layers) - 1
        for i, layer in enumerate(self.layers):
            x = layer(x, everything, wanted if i == last else None, _as_they_are if i else expand)
        decoded: Tensor = self.norm(x)
        return decoded


class Layer(nn.Module):
    """Attention among the tokens of a sample, then a two-layer perceptron on each token."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        D = config.width
        self.heads, self.dropout = config.heads, config.dropout
        self.attention_norm = nn.LayerNorm(D)
        self.to_queries_keys_values = Linear(D, 3 * D)
        self.from_heads = Linear(D, D)
        self.mlp_norm = nn.LayerNorm(D)
        self.mlp_in = Linear(D, 4 * D)
        self.mlp_out = Linear(4 * D, D)

    def forward(
        self,
        x: Tensor,
        layout: Layout,
        wanted: Layout | None = None,
        expand: RowsFunction = _as_they_are,
    ) -> Tensor:
        """One layer, (N, D) to (N, D), or to the wanted tokens of a sequence that is not packed.

        Args:
            x: The tokens, or what `expand` makes them of.
            layout: Where the tokens are.
            wanted: Those to answer for; all if None.
            expand: Makes all tokens of those that differ, where samples have some in common.
        """
        mixed = self._attention(self.attention_norm(x), layout, wanted, expand)  # (N, D)
        x = expand(x) if wanted is None else _some(expand, x, wanted)
        x = x + self._drop(mixed)
        hidden = self._drop(F.gelu(self.mlp_in(self.mlp_norm(x))))  # (N, 4 D)
        return x + self._drop(self.mlp_out(hidden))

    def _attention(
        self,
        x: Tensor,
        layout: Layout,
        wanted: Layout | None = None,
        expand: RowsFunction = _as_they_are,
    ) -> Tensor:
        D = x.shape[-1]
        if wanted is not None:
            keys_values = expand(self.project(x, slice(D, None)))  # (B * L, 2 D)
            queries = self.project(_some(expand, x, wanted), slice(D))
            mixed = attend_from(queries, wanted, keys_values, layout, self.heads, self._dropped)
        elif layout.is_lonely:
            # A token alone attends to itself: queries and keys decide nothing. No token at all goes
            # this way too: every weight gets a gradient (of zeros), which DDP waits for.
            mixed = expand(self.project(x, slice(2 * D, None)))
        else:
            features = self.to_queries_keys_values(x)
            mixed = attend(expand(features), layout, self.heads, self._dropped)
        out: Tensor = self.from_heads(mixed)
        return out

    def project(self, x: Tensor, part: slice) -> Tensor:
        """Some of the queries, keys and values, which lie side by side."""
        project = self.to_queries_keys_values
        if isinstance(project, StackedLinear):
            return project.part(x, part)
        return linear(x, project.weight[part], project.bias[part])

    @property
    def _dropped(self) -> float:
        return self.dropout if self.training else 0.0

    def _drop(self, x: Tensor) -> Tensor:
        return drop(x, self._dropped) if self._dropped else x
