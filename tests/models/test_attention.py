"""Attention as plain products against PyTorch's kernel."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from mtm.models import attention
from mtm.models.attention import attend
from mtm.models.packing import LONGEST_JOINED, Layout

D, HEADS = 8, 2
COUNTS = (3, 1, 5, 0, 3, 2)
"""Visible tokens of each sample."""


def layout_of(counts: tuple[int, ...] = COUNTS) -> Layout:
    chosen = torch.arange(max(counts)) < torch.tensor(counts).unsqueeze(1)
    return Layout.by_count(chosen, torch.device("cpu"))


def tokens(layout: Layout, dtype: torch.dtype = torch.float32) -> Tensor:
    drawn = torch.randn(len(layout.tokens), 3 * D, generator=torch.Generator().manual_seed(0))
    return drawn.to(dtype).requires_grad_()


def mixed_and_gradient(packed: Tensor, layout: Layout, heads: int = HEADS) -> tuple[Tensor, Tensor]:
    mixed = attend(packed, layout, heads)
    weights = torch.arange(mixed.numel()).view(mixed.shape).sin()
    (gradient,) = torch.autograd.grad((mixed * weights).sum(), packed)
    return mixed, gradient


@pytest.mark.parametrize("heads", [1, HEADS])
@pytest.mark.parametrize("most_blocks", [16, 2], ids=["dense blocks", "padded blocks"])
def test_products_give_what_the_kernel_gives(
    most_blocks: int, heads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mtm.models.packing.MOST_BLOCKS", most_blocks)
    layout = layout_of()
    assert any(block.slots is not None for block in layout.blocks) == (most_blocks == 2)
    packed = tokens(layout)
    assert attention._suit_products(packed, layout)
    ours = mixed_and_gradient(packed, layout, heads)
    monkeypatch.setattr(attention, "LONGEST_PRODUCTS", 0)
    assert not attention._suit_products(packed, layout)
    kernel = mixed_and_gradient(packed, layout, heads)
    torch.testing.assert_close(ours, kernel)


def test_long_sequences_and_pairs_are_left_to_others() -> None:
    pairs = layout_of((2, 2))
    assert not attention._suit_products(tokens(pairs), pairs)
    long = layout_of((attention.LONGEST_PRODUCTS + 1,))
    assert not attention._suit_products(tokens(long), long)


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_the_gradient_of_products_is_that_of_differences(dropout: float) -> None:
    layout = layout_of((3, 1, 3))

    def products(packed: Tensor) -> Tensor:
        with torch.random.fork_rng():
            torch.manual_seed(1)  # the same weights are dropped in every call
            mixed: Tensor = attention._Products.apply(packed, layout.blocks, HEADS, dropout)  # type: ignore[no-untyped-call]
        return mixed

    assert torch.autograd.gradcheck(products, tokens(layout, torch.float64))


def test_dropped_weights_keep_the_mean() -> None:
    layout = layout_of((4,) * 3)
    packed = tokens(layout)
    torch.manual_seed(0)
    drawn = torch.stack([attend(packed, layout, HEADS, dropout=0.25) for _ in range(3000)])
    assert drawn.std(dim=0).min() > 0.01
    torch.testing.assert_close(drawn.mean(dim=0), attend(packed, layout, HEADS), atol=0.06, rtol=0)


@pytest.mark.parametrize("products", [True, False], ids=["products", "kernel"])
def test_joined_samples_see_only_themselves(
    products: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "LONGEST_PRODUCTS", 96 if products else 0)
    chosen = torch.arange(max(COUNTS)) < torch.tensor(COUNTS).unsqueeze(1)
    apart = layout_of()
    joined = Layout.joined(chosen, torch.device("cpu"))
    (row,) = joined.blocks
    assert (row.count, row.width, row.packed) == (3, 5, 14)  # 5, 3 + 2, 3 + 1 of 5 places
    whole = tokens(apart).detach()
    place = {int(token): i for i, token in enumerate(apart.tokens)}
    moved = torch.tensor([place[int(token)] for token in joined.tokens])
    expected = mixed_and_gradient(whole.clone().requires_grad_(), apart)
    packed = whole[moved].requires_grad_()
    mixed = attend(packed, joined, HEADS)
    weights = torch.arange(mixed.numel()).view(mixed.shape).sin()[moved]
    (gradient,) = torch.autograd.grad((mixed * weights).sum(), packed)
    torch.testing.assert_close((mixed, gradient), tuple(each[moved] for each in expected))


def test_equal_and_long_samples_are_not_joined() -> None:
    equal = torch.ones(3, 4, dtype=torch.bool)
    assert Layout.joined(equal, torch.device("cpu")).blocks[0].may_attend is None
    long = torch.ones(2, LONGEST_JOINED + 1, dtype=torch.bool)
    long[0, 1:] = False
    assert len(Layout.joined(long, torch.device("cpu")).blocks) == 2
    nothing = torch.zeros(2, 4, dtype=torch.bool)
    assert Layout.joined(nothing, torch.device("cpu")).blocks == ()
