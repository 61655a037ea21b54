"""Products of many rows with a matrix, as fast as the processor does them.

PyTorch multiplies single precision by MKL, which leaves half of AVX-512 unused on processors of
AMD. oneDNN, which PyTorch has too, is more than twice as fast there (docs/research-log), but is
asked only by who allows it to round to bfloat16. It makes use of that where the processor
multiplies tiles of bfloat16, and nowhere else: so it is allowed product by product, on processors
of AMD where a trial shows that nothing is rounded. Elsewhere all of this is PyTorch as it comes,
which on Intel's is the faster way.

oneDNN writes a program for every size that it meets, which takes longer than the product. The
packed tokens of a batch are never equally many twice, so it gets whole blocks of rows, of which
there are few different numbers, and MKL the rest.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

BLOCK = 128
"""Rows of which oneDNN gets multiples; fewer are not worth the call."""

LEAST_FEATURES = 32
"""Inputs and outputs of a layer from which it is worth it."""

EXACT = 1e-5
"""Largest difference, in units of a typical one of the products, that is no rounding to bfloat16,
which makes some hundred times as much."""


class Linear(nn.Linear):
    """A linear layer whose products of many rows go the fast way."""

    def forward(self, x: Tensor) -> Tensor:
        """(..., inputs) to (..., outputs)."""
        return linear(x, self.weight, self.bias)


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """As PyTorch's function of that name.

    Args:
        x: (..., inputs); rows, (n, inputs), can go the fast way.
        weight: (outputs, inputs).
        bias: (outputs,).
    """
    if not _suits(x, weight):
        return F.linear(x, weight, bias)
    rows: Tensor = _Linear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return rows


@contextmanager
def fast_products() -> Iterator[None]:
    """Let oneDNN make the products within, where it is chosen; sizes should come again.

    What other threads multiply meanwhile may go the same way, and then differ in its last bits.
    """
    if not is_chosen():
        yield
        return
    with _ALLOWED:
        yield


class _Allowed:
    """The permission, which is the process's: threads that want it give it back together."""

    def __init__(self) -> None:
        self._lock, self._inside, self._before = threading.Lock(), 0, ""

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                self._before, _settings().fp32_precision = _settings().fp32_precision, "bf16"

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                _settings().fp32_precision = self._before


_ALLOWED = _Allowed()


@lru_cache(maxsize=1)
def is_chosen() -> bool:
    """Whether oneDNN is asked on this machine: where it is the faster way, and exact."""
    told: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return str(told.get("cpu_name", "")).startswith("AMD") and is_exact()


def is_exact() -> bool:
    """Whether oneDNN keeps single precision here though it is allowed not to, by a trial."""
    if not hasattr(_settings(), "fp32_precision"):
        return False
    x = torch.linspace(-1, 1, 256 * 128, dtype=torch.float32, device="cpu").view(256, 128).sin()
    with _ALLOWED, torch.autocast("cpu", enabled=False):
        found = x @ x.t()
    return is_not_rounded(found, x.double() @ x.double().t())


def is_not_rounded(found: Tensor, exact: Tensor) -> bool:
    """Whether products, (n, m) each, are those of single precision, given those of double."""
    return bool((found - exact).abs().max() < EXACT * exact.abs().mean())


def _settings() -> Any:
    """What oneDNN's products may do; None where PyTorch has no such settings."""
    return getattr(torch.backends.mkldnn, "matmul", None)


def _suits(x: Tensor, weight: Tensor) -> bool:
    """Whether these are rows, and many, for which the fast way is made."""
    return (
        not torch.compiler.is_compiling()
        and x.ndim == 2
        and len(x) >= BLOCK
        and min(weight.shape) >= LEAST_FEATURES
        and x.device.type == "cpu"
        and x.dtype == weight.dtype == torch.float32
        and not torch.is_autocast_enabled("cpu")
        and not torch._C._are_functorch_transforms_active()
        and is_chosen()
    )


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(x, weight)
        blocks = _whole_blocks(x)
        out = x.new_empty(len(x), len(weight))
        with fast_products():
            torch.addmm(bias, x[:blocks], weight.t(), out=out[:blocks])
        torch.addmm(bias, x[blocks:], weight.t(), out=out[blocks:])
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        x, weight = ctx.saved_tensors
        blocks, gradient = _whole_blocks(x), gradient.contiguous()
        of_x = torch.empty_like(x) if ctx.needs_input_grad[0] else None
        of_weight = None
        with fast_products():
            if ctx.needs_input_grad[1]:
                of_weight = gradient[:blocks].t() @ x[:blocks]
            if of_x is not None:
                torch.mm(gradient[:blocks], weight, out=of_x[:blocks])
        if of_weight is not None:
            of_weight.addmm_(gradient[blocks:].t(), x[blocks:])
        if of_x is not None:
            torch.mm(gradient[blocks:], weight, out=of_x[blocks:])
        return of_x, of_weight, gradient.sum(dim=0) if ctx.needs_input_grad[2] else None


def _whole_blocks(rows: Tensor) -> int:
    """How many of the rows, (n, C), are in whole blocks."""
    return len(rows) // BLOCK * BLOCK
