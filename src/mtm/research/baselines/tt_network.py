"""The Trajectory Transformer's network: each token from those before it, by the layers of MTM.

Letters: B rows, J tokens of a step, L tokens of a row, V values of a token, D width, H heads.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mtm.core.config import ModelConfig
from mtm.models.packing import Block, Layout
from mtm.models.transformer import Layer
from mtm.research.baselines.imitation_settings import TTConfig

SPECIAL = 2
"""Tokens beside the bins, `over` and `unknown`; the second is never predicted."""


class TokenTransformer(nn.Module):
    """Causal, but for returns: no token sees one, so that a plan rests on what was done.

    Args:
        numbers: J.
        config: Settings.
    """

    may_attend: Tensor
    offsets: Tensor

    def __init__(self, numbers: int, config: TTConfig) -> None:
        super().__init__()
        J, D, V = numbers, config.width, config.bins
        L = config.context * J
        self.numbers, self.length, self.heads = J, L, config.heads
        self._values = V + SPECIAL
        self.embedding = nn.Embedding(J * self._values, D)
        self.positions = nn.Parameter(torch.zeros(L, D))
        model = ModelConfig(width=D, heads=config.heads, dropout=config.dropout)
        self.layers = nn.ModuleList(Layer(model) for _ in range(config.layers))
        self.norm = nn.LayerNorm(D)
        self.out = nn.Parameter(torch.empty(J, D, V + 1))
        nn.init.normal_(self.embedding.weight, std=0.02)
        nn.init.normal_(self.out, std=0.02)
        may_attend = torch.ones(L, L, dtype=torch.bool).tril()
        may_attend[:, J - 1 :: J] = False
        self.register_buffer("may_attend", may_attend, persistent=False)
        which = torch.arange(J).repeat(config.context) * self._values
        self.register_buffer("offsets", which, persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of each token from those before it, (B, L, V + 1); those of the first are void.

        Args:
            tokens: Of whole steps, (B, L).
        """
        B, L = tokens.shape
        x = self._embedded(tokens, 0).reshape(B * L, -1)
        allowed = self.may_attend[None, None, :L, :L]
        layout = Layout(tokens.new_empty(0), (Block(None, B, L, B * L, None, allowed),))
        for layer in self.layers:
            x = layer(x, layout)
        x = self.norm(x).view(B, L, -1)
        before = F.pad(x[:, :-1], (0, 0, 1, 0))  # at each token, what the one before it knows
        by_number = before.reshape(B * L // self.numbers, self.numbers, -1).transpose(0, 1)
        logits = torch.bmm(by_number, self.out)  # (J, B * T, V + 1)
        return logits.transpose(0, 1).reshape(B, L, -1)

    def _embedded(self, tokens: Tensor, start: int) -> Tensor:
        """(B, n) at the places from `start` on, to (B, n, D)."""
        end = start + tokens.shape[1]
        embedded: Tensor = self.embedding(tokens + self.offsets[start:end])
        return embedded + self.positions[start:end]

    def read(self, tokens: Tensor, memory: Memory) -> Tensor:
        """Go on with rows that are remembered; as `forward`, without dropout.

        Args:
            tokens: That follow, (B, n).
            memory: Of the tokens before; those that follow are added.

        Returns:
            Logits of the next token, (B, V + 1).
        """
        start, end = memory.filled, memory.filled + tokens.shape[1]
        allowed = self.may_attend[start:end, :end]
        x = self._embedded(tokens, start)  # (B, n, D)
        for layer, kept in zip(self.layers, memory.kept, strict=True):
            x = self._remembering(layer, x, kept, start, allowed)  # type: ignore[arg-type]
        memory.filled = end
        return torch.mm(self.norm(x[:, -1]), self.out[end % self.numbers])

    def _remembering(
        self, layer: Layer, x: Tensor, kept: Tensor, start: int, allowed: Tensor
    ) -> Tensor:
        """A layer over new tokens, which attend to those that are kept too."""
        B, n, D = x.shape
        new = layer.to_queries_keys_values(layer.attention_norm(x))  # (B, n, 3 D)
        q, k, v = new.view(B, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)  # (B, H, n, D/H)
        kept[0, :, :, start : start + n], kept[1, :, :, start : start + n] = k, v
        keys, values = kept[:, :, :, : start + n]
        mixed = F.scaled_dot_product_attention(q, keys, values, attn_mask=allowed)
        x = x + layer.from_heads(mixed.transpose(1, 2).reshape(B, n, D))
        hidden = F.gelu(layer.mlp_in(layer.mlp_norm(x)))
        out: Tensor = layer.mlp_out(hidden)
        return x + out


class Memory:
    """Keys and values of the tokens that rows have read so far.

    Args:
        kept: Of each layer, (2, B, H, L, D/H).
        filled: Tokens of a row.
    """

    def __init__(self, kept: list[Tensor], filled: int = 0) -> None:
        self.kept, self.filled = kept, filled

    @classmethod
    def empty(cls, network: TokenTransformer, rows: int) -> Memory:
        """Of rows that have read nothing."""
        D = network.positions.shape[1]
        shape = (2, rows, network.heads, network.length, D // network.heads)
        return cls([network.positions.new_empty(shape) for _ in network.layers])

    def select(self, rows: Tensor) -> Memory:
        """Of these rows, in this order, as often as they are named."""
        kept = []
        for old in self.kept:
            new = old.new_empty(2, len(rows), *old.shape[2:])
            new[:, :, :, : self.filled] = old[:, rows, :, : self.filled]
            kept.append(new)
        return Memory(kept, self.filled)
