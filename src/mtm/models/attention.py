"""Attention among the tokens of each sample, packed as in `mtm.models.packing`.

PyTorch's kernel is made for long sequences. The segments here are short: on several threads of a
CPU, plain batched products take half of its time at 12 tokens (docs/research-log). Both ways give
the same. Letters as in `mtm.models.packing`, H heads of D/H features each.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from mtm.models.dropout import kept_share
from mtm.models.packing import Block, Layout, put, take

LONGEST_PRODUCTS = 96
"""Tokens of a sample up to which plain products are the faster way, on a CPU."""


FEW_PAIRS = 8
"""Samples of two tokens up to which PyTorch's kernel is the faster way: it is one call."""


def attend(packed: Tensor, layout: Layout, heads: int, dropout: float = 0.0) -> Tensor:
    """Attention of all tokens to those of the same sample.

    Args:
        packed: Queries, keys and values side by side, (N, 3 D).
        layout: Where the tokens are.
        heads: H.
        dropout: Share of the attention weights that are set to zero.

    Returns:
        (N, D).
    """
    if _suit_products(packed, layout):
        mixed: Tensor = _Products.apply(packed, layout.blocks, heads, dropout)  # type: ignore[no-untyped-call]
        return mixed
    parts = []
    for tokens, block in layout.split(packed):
        q, k, v = _by_head(tokens, block, heads, 3)  # (S, H, K, D/H) each
        parts.append(_mix(q, k, v, block, block.may_attend, dropout))  # (packed, D)
    return torch.cat(parts) if len(parts) != 1 else parts[0]


def attend_from(
    queries: Tensor,
    wanted: Layout,
    keys_values: Tensor,
    layout: Layout,
    heads: int,
    dropout: float = 0.0,
) -> Tensor:
    """Attention of some tokens to all of the same sample, of sequences that are not packed.

    Args:
        queries: Of the wanted tokens, packed, (N, D).
        wanted: Where these are.
        keys_values: Of all tokens, side by side, (B * L, 2 D).
        layout: Of all tokens, one block.
        heads: H.
        dropout: As for `attend`.

    Returns:
        (N, D).
    """
    (everything,) = layout.blocks
    rows = keys_values.view(everything.count, -1)  # (B, L * 2 D)
    order = [block.samples for block in wanted.blocks if block.samples is not None]
    if order:  # at once: each part by itself would make a gradient of the whole
        rows = take(rows, torch.cat(order))
    parts = []
    of_blocks = torch.split_with_sizes(rows, [block.count for block in wanted.blocks])
    for (tokens, block), mine in zip(wanted.split(queries), of_blocks, strict=True):
        (q,) = _by_head(tokens, block, heads, 1)  # (S, H, K, D/H)
        k, v = mine.view(block.count, everything.width, 2, heads, -1).permute(2, 0, 3, 1, 4)
        parts.append(_mix(q, k, v, block, None, dropout))  # (packed, D)
    return torch.cat(parts) if len(parts) != 1 else parts[0]


