"""Compares with the original, in a process of its own: `python -m benchmarks.parity_process PATH`.

Prints JSON: what is compared -> case -> the largest difference.
"""

from __future__ import annotations

import json
import sys
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.reference_process import make_importable
from mtm.control import policies
from mtm.core.config import ModelConfig, OptimizerConfig, TrainConfig, preset
from mtm.core.names import ACTING_TASKS
from mtm.data.modalities import Modality
from mtm.masks import make_mask
from mtm.masks.training_masks import SHARES
from mtm.models.mtm import MTM
from mtm.runs.run import Run
from mtm.training.losses import reconstruction_losses
from mtm.training.optimization import make_optimizers, set_learning_rate
from mtm.training.train import train

STATES, RETURNS, ACTIONS = (
    Modality("states", (11,)),
    Modality("returns", (1,), role="return"),
    Modality("actions", (3,), role="action"),
)
CASES: dict[str, tuple[Modality, ...]] = {
    "states": (STATES,),
    "states, actions": (STATES, ACTIONS),
    "states, returns, actions": (STATES, RETURNS, ACTIONS),
}
T, B, WIDTH, HEADS, LAYERS = 4, 32, 64, 4, (2, 1)
QUESTIONS = 20
"""Random masks and segments, of each case."""
STEPS = 20
DRAWS = 20_000
"""Masks whose mean is compared."""

LAYER = {
    "attention_norm": "norm1",
    "to_queries_keys_values": "self_attn.in_proj_",
    "from_heads": "self_attn.out_proj",
    "mlp_norm": "norm2",
    "mlp_in": "linear1",
    "mlp_out": "linear2",
}
"""Parts of a layer: our name -> the original's."""
PARTS = {
    "encoders": "encoder_embed_dict",
    "to_decoder": "decoder_embed_dict",
    "heads": "output_head_dict",
}
TOKENS = {
    "encoder_modality_encoding": "encoder_per_dim_encoding",
    "decoder_modality_encoding": "decoder_per_dim_encoding",
    "mask_tokens": "mask_token_dict",
}


def main() -> None:
    """Compare everything and print it."""
    path = Path(sys.argv[1])
    make_importable(path)
    warnings.simplefilter("ignore")  # of PyTorch, about the way the original uses it
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002  (its masks come from there)
    found: dict[str, dict[str, float]] = {"outputs": {}, "loss": {}, "gradients": {}}
    for case, modalities in CASES.items():
        its, ours = _networks(modalities)
        differences = [_compare_once(its, ours, modalities) for _ in range(QUESTIONS)]
        for what, values in zip(found, zip(*differences, strict=True), strict=True):
            found[what][case] = max(values)
    everything = CASES["states, returns, actions"]
    found["weights after 20 steps"] = {"AdamW": _trained(everything)}
    its, ours = _networks(everything, WIDTH)
    found["time encoding"] = {"": _far(its.pos_embed[0, :, 0], ours.time_encoding)}
    found["first weights"] = {"deviations": _first_weights(everything)}
    found["masks"] = {f"{T} steps": _masks(T), "10 steps": _masks(10)}
    found["acting"] = _acting()
    print(json.dumps(found))


def its_weights(
    original: torch.nn.Module, modalities: Sequence[Modality], layers: Sequence[int] = LAYERS
) -> dict[str, Tensor]:
    """The original's weights (or their gradients) under our names."""
    theirs = dict(original.named_parameters())
    found: dict[str, Tensor] = {}
    for ours, its in TOKENS.items():
        found[ours] = torch.stack([theirs[f"{its}.{m.name}"].flatten() for m in modalities])
    for ours, its in PARTS.items():
        parts = {n: p for n, p in theirs.items() if n.startswith(f"{its}.")}
        found |= {n.replace(its, ours, 1): p for n, p in parts.items()}
    for stack, count in zip(("encoder", "decoder"), layers, strict=True):
        for kind in ("weight", "bias"):
            found[f"{stack}.norm.{kind}"] = theirs[f"{stack}.norm.{kind}"]
            for i in range(count):
                for ours, its in LAYER.items():
                    joint = "" if its.endswith("_") else "."
                    name = f"{stack}.layers.{i}.{its}{joint}{kind}"
                    found[f"{stack}.layers.{i}.{ours}.{kind}"] = theirs[name]
    return found


def _networks(
    modalities: Sequence[Modality], width: int = WIDTH, dropout: float = 0.0
) -> tuple[Any, MTM]:
    """The original with stirred first weights, and ours with the same."""
    from research.mtm.models.mtm_model import MTMConfig

    shapes = {m.name: (1, m.size) for m in modalities}
    sizes = {"n_embd": width, "n_head": HEADS, "n_enc_layer": LAYERS[0], "n_dec_layer": LAYERS[1]}
    its = MTMConfig(**sizes, dropout=dropout, norm="none").create(shapes, T)
    with torch.no_grad():
        for parameter in its.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))  # many of them are 0 at first
    ours = MTM(modalities, _model_config(width))
    ours.load_state_dict(its_weights(its, modalities))
    return its, ours


