"""Products by oneDNN are those of PyTorch, forward and backward, and leave no setting behind."""

from __future__ import annotations

import threading

import pytest
import torch
import torch.nn.functional as F

from mtm.models import products
from mtm.models.products import (
    BLOCK,
    EXACT,
    Linear,
    fast_products,
    is_chosen,
    is_not_rounded,
    linear,
)

ROWS = (0, 1, BLOCK - 1, BLOCK, 3 * BLOCK, 3 * BLOCK + 17)


def rows_and_layer(rows: int, inputs: int = 64, outputs: int = 96) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(rows)
    sizes = ((rows, inputs), (outputs, inputs), (outputs,))
    return [torch.randn(*size, generator=draw).requires_grad_() for size in sizes]


def precision() -> str:
    settings = getattr(torch.backends.mkldnn, "matmul", None)
    return str(getattr(settings, "fp32_precision", "unknown"))


@pytest.mark.parametrize("chosen", [True, False])
@pytest.mark.parametrize("rows", ROWS)
def test_values_and_gradients_are_those_of_pytorch(rows, chosen, monkeypatch) -> None:
    """Also where oneDNN is asked, and where it is not."""
    monkeypatch.setattr(products, "is_chosen", lambda: chosen)
    found, expected = (
        torch.autograd.grad(function(*given).square().sum(), given)
        for function, given in ((linear, rows_and_layer(rows)), (F.linear, rows_and_layer(rows)))
    )
    for mine, its in zip(found, expected, strict=True):
        typical = float(its.abs().sum()) / max(its.numel(), 1)
        torch.testing.assert_close(mine, its, rtol=0, atol=EXACT * typical)


@pytest.mark.parametrize("rows", [BLOCK, 3 * BLOCK + 17])
def test_the_fast_way_is_that_of_double_precision(rows) -> None:
    found, expected = [], []
    for function, precision_of, out in (
        (products._Linear.apply, torch.float32, found),
        (F.linear, torch.float64, expected),
    ):
        given = [t.detach().to(precision_of).requires_grad_() for t in rows_and_layer(rows)]
        value = function(*given)
        out += [value, *torch.autograd.grad(value.square().sum(), given)]
    for mine, its in zip(found, expected, strict=True):
        assert is_not_rounded(mine, its)


def test_rows_go_the_fast_way_where_it_is_chosen(monkeypatch) -> None:
    taken = []
    monkeypatch.setattr(products, "is_chosen", lambda: True)
    monkeypatch.setattr(products._Linear, "apply", lambda *given: taken.append(given) or given[0])
    for rows in ROWS:
        linear(*rows_and_layer(rows))
    assert [len(given[0]) for given in taken] == [rows for rows in ROWS if rows >= BLOCK]


@pytest.mark.parametrize(
    ("processor", "exact", "chosen"),
    [("AMD EPYC", True, True), ("AMD EPYC", False, False), ("Intel Xeon", True, False)],
)
def test_onednn_is_asked_on_processors_of_amd(processor, exact, chosen, monkeypatch) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"cpu_name": processor})
    monkeypatch.setattr(products, "is_exact", lambda: exact)
    is_chosen.cache_clear()
    try:
        assert is_chosen() == chosen
    finally:
        is_chosen.cache_clear()


def test_no_gradient_is_made_of_frozen_weights() -> None:
    x, weight, bias = rows_and_layer(2 * BLOCK)
    expected = torch.ones(len(x), len(weight)) @ weight.detach()
    linear(x, weight.detach(), bias.detach()).sum().backward()
    torch.testing.assert_close(x.grad, expected)


def test_threads_give_the_permission_back_together() -> None:
    before, inside, leave = precision(), threading.Event(), threading.Event()

    def other() -> None:
        with fast_products():
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    thread.start()
    assert inside.wait(10)
    with fast_products():
        leave.set()
        thread.join()
        assert precision() == ("bf16" if is_chosen() else before)
    assert precision() == before


def test_rows_without_a_gradient_of_their_own() -> None:
    x, weight, bias = rows_and_layer(2 * BLOCK + 1)
    linear(x.detach(), weight, bias).sum().backward()
    torch.testing.assert_close(weight.grad, x.detach().sum(dim=0).expand_as(weight).contiguous())
    torch.testing.assert_close(bias.grad, torch.full_like(bias, len(x)))
    assert x.grad is None


def test_a_layer_can_be_mapped_over_and_takes_any_axes() -> None:
    layer = Linear(64, 96)
    x = torch.randn(3, 2 * BLOCK, 64)
    plain = F.linear(x, layer.weight, layer.bias)
    torch.testing.assert_close(layer(x), plain)
    torch.testing.assert_close(torch.vmap(layer)(x), plain)


def test_what_is_asked_for_in_another_precision_keeps_it() -> None:
    x, weight, bias = (t.detach() for t in rows_and_layer(2 * BLOCK))
    assert linear(x.double(), weight.double(), bias.double()).dtype == torch.float64
    with torch.autocast("cpu", torch.bfloat16):
        assert linear(x, weight, bias).dtype == torch.bfloat16


def test_no_setting_stays_behind() -> None:
    before = precision()
    linear(*rows_and_layer(2 * BLOCK)).sum().backward()
    assert precision() == before
    with fast_products():
        assert precision() == ("bf16" if is_chosen() else before)
    assert precision() == before
    with pytest.raises(ValueError, match="in the middle"):
        fail_within_fast_products()
    assert precision() == before


def fail_within_fast_products() -> None:
    with fast_products():
        raise ValueError("in the middle")


def test_rounding_to_bfloat16_is_noticed() -> None:
    x = torch.randn(256, 128, generator=torch.Generator().manual_seed(0))
    exact = x.double() @ x.double().t()
    rounded = x.bfloat16().float()
    assert is_not_rounded(x @ x.t(), exact)
    assert not is_not_rounded(rounded @ rounded.t(), exact)