def attend_within(q: Tensor, k: Tensor, v: Tensor, heads: int) -> Tensor:
    """Attention of some tokens of each sample to others, of which all samples have equally many.

    Args:
        q: (..., Q, D).
        k: (..., K, D).
        v: (..., K, D).
        heads: H.

    Returns:
        (..., Q, D).
    """
    leading, D = q.shape[:-1], q.shape[-1]
    q, k, v = (part.view(*part.shape[:-1], heads, D // heads) for part in (q, k, v))
    if k.shape[-3] == 2:
        return _attend_to_two(q, k, v, dim=-3).view(*leading, D)
    q, k, v = (part.flatten(0, -4).transpose(1, 2) for part in (q, k, v))  # (B, H, tokens, D/H)
    return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(*leading, D)


def attend_among(features: Tensor, tokens: int, heads: int) -> Tensor:
    """Attention among the tokens of each sample, of which all samples have equally many.

    Args:
        features: Queries, keys and values side by side, (..., S * tokens, 3 D).
        tokens: Of a sample.
        heads: H.

    Returns:
        (..., S * tokens, D).
    """
    D = features.shape[-1] // 3
    parts = features.view(-1, tokens, 3, heads, D // heads)
    if tokens == 2 and (torch.compiler.is_compiling() or len(parts) > FEW_PAIRS):
        q, k, v = parts.unbind(2)  # (S, 2, H, D/H) each
        mixed = _attend_to_two(q, k, v, dim=1)
    else:
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind()  # (S, H, tokens, D/H) each
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2)
    return mixed.reshape(*features.shape[:-1], D)


def _suit_products(packed: Tensor, layout: Layout) -> bool:
    """Whether plain products are faster: short sequences, on a CPU.

    Pairs are left to what `torch.vmap` can map over.
    """
    widths = {block.width for block in layout.blocks}
    return (
        packed.device.type == "cpu"
        and packed.dtype == torch.float32
        and max(widths) <= LONGEST_PRODUCTS
        and widths != {2}
    )


class _Products(torch.autograd.Function):
    """Attention of all blocks of a layer as plain batched products.

    One step of autograd for all of them: there are up to `MOST_BLOCKS` small ones in a layer.
    """

    @staticmethod
    def forward(ctx, packed, blocks, heads, dropout):  # type: ignore[no-untyped-def]
        ctx.blocks, ctx.heads = blocks, heads
        mixed = packed.new_empty(len(packed), packed.shape[1] // 3)
        sizes, saved = [block.packed for block in blocks], []
        unused = packed.new_empty(1)  # what `baddbmm` adds, times zero: it can scale, `bmm` cannot
        for rows, out, block in zip(packed.split(sizes), mixed.split(sizes), blocks, strict=True):
            q, k, v = parts = _by_head(rows, block, heads, 3).flatten(1, 2)  # (S * H, K, D/H) each
            scores = torch.baddbmm(unused, q, k.mT, beta=0, alpha=_scale(q))  # (S * H, K, K)
            if block.may_attend is not None:
                by_row = scores.view(block.count, heads, block.width, block.width)
                by_row.masked_fill_(~block.may_attend, -math.inf)
            weights = scores.softmax(dim=-1)
            kept = kept_share(weights, dropout) if dropout else None
            _heads_last(torch.bmm(weights if kept is None else weights * kept, v)[None], out, block)
            saved += [parts, weights, kept]
        ctx.save_for_backward(*saved)
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        packed = gradient.new_empty(len(gradient), 3 * gradient.shape[1])
        sizes, saved = [block.packed for block in ctx.blocks], ctx.saved_tensors
        unused = gradient.new_empty(1)
        rows, outs = gradient.split(sizes), packed.split(sizes)
        for i, block in enumerate(ctx.blocks):
            parts, weights, kept = saved[3 * i : 3 * i + 3]
            q, k, v = parts
            (g,) = _by_head(rows[i], block, ctx.heads, 1).flatten(1, 2)  # (S * H, K, D/H)
            grads = torch.empty_like(parts)  # of q, k and v
            torch.bmm((weights if kept is None else weights * kept).mT, g, out=grads[2])
            of_weights = torch.bmm(g, v.mT)  # (S * H, K, K)
            if kept is not None:
                of_weights.mul_(kept)
            of_scores = torch.ops.aten._softmax_backward_data(of_weights, weights, -1, g.dtype)
            torch.baddbmm(unused, of_scores, k, beta=0, alpha=_scale(q), out=grads[0])
            torch.baddbmm(unused, of_scores.mT, q, beta=0, alpha=_scale(q), out=grads[1])
            _heads_last(grads, outs[i], block)
        return packed, None, None, None


def _heads_last(parts: Tensor, out: Tensor, block: Block) -> None:
    """The inverse of `_by_head`: (P, S * H, K, D/H) is written to `out`, (packed, P * D)."""
    P, S, K = len(parts), block.count, block.width
    by_head = parts.view(P, S, -1, K, parts.shape[-1])  # (P, S, H, K, D/H)
    tokens_first = by_head.permute(1, 3, 0, 2, 4)  # (S, K, P, H, D/H)
    if block.slots is None:
        out.view(tokens_first.shape).copy_(tokens_first)
    else:
        torch.index_select(tokens_first.reshape(S * K, -1), 0, block.slots, out=out)


def _scale(queries: Tensor) -> float:
    return 1 / math.sqrt(queries.shape[-1])


def _mix(
    q: Tensor, k: Tensor, v: Tensor, block: Block, may_attend: Tensor | None, dropout: float
) -> Tensor:
    """Attention within the rows of a block, (S, H, K, D/H) each, to its tokens, (packed, D)."""
    if k.shape[2] == 2 and may_attend is None and not dropout:
        mixed = _attend_to_two(q, k, v, dim=2)
    else:
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=may_attend, dropout_p=dropout)
    mixed = mixed.transpose(1, 2).reshape(block.count * block.width, -1)  # (S * K, D)
    return mixed if block.slots is None else take(mixed, block.slots)


def _by_head(packed: Tensor, block: Block, heads: int, parts: int) -> Tensor:
    """(packed, parts * D) to (parts, S, H, K, D/H), padded with zeros."""
    S, K = block.count, block.width
    if block.slots is not None:
        packed = put(packed, block.slots, S * K)
    return packed.view(S, K, parts, heads, -1).permute(2, 0, 3, 1, 4)


def _attend_to_two(q: Tensor, k: Tensor, v: Tensor, dim: int) -> Tensor:
    """Attention to two tokens, which lie along an axis: a softmax of two is a sigmoid of their gap.

    For pairs it is no slower than PyTorch's kernel, which cannot be mapped over (`torch.vmap`), as
    libraries do with the networks of several critics.
    """
    (k1, k2), (v1, v2) = k.chunk(2, dim), v.chunk(2, dim)  # (S, H, 1, D/H)
    gap = (q * (k1 - k2)).sum(dim=-1, keepdim=True) * _scale(q)  # (S, H, 2, 1)
    return torch.lerp(v2, v1, gap.sigmoid())