def _model_config(width: int) -> ModelConfig:
    return ModelConfig(
        **{"width": width, "heads": HEADS, "segment_length": T},
        **{"encoder_layers": LAYERS[0], "decoder_layers": LAYERS[1]},
        **{"original": True, "residual": False, "predict_variance": False},
    )


def _question(modalities: Sequence[Modality]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Random segments, and a mask that the original draws for them, or one that shows nothing."""
    from research.mtm.masks import create_full_random_mask, create_random_autoregressize_mask

    values = {m.name: torch.randn(B, T, m.size) for m in modalities}
    shapes = {m.name: (1, m.size) for m in modalities}
    if torch.rand(()) < 0.5:
        return values, create_random_autoregressize_mask(shapes, SHARES, T, "cpu")
    return values, {n: create_full_random_mask(s, T, SHARES, "cpu") for n, s in shapes.items()}


def _compare_once(
    its: Any, ours: MTM, modalities: Sequence[Modality]
) -> tuple[float, float, float]:
    """The largest differences of outputs, loss and gradients for one batch."""
    values, masks = _question(modalities)
    tokens = {name: value.unsqueeze(2) for name, value in values.items()}
    predicted = its(tokens, masks)
    discrete = dict.fromkeys(values, False)
    its_loss, *_ = its.forward_loss(tokens, predicted, masks, discrete, norm="none")
    loss, found = _our_loss(ours, modalities, values, masks)
    far = max(_far(predicted[name].squeeze(2), found[name]) for name in values)
    its.zero_grad()
    ours.zero_grad()
    its_loss.backward()
    loss.backward()
    gradients = _gradients(its, modalities)
    parts = [_far(gradients[n], _gradient(p)) for n, p in ours.named_parameters()]
    return far, abs(float(its_loss - loss)), max(parts)


def _our_loss(
    ours: MTM,
    modalities: Sequence[Modality],
    values: Mapping[str, Tensor],
    masks: Mapping[str, Tensor],
) -> tuple[Tensor, dict[str, Tensor]]:
    """As the `paper` preset trains, and the predictions."""
    columns = [masks[m.name].reshape(T).bool() for m in modalities]
    visible = torch.stack(columns, dim=1).expand(B, T, len(modalities)).contiguous()
    predictions = ours(values, visible)
    weights = torch.ones(visible.shape)
    totals = weights.sum(dim=(0, 1))
    losses, _ = reconstruction_losses(
        modalities, predictions, values, weights, ~visible, totals, "squared"
    )
    return losses.sum(), predictions.values


def _gradient(parameter: Tensor) -> Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad


def _gradients(its: Any, modalities: Sequence[Modality]) -> dict[str, Tensor]:
    holder = SimpleNamespace(
        named_parameters=lambda: [(n, _gradient(p)) for n, p in its.named_parameters()]
    )
    return its_weights(holder, modalities)  # type: ignore[arg-type]


def _trained(modalities: Sequence[Modality]) -> float:
    """How far the weights are apart after steps of AdamW with the same batches and rates.

    Adam divides by the size of gradients, so rounding of those that are nearly 0 is amplified: the
    keys' biases, which change nothing, are left out.
    """
    its, ours = _networks(modalities)
    settings = OptimizerConfig(name="adamw", weight_decay=0.01, clip_norm=0.0)
    adam = its.configure_optimizers(its, 1e-4, settings.weight_decay, settings.betas)
    optimizers = make_optimizers(ours, settings)
    for step in range(STEPS):
        values, masks = _question(modalities)
        tokens = {name: value.unsqueeze(2) for name, value in values.items()}
        rate = 1e-4 * (step + 1) / STEPS
        set_learning_rate([adam, *optimizers], rate)
        discrete = dict.fromkeys(values, False)
        its_loss, *_ = its.forward_loss(tokens, its(tokens, masks), masks, discrete, norm="none")
        loss, _ = _our_loss(ours, modalities, values, masks)
        for network, value, steppers in ((its, its_loss, [adam]), (ours, loss, optimizers)):
            network.zero_grad()
            value.backward()
            for optimizer in steppers:
                optimizer.step()
    theirs, far = its_weights(its, modalities), 0.0
    for name, parameter in ours.named_parameters():
        left, right = theirs[name].detach(), parameter.detach()
        if name.endswith("to_queries_keys_values.bias"):
            kept = torch.ones(3, dtype=torch.bool).index_fill(0, torch.tensor(1), False)
            left, right = left.view(3, -1)[kept], right.view(3, -1)[kept]
        far = max(far, _far(left, right))
    return far


def _first_weights(modalities: Sequence[Modality]) -> float:
    """How the deviations of first weights compare: the largest relative difference; 0 for 0."""
    from research.mtm.models.mtm_model import MTMConfig

    shapes = {m.name: (1, m.size) for m in modalities}
    width = 256
    sizes = {"n_embd": width, "n_head": HEADS, "n_enc_layer": LAYERS[0], "n_dec_layer": LAYERS[1]}
    its = its_weights(MTMConfig(**sizes, norm="none").create(shapes, T), modalities)
    ours = MTM(modalities, _model_config(width))
    if any(
        not torch.equal(a, b)
        for stack in (its, ours.state_dict())
        for a, b in zip(_layer(stack, 0), _layer(stack, 1), strict=True)
    ):
        return 1.0  # layers begin as copies of one
    far = 0.0
    for name, parameter in ours.named_parameters():
        left, right = float(its[name].std()), float(parameter.std())
        if parameter.numel() >= width * width or right == 0 or left == 0:
            far = max(far, abs(left - right) / max(left, right, 1e-12))
    return far


def _layer(weights: Mapping[str, Tensor], number: int) -> list[Tensor]:
    start = f"encoder.layers.{number}."
    return [weights[name] for name in sorted(weights) if name.startswith(start)]


def _masks(length: int) -> float:
    """The largest difference between the chances of tokens, and of pairs, to be visible."""
    from research.mtm.masks import create_random_autoregressize_mask

    modalities = CASES["states, returns, actions"]
    shapes = {m.name: (1, m.size) for m in modalities}
    its = np.stack(
        [
            np.stack([masks[m.name].numpy()[:, 0] for m in modalities], axis=1)
            for masks in (
                create_random_autoregressize_mask(shapes, SHARES, length, "cpu")
                for _ in range(DRAWS)
            )
        ]
    )
    drawn = make_mask("original")(modalities, length, DRAWS, np.random.default_rng(0))
    pairs = [(m.T @ m) / DRAWS for m in (its.reshape(DRAWS, -1), drawn.reshape(DRAWS, -1) * 1.0)]
    return float(np.abs(pairs[0] - pairs[1]).max())


def _acting() -> dict[str, float]:
    """How far actions are apart over some steps, policy by policy."""
    from research.mtm.datasets import sequence_dataset as sd

    tiny = preset("tiny")
    config = TrainConfig.from_json(
        {"steps": 1, "model": {**vars(_model_config(32)), "values": 0.0}}, tiny
    )
    with tempfile.TemporaryDirectory() as folder:
        run = train("builtin:point-mass", config, Path(folder) / "run", silent=True)
    its, manager = _its_twin(run)
    rng = np.random.default_rng(0)
    states = rng.normal(size=(8, *run.modalities.named("states").shape)).astype(np.float32)
    samplers = {
        "bc": (sd.sample_action_bc, {}),
        "rcbc": (sd.sample_action_bc2, {"percentage": 0.9}),
        "two_stage": (sd.sample_action_bc_two_stage, {"percentage": 0.9}),
    }
    far = {}
    for task in ACTING_TASKS:
        sample, asked = samplers[task]
        policy = policies.as_published(run, task, "fraction:0.9")
        policy.reset(1)
        past = sd.Trajectory.create_empty((4,), (2,))
        apart = []
        for state in states:
            action = policy.act(state[None])[0]
            shapes = ((1, 4), (1, 2))
            expected = sample(state, past, its, manager, *shapes, "cpu", **asked)
            apart.append(float(np.abs(action - expected).max()))
            past = past.append(state, action, 0.0)
            policy.observe(np.zeros(1), np.zeros(1, bool))
        far[task] = max(apart)
    return far


def _its_twin(run: Run) -> tuple[Any, Any]:
    """The original with the weights of a run of ours, and its tokenizers with our statistics."""
    from research.mtm.models.mtm_model import MTMConfig
    from research.mtm.tokenizers.base import TokenizerManager
    from research.mtm.tokenizers.continuous import ContinuousTokenizer

    width = run.model.config.width
    sizes = {"n_embd": width, "n_head": HEADS, "n_enc_layer": LAYERS[0], "n_dec_layer": LAYERS[1]}
    shapes = {m.name: (1, m.size) for m in run.modalities}
    its = MTMConfig(**sizes, norm="none").create(shapes, T).eval()
    with torch.no_grad():
        weights = run.model.state_dict()
        for name, parameter in its_weights(its, run.modalities).items():
            if name in TOKENS:  # stacked: copies, not the parameters themselves
                for i, m in enumerate(run.modalities):
                    token = its.get_parameter(f"{TOKENS[name]}.{m.name}")
                    token.copy_(weights[name][i].view(token.shape))
            else:
                parameter.copy_(weights[name])
    tokenizers = {}
    for m in run.modalities:
        known = run.normalizer.statistics[m.name]
        stats = SimpleNamespace(min=known.low, max=known.high)
        mean, std = known.mean.reshape(-1), known.std.reshape(-1)
        tokenizers[m.name] = ContinuousTokenizer(mean, std, stats)
    return its, TokenizerManager(tokenizers)


def _far(left: Tensor, right: Tensor) -> float:
    return float((left - right.view(left.shape)).abs().max())


if __name__ == "__main__":
    main()
