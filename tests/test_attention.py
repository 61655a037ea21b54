"""Attention as plain products against PyTorch's kernel."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from mtm import attention
from mtm.attention import attend
from mtm.packing import Layout

D, HEADS = 8, 2
COUNTS = (3, 1, 5, 0, 3, 2)
"""Visible tokens of each sample."""


def layout_of(counts: tuple[int, ...] = COUNTS) -> Layout:
    chosen = torch.arange(max(counts)) < torch.tensor(counts).unsqueeze(1)
    return Layout.of(chosen, torch.device("cpu"))


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
    monkeypatch.setattr("mtm.packing.MOST_BLOCKS", most_blocks)
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
