"""Tokens of many samples, packed: linear layers and norms work on one list of them.

Attention needs rows. Several short samples are joined in a row, in which each sees itself alone; of
longer ones, those with equally many tokens form a dense block of rows.

    chosen, (B, L) = (3, 5)     joined, (S, K) = (2, 4)     packed, N = 8
    a a . a .                   c c c c                     c c c c a a a b
    . b . . .                   a a a b
    c . c c c

Letters: B samples of a batch, L tokens of a sample, N packed tokens of the whole batch, S rows of a
block and K places of each, D features.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

MOST_BLOCKS = 16
"""Attention calls per layer at most: more save padding, fewer save calls."""

LONGEST_JOINED = 96
"""Tokens of a sample up to which samples share rows; beyond, one call for all gains nothing."""


@dataclass(frozen=True)
class Block:
    """What attention takes in one call: rows of places, each with a sample or several joined ones.

    Attributes:
        samples: Which of the batch they are, (S,), if each row is one; None if the rows are the
            whole batch, in order, or joined samples.
        count: S.
        width: K, the most tokens of a row.
        packed: How many packed tokens the rows have together, at most S * K.
        slots: Place of each of these among the S * K, (packed,); None if all places are taken.
        may_attend: To which places those of a row attend, (S, 1, K, K), or (S, 1, 1, K) if all to
            the same; None if to all. The axis of 1 is for the heads.
    """

    samples: Tensor | None
    count: int
    width: int
    packed: int
    slots: Tensor | None = None
    may_attend: Tensor | None = None

    def times(self, members: int, samples: int) -> Block:
        """The rows of several members, one member after the other, of so many samples each."""
        return Block(
            None if self.samples is None else _offset(self.samples, members, samples),
            self.count * members,
            self.width,
            self.packed * members,
            None if self.slots is None else _offset(self.slots, members, self.count * self.width),
            None if self.may_attend is None else self.may_attend.repeat(members, 1, 1, 1),
        )


@dataclass(frozen=True)
class Layout:
    """Where the chosen tokens of a batch are: the visible, or the wanted ones.

    Attributes:
        tokens: Place of each packed token among the B * L tokens, (N,).
        blocks: In the order of the packed tokens; samples without tokens are in none.
        by_modality: Of each modality, which of the packed tokens are its own; empty if nobody
            asked. They are worked out on the CPU: a GPU would have to be waited for, to know how
            many they are.
    """

    tokens: Tensor
    blocks: tuple[Block, ...]
    by_modality: tuple[Tensor, ...] = ()

    @classmethod
    def joined(cls, chosen: Tensor, device: torch.device, modalities: int = 0) -> Layout:
        """The layout of a mask, (B, L) on the CPU, for attention of the chosen to each other.

        `by_modality` is worked out if the number of modalities is given.

        Samples that have few of many tokens share rows, so that one call does for all of them.
        """
        counts = chosen.sum(dim=1).tolist()
        sizes = {count for count in counts if count}
        if len(sizes) < 2 or max(sizes) > LONGEST_JOINED:
            return cls.by_count(chosen, device, modalities)
        K = max(sizes)
        rows = _join(counts, K)
        S = len(rows)
        order = torch.tensor([sample for row in rows for sample in row])
        samples, places = chosen[order].nonzero(as_tuple=True)  # (N,), samples by their new order
        tokens = order[samples] * chosen.shape[1] + places  # (N,)
        filled = torch.tensor([sum(counts[i] for i in row) for row in rows])  # (S,)
        slots = (torch.arange(K) < filled.unsqueeze(1)).flatten().nonzero().squeeze(1)  # (N,)
        # Whose each place is. One that nobody has is its own, so that it attends to something.
        owners = -1 - torch.arange(S * K)
        owners = owners.index_copy(0, slots, samples).view(S, 1, K, 1)
        may_attend = (owners == owners.mT).to(device, non_blocking=True)  # (S, 1, K, K)
        block = Block(None, S, K, len(slots), slots.to(device, non_blocking=True), may_attend)
        by_modality = _by_modality(tokens, modalities, device)
        return cls(tokens.to(device, non_blocking=True), (block,), by_modality)

    @classmethod
    def by_count(cls, chosen: Tensor, device: torch.device, modalities: int = 0) -> Layout:
        """The layout of a mask, (B, L) on the CPU; `by_modality` too if their number is given.

        The packed tokens are sorted by how many of them their sample has. Samples with equally many
        form a dense block, which attention takes as it is; only where there are too many different
        numbers (`MOST_BLOCKS`), samples with nearly equal ones share a block and are padded.
        """
        counts, order = chosen.sum(dim=1).sort(stable=True)  # (B,)
        samples, places = chosen[order].nonzero(as_tuple=True)  # (N,)
        tokens = order[samples] * chosen.shape[1] + places  # (N,)
        blocks = []
        for start, end in _block_bounds(counts):
            mine, sizes = order[start:end], counts[start:end]  # (S,)
            S, K, packed = end - start, int(sizes[-1]), int(sizes.sum())
            which = None if len(chosen) == S else mine.to(device, non_blocking=True)
            slots = may_attend = None
            if packed < S * K:
                filled = torch.arange(K) < sizes.unsqueeze(1)  # (S, K)
                slots = filled.flatten().nonzero().squeeze(1).to(device, non_blocking=True)
                may_attend = filled[:, None, None, :].to(device, non_blocking=True)
                which = mine.to(device, non_blocking=True)
            blocks.append(Block(which, S, K, packed, slots, may_attend))
        by_modality = _by_modality(tokens, modalities, device)
        return cls(tokens.to(device, non_blocking=True), tuple(blocks), by_modality)

    @classmethod
    def full(cls, batch: int, width: int) -> Layout:
        """All tokens of every sample, nothing packed or padded; `tokens` is empty, nobody asks."""
        tokens = torch.empty(0, dtype=torch.int64)
        return cls(tokens, (Block(None, batch, width, batch * width),))

    def times(self, members: int, batch: int, length: int) -> Layout:
        """The tokens of several members that see the same batch (B, L), one after the other."""
        blocks: tuple[Block, ...]
        if len(self.blocks) == 1:
            blocks = (self.blocks[0].times(members, batch),)
        else:  # a member's packed tokens stay side by side, so its blocks do, too
            blocks = tuple(
                block if block.samples is None else replace(block, samples=block.samples + first)
                for first in range(0, members * batch, batch)
                for block in self.blocks
            )
        N = len(self.tokens)
        return Layout(
            _offset(self.tokens, members, batch * length),
            blocks,
            tuple(_offset(rows, members, N) for rows in self.by_modality),
        )

    @property
    def is_lonely(self) -> bool:
        """Whether no sample has more than one token."""
        return all(block.packed == block.count for block in self.blocks)

    def split(self, packed: Tensor) -> Iterator[tuple[Tensor, Block]]:
        """The packed tokens of each block, from (N, C): (packed, C)."""
        if len(self.blocks) == 1:  # nothing to copy together again on the way back
            return iter([(packed, self.blocks[0])])
        parts = torch.split_with_sizes(packed, [block.packed for block in self.blocks])
        return zip(parts, self.blocks, strict=True)


@dataclass(frozen=True)
class Expansion:
    """Makes all tokens of a batch from those that differ: at a place, all hidden ones are the same.

    What works token by token can be done before, with N + L rows instead of B * L. Of several
    members (E), each has its own rows, and the same places.

    Attributes:
        places: Of the samples' own tokens among the B * L, (N,), member after member, (E * N,).
        batch: B.
        length: L.
        members: E.
    """

    places: Tensor
    batch: int
    length: int
    members: int = 1

    def __call__(self, rows: Tensor) -> Tensor:
        """The samples' own rows and, wherever they have none, the common one of that place.

        Args:
            rows: N own rows, then L common ones, (N + L, C), member after member.

        Returns:
            (B * L, C), member after member.
        """
        tokens: Tensor = _ExpandRows.apply(rows, self)  # type: ignore[no-untyped-call]
        return tokens

    def some(self, rows: Tensor, tokens: Tensor) -> Tensor:
        """The rows of some of the tokens, (n, C); without gradients, the others are not made."""
        if rows.requires_grad:
            return take(self(rows), tokens)
        E, B, L = self.members, self.batch, self.length
        N = len(self.places) // E
        of_members = torch.arange(E * (N + L), device=rows.device).view(E, N + L)
        origin = of_members[:, None, N:].repeat(1, B, 1).flatten()  # (E * B * L,)
        origin.index_copy_(0, self.places, of_members[:, :N].flatten())
        return rows.index_select(0, origin[tokens])


def _by_modality(tokens: Tensor, modalities: int, device: torch.device) -> tuple[Tensor, ...]:
    """Of each modality, which of the packed tokens (N,), on the CPU, are its own."""
    return tuple(
        (tokens % modalities == i).nonzero().squeeze(1).to(device, non_blocking=True)
        for i in range(modalities)
    )


def _join(counts: Sequence[int], width: int) -> list[list[int]]:
    """The samples of each row of `width` places, given how many tokens each sample has.

    The largest first, each where it leaves the least room (best fit, decreasing).
    """
    rows: list[list[int]] = []
    by_room: list[list[int]] = [[] for _ in range(width + 1)]  # which rows have so much room left
    for sample in sorted(range(len(counts)), key=counts.__getitem__, reverse=True):
        size = counts[sample]
        if not size:
            break
        room = next((room for room in range(size, width) if by_room[room]), width)
        if room < width:
            row = by_room[room].pop()
        else:
            row = len(rows)
            rows.append([])
        rows[row].append(sample)
        by_room[room - size].append(row)
    return rows


def _block_bounds(counts: Tensor) -> list[tuple[int, int]]:
    """Ranges of samples that form a block, given their rising numbers of tokens; none for 0."""
    _, starts = np.unique(counts.numpy(), return_index=True)
    edges = [*starts.tolist(), len(counts)]
    if len(counts) and counts[0] == 0:
        edges = edges[1:]
    if len(edges) - 1 > MOST_BLOCKS:
        edges = np.unique(np.linspace(edges[0], edges[-1], MOST_BLOCKS + 1).round()).tolist()
    return [(int(start), int(end)) for start, end in pairwise(edges)]


def _offset(places: Tensor, members: int, size: int) -> Tensor:
    """Places of one member among `size`, (n,), as those of several, one after the other."""
    first = torch.arange(members, device=places.device) * size
    return (first.unsqueeze(1) + places).flatten()


def take(rows: Tensor, places: Tensor) -> Tensor:
    """The rows at some places, (n, D); no place twice, so the backward pass copies, not adds."""
    taken: Tensor = _Take.apply(rows, places)  # type: ignore[no-untyped-call]
    return taken


def put(rows: Tensor, places: Tensor, count: int) -> Tensor:
    """The inverse of `take`: (count, D), zero where nothing is put."""
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


class _ExpandRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows, expand):  # type: ignore[no-untyped-def]
        ctx.expand = expand
        E, B, L = expand.members, expand.batch, expand.length
        by_member = rows.view(E, -1, rows.shape[1])  # (E, N + L, C)
        own, common = by_member[:, :-L].flatten(0, 1), by_member[:, -L:]  # (E * N, C), (E, L, C)
        return common.repeat(1, B, 1).flatten(0, 1).index_copy_(0, expand.places, own)

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        places, E, B, L = ctx.expand.places, ctx.expand.members, ctx.expand.batch, ctx.expand.length
        own = gradient.index_select(0, places)  # (E * N, C)
        one = places[: len(places) // E]  # the places are the same for all members
        is_common = gradient.new_ones(B * L).index_fill_(0, one, 0.0)  # (B * L,)
        # For each place a sum over samples, (L, 1, B) times (L, B, C).
        weights, parts = is_common.view(B, L).T.unsqueeze(1), []
        C = gradient.shape[1]
        for mine, its in zip(own.view(E, -1, C), gradient.view(E, B, L, C), strict=True):
            parts += [mine, torch.bmm(weights, its.transpose(0, 1)).squeeze(1)]  # (N, C), (L, C)
        return torch.cat(parts), None
