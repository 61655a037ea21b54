"""A few windows in one product of all tokens, against the packed pass."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from mtm.core.config import ModelConfig
from mtm.data.modalities import Modality
from mtm.models import few_tokens
from mtm.models.heads import Predictions
from mtm.models.mtm import MTM
from mtm.models.network import Network, make_network

MODALITIES = (
    Modality("states", (3,)),
    Modality("gripper", (), "discrete", 4),
    Modality("returns", (), role="return"),
    Modality("actions", (2, 2), role="action"),
)
T, M = 5, len(MODALITIES)
CONFIG = ModelConfig(segment_length=T, width=32, heads=2, encoder_layers=2)


def make(**changes: Any) -> Network:
    torch.manual_seed(0)
    network = make_network(MODALITIES, replace(CONFIG, **changes)).eval()
    for weights in network.parameters():
        torch.nn.init.normal_(weights, std=0.2)  # encodings and mask tokens begin too small to tell
    return network


def make_transformer(**changes: Any) -> MTM:
    network = make(**changes)
    assert isinstance(network, MTM)
    return network


def question(
    seed: int, share: float = 0.5, windows: int = 4
) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    values = {
        m.name: torch.randint(m.classes, (windows, T), generator=g)
        if m.kind == "discrete"
        else torch.randn(windows, T, *m.shape, generator=g)
        for m in MODALITIES
    }
    visible, wanted = (torch.rand(windows, T, M, generator=g) < share for _ in range(2))
    return values, visible, wanted


def of_wanted(out: Predictions, wanted: Tensor) -> dict[str, Tensor]:
    return {
        f"{part} {m.name}": found[m.name][wanted[:, :, i]]
        for part, found in zip(out._fields, out, strict=True)
        for i, m in enumerate(MODALITIES)
        if m.name in found
    }


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("extras", [{}, {"predict_variance": True, "values": 0.9}])
@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_answers_are_those_of_the_packed_pass(
    layers: int, extras: dict[str, Any], share: float
) -> None:
    network = make_transformer(decoder_layers=layers, **extras)
    for seed in range(8):
        values, visible, wanted = question(seed, share, windows=1 + seed % 4)
        if not few_tokens.suits(network, visible, wanted):
            assert share == 0.1
            continue
        with torch.inference_mode():
            packed = of_wanted(network(values, visible, wanted), wanted)
            few = of_wanted(few_tokens.answer(network, values, visible, wanted), wanted)
        assert packed.keys() == few.keys()
        for name in packed:
            torch.testing.assert_close(few[name], packed[name], rtol=1e-5, atol=1e-5)


def test_hidden_values_have_no_influence() -> None:
    network = make_transformer()
    values, visible, wanted = question(0)
    others = {
        m.name: torch.where(
            visible[:, :, i].view(4, T, *[1] * len(m.shape)),
            values[m.name],
            1 if m.kind == "discrete" else torch.nan,
        )
        for i, m in enumerate(MODALITIES)
    }
    with torch.inference_mode():
        answers = [
            of_wanted(few_tokens.answer(network, given, visible, wanted), wanted)
            for given in (values, others)
        ]
    for name in answers[0]:
        assert torch.equal(answers[0][name], answers[1][name]), name


def test_a_window_knows_nothing_of_the_others() -> None:
    network = make_transformer()
    values, visible, wanted = question(1)
    with torch.inference_mode():
        before = few_tokens.answer(network, values, visible, wanted)
        values["states"][1:] += 1
        after = few_tokens.answer(network, values, visible, wanted)
    for name in ("states", "actions"):
        mine = wanted[0, :, [m.name for m in MODALITIES].index(name)]
        assert torch.equal(before.values[name][0][mine], after.values[name][0][mine])
        assert not torch.equal(before.values[name][1:], after.values[name][1:])


def test_who_is_asked_in_another_way() -> None:
    _, visible, wanted = question(2)
    assert few_tokens.suits(make(), visible, wanted)
    assert not few_tokens.suits(make(original=True), visible, wanted)
    assert not few_tokens.suits(make(network="mlp"), visible, wanted)
    assert not few_tokens.suits(make(members=2), visible, wanted)
    assert not few_tokens.suits(make().train(), visible, wanted)
    assert not few_tokens.suits(make(), torch.zeros_like(visible), wanted)
    assert not few_tokens.suits(make(), visible, torch.zeros_like(wanted))
    assert not few_tokens.suits(make(), visible.repeat(20, 1, 1), wanted.repeat(20, 1, 1))
