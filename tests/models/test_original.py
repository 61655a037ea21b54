"""`model.original` against the original's network, written down from PyTorch's own modules."""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks import parity
from torch import Tensor, nn

from mtm.core.config import ModelConfig
from mtm.core.errors import ConfigError
from mtm.data.modalities import Modality
from mtm.masks import make_mask
from mtm.models.members import Members
from mtm.models.mtm import MTM
from mtm.models.network import make_network

MODALITIES = (
    Modality("states", (5,)),
    Modality("returns", (), role="return"),
    Modality("actions", (2,), role="action"),
)
T, B, D, HEADS = 4, 6, 32, 4


def config(**changes) -> ModelConfig:
    plain = {"original": True, "residual": False, "predict_variance": False}
    return ModelConfig(**{"width": D, "heads": HEADS, "segment_length": T} | plain | changes)


def stirred(network: nn.Module) -> nn.Module:
    """With weights of which none is 0."""
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return network.eval()


def layers_of(weights: dict[str, Tensor], stack: str, count: int) -> nn.TransformerEncoder:
    """PyTorch's own transformer with the weights of ours."""
    layer = nn.TransformerEncoderLayer(
        D, HEADS, 4 * D, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
    )
    made = nn.TransformerEncoder(layer, count, nn.LayerNorm(D), enable_nested_tensor=False)
    names = {"norm1": "attention_norm", "norm2": "mlp_norm", "linear1": "mlp_in"}
    names |= {"linear2": "mlp_out", "self_attn.out_proj": "from_heads"}
    found = {f"norm.{kind}": weights[f"{stack}.norm.{kind}"] for kind in ("weight", "bias")}
    for i in range(count):
        for kind in ("weight", "bias"):
            ours = f"{stack}.layers.{i}."
            attention = weights[f"{ours}to_queries_keys_values.{kind}"]
            found[f"layers.{i}.self_attn.in_proj_{kind}"] = attention
            for its, our in names.items():
                found[f"layers.{i}.{its}.{kind}"] = weights[f"{ours}{our}.{kind}"]
    made.load_state_dict(found)
    return made.eval()


def plainly(model: MTM, values: dict[str, Tensor], visible: Tensor) -> dict[str, Tensor]:
    """One mask (T, M) for the whole batch: modality after modality, visible tokens only."""
    weights = {name: p.detach() for name, p in model.state_dict().items()}
    frequency = [10_000 ** (-2 * i / D) for i in range(D // 2)]
    angle = torch.tensor([[t * f for f in frequency] for t in range(T)])
    time = torch.cat([angle.sin(), angle.cos()], dim=1) / 2  # (T, D)
    shown = []
    for i, m in enumerate(MODALITIES):
        w, b = weights[f"encoders.{m.name}.weight"], weights[f"encoders.{m.name}.bias"]
        tokens = values[m.name].view(B, T, -1) @ w.T + b + time
        tokens = tokens + weights["encoder_modality_encoding"][i]
        shown.append(tokens[:, visible[:, i]])
    latent = layers_of(weights, "encoder", 2)(torch.cat(shown, dim=1))
    parts, tokens = latent.split([int(visible[:, i].sum()) for i in range(3)], dim=1), []
    for i, m in enumerate(MODALITIES):
        whole = weights["mask_tokens"][i].repeat(B, T, 1)
        whole[:, visible[:, i]] = parts[i]
        w, b = weights[f"to_decoder.{m.name}.weight"], weights[f"to_decoder.{m.name}.bias"]
        tokens.append(whole @ w.T + b + time + weights["decoder_modality_encoding"][i])
    decoded = layers_of(weights, "decoder", 1)(torch.cat(tokens, dim=1)).split(T, dim=1)
    answers = {}
    for m, part in zip(MODALITIES, decoded, strict=True):
        answers[m.name] = model.heads[m.name](part).reshape(values[m.name].shape).detach()
    return answers


@pytest.mark.parametrize("seed", range(4))
def test_the_network_is_that_of_pytorch_s_own_modules(seed: int) -> None:
    torch.manual_seed(seed)
    model = stirred(MTM(MODALITIES, config()))
    assert isinstance(model, MTM)
    values = {m.name: torch.randn(B, T, *m.shape) for m in MODALITIES}
    visible = torch.from_numpy(make_mask("original")(MODALITIES, T, 1, np.random.default_rng(seed)))
    visible[0, 0, 0] = True  # PyTorch's attention wants a token
    expected = plainly(model, values, visible[0])
    found = model(values, visible.repeat(B, 1, 1)).values
    for name, answer in expected.items():
        torch.testing.assert_close(found[name].detach(), answer, rtol=1e-5, atol=1e-5)


def test_first_weights() -> None:
    torch.manual_seed(0)
    model = MTM(MODALITIES, config(width=128))
    weights = model.state_dict()
    for name in ("mask_tokens", "encoder_modality_encoding", "decoder_modality_encoding"):
        assert not weights[name].any()
    for part in ("to_queries_keys_values.bias", "from_heads.bias"):
        assert not weights[f"encoder.layers.0.{part}"].any()
    drawn = weights["encoder.layers.0.to_queries_keys_values.weight"]
    assert float(drawn.abs().max()) == pytest.approx(math.sqrt(6 / (4 * 128)), rel=0.01)
    copies = zip(
        model.encoder.layers[0].parameters(), model.encoder.layers[1].parameters(), strict=True
    )
    assert all(torch.equal(one, other) for one, other in copies)
    other = model.decoder.layers[0].to_queries_keys_values.weight
    assert not torch.equal(drawn, other)


def test_every_parameter_gets_a_gradient() -> None:
    torch.manual_seed(0)
    model = stirred(MTM(MODALITIES, config())).train()
    values = {m.name: torch.randn(B, T, *m.shape) for m in MODALITIES}
    visible = torch.rand(B, T, 3) < 0.5
    sum(v.square().sum() for v in model(values, visible).values.values()).backward()
    assert [n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()] == []


def test_members_answer_as_each_alone() -> None:
    torch.manual_seed(0)
    members = stirred(make_network(MODALITIES, config(members=3)))
    assert isinstance(members, Members)
    values = {m.name: torch.randn(B, T, *m.shape) for m in MODALITIES}
    visible = torch.rand(B, T, 3) < 0.5
    with torch.no_grad():
        each = members.each(values, visible).values
        for k in range(3):
            alone = members.member(k)(values, visible).values
            for name in each:
                torch.testing.assert_close(each[name][k], alone[name], rtol=1e-4, atol=1e-5)


def test_the_mlp_has_no_original() -> None:
    with pytest.raises(ConfigError, match=r"model\.original is for the transformer"):
        ModelConfig(network="mlp", original=True)


REFERENCE = os.environ.get("MTM_REFERENCE")


@pytest.mark.skipif(
    REFERENCE is None, reason="MTM_REFERENCE names no checkout of facebookresearch/mtm"
)
def test_parity_with_the_original_code() -> None:
    found = parity.compare(Path(str(REFERENCE)))
    assert set(found) == set(parity.LIMITS)
    for what, cases in found.items():
        for case, difference in cases.items():
            assert difference <= parity.LIMITS[what], (what, case)
