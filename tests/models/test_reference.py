"""The packed forward pass against the plain one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from mtm.core.config import ModelConfig
from mtm.data.modalities import Modality
from mtm.masks import RandomAutoregressiveMask, RandomMask
from mtm.models.mtm import MTM
from mtm.models.reference import predict_densely

MODALITIES = (
    Modality("states", (3,)),
    Modality("gripper", (), "discrete", 4),
    Modality("image", (2, 2, 3)),
    Modality("returns", (), role="return"),
    Modality("actions", (2,), role="action"),
)
SEGMENT_LENGTH, B, M = 5, 9, len(MODALITIES)


def make_model(**changes) -> MTM:
    torch.manual_seed(0)
    sizes = {"segment_length": SEGMENT_LENGTH, "width": 32, "heads": 2, "decoder_layers": 2}
    return MTM(MODALITIES, ModelConfig(**sizes | changes)).eval()


def make_values(length: int = SEGMENT_LENGTH) -> dict[str, Tensor]:
    g = torch.Generator().manual_seed(1)
    return {
        m.name: torch.randint(m.classes, (B, length), generator=g)
        if m.kind == "discrete"
        else torch.randn(B, length, *m.shape, generator=g)
        for m in MODALITIES
    }


def everything(length: int = SEGMENT_LENGTH) -> Tensor:
    return torch.ones(B, length, M, dtype=torch.bool)


def one_each(length: int = SEGMENT_LENGTH) -> Tensor:
    visible = ~everything(length)
    visible[:, 0, 0] = True
    return visible


def pairs(length: int = SEGMENT_LENGTH) -> Tensor:
    visible = one_each(length)
    visible[:, -1, 1] = True
    return visible


def drawn(seed: int, length: int = SEGMENT_LENGTH) -> Tensor:
    """Masks of two kinds; a sample that shows everything, and one that shows nothing."""
    rng = np.random.default_rng(seed)
    kind = RandomMask if seed % 2 else RandomAutoregressiveMask
    visible = torch.from_numpy(kind()(MODALITIES, length, B, rng))
    visible[0], visible[1] = True, False
    return visible


def assert_equal(
    model: MTM, values: dict[str, Tensor], visible: Tensor, wanted: Tensor | None = None
) -> None:
    with torch.no_grad():
        packed, dense = model(values, visible, wanted), predict_densely(model, values, visible)
    asked = torch.ones_like(visible) if wanted is None else wanted
    for found, expected in zip(packed, dense, strict=True):
        assert list(found) == [n for n in expected if asked[:, :, index(n)].any()]
        for name, prediction in found.items():
            here = asked[:, :, index(name)]
            torch.testing.assert_close(
                prediction[here], expected[name][here], rtol=1e-5, atol=1e-5, msg=name
            )


def index(name: str) -> int:
    return [m.name for m in MODALITIES].index(name)


@pytest.mark.parametrize("predict_variance", [True, False])
@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_random_masks(seed: int, residual: bool, predict_variance: bool) -> None:
    model = make_model(residual=residual, predict_variance=predict_variance)
    assert_equal(model, make_values(), drawn(seed))


@pytest.mark.parametrize("seed", range(3))
def test_the_original_s_maps_into_the_decoder(seed: int) -> None:
    model = make_model(original=True, residual=False)
    with torch.no_grad():
        for tokens in (model.mask_tokens, model.decoder_modality_encoding):
            tokens.normal_()  # they begin with 0
    assert_equal(model, make_values(), drawn(seed))
    assert_equal(model, make_values(), drawn(seed), wanted=drawn(seed + 1))
    assert_equal(model, make_values(), one_each())


@pytest.mark.parametrize("predict_variance", [True, False])
def test_expectiles(predict_variance: bool) -> None:
    model = make_model(predict_variance=predict_variance, values=0.9)
    assert_equal(model, make_values(), drawn(0))
    assert_equal(model, make_values(), drawn(1), wanted=drawn(2))


@pytest.mark.parametrize(
    "mask",
    [everything, lambda: ~everything(), one_each, pairs],
    ids=["everything", "nothing", "one token each", "two tokens each"],
)
@pytest.mark.parametrize("layers", [1, 2])
def test_extreme_masks(mask: Callable[[], Tensor], layers: int) -> None:
    assert_equal(make_model(decoder_layers=layers), make_values(), mask())


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("seed", range(4))
def test_wanted_tokens_only(seed: int, layers: int) -> None:
    model, visible = make_model(decoder_layers=layers), drawn(seed)
    generator = torch.Generator().manual_seed(seed)
    wanted = torch.rand(visible.shape, generator=generator) < 0.3
    wanted[:, :, seed] = False  # a modality that nobody asks for
    assert_equal(model, make_values(), visible, wanted)
    assert_equal(model, make_values(), ~everything(), wanted)


@pytest.mark.parametrize("length", range(1, SEGMENT_LENGTH))
def test_fewer_steps_than_a_segment(length: int) -> None:
    assert_equal(make_model(), make_values(length), drawn(length, length))


def test_long_segments_where_other_ways_of_attention_are_taken() -> None:
    length = 30  # 150 tokens: samples are not joined, and PyTorch's kernel is used
    model = make_model(segment_length=length)
    assert_equal(model, make_values(length), drawn(0, length))


def test_the_gradients_are_those_of_the_plain_pass() -> None:
    """In training, too, the packed pass computes what is written in the plain one."""
    model, values, visible = make_model().train(), make_values(), drawn(0)
    found = []
    for predictions in (model(values, visible), predict_densely(model, values, visible)):
        loss = sum(p.sin().sum() for part in predictions for p in part.values())
        found.append(torch.autograd.grad(loss, list(model.parameters())))
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)
