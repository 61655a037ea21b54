"""The original's training on our split, in a process of its own: see `benchmarks.beside_original`.

Its network with its first weights, its dropout, masks, loss, optimizer and schedule, by its own
`train_one_batch`; the episodes, the segments of each step, the normalisation and the measurement of
held-out errors are ours, so that curves compare. Prints JSON: a row per measurement.
"""

from __future__ import annotations

import argparse
import json
import math
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from benchmarks.parity_process import its_weights
from benchmarks.reference_process import make_importable
from mtm.core.config import DeviceConfig, TrainConfig
from mtm.data.segments import Segments
from mtm.masks import training_mask
from mtm.masks.training_masks import SHARES
from mtm.models.mtm import MTM
from mtm.runs.description import Description
from mtm.training.train import _describe, _make_validator


def main() -> None:
    """Train and print the curve."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("path", type=Path)
    parser.add_argument("--data", required=True)
    parser.add_argument("--settings", required=True, help="of our training, as JSON")
    arguments = parser.parse_args()
    make_importable(arguments.path)
    warnings.simplefilter("ignore")  # of PyTorch, about the way the original uses it
    config = TrainConfig.from_json(json.loads(arguments.settings))
    torch.manual_seed(config.seed)
    np.random.seed(config.seed)  # noqa: NPY002  (its masks come from there)
    print(json.dumps(_curve(arguments.data, config)))


def _curve(data: str, config: TrainConfig) -> list[dict[str, float]]:
    from research.mtm.masks import create_random_autoregressize_mask
    from research.mtm.train import train_one_batch

    description, training, held_out = _describe(data, config, DeviceConfig())
    validator = _make_validator(held_out, description, training_mask(config))
    if validator is None:
        raise SystemExit("curves are of held-out errors: let validation_fraction be above 0")
    T, modalities = config.model.segment_length, description.modalities
    segments = Segments(training, T, config.complete_share)
    its, optimizer, scheduler, manager = _original(description)
    twin = MTM(modalities, config.model)
    shapes = {m.name: (1, m.size) for m in modalities}
    shares = [s for s in SHARES if config.visible_fraction[0] <= s <= config.visible_fraction[1]]
    discrete, rows = dict.fromkeys(shapes, False), []
    for step in range(config.steps):
        values = segments.gather(segments.draw(config.batch_size, config.seed, step)).values
        batch = {n: torch.from_numpy(v).reshape(len(v), T, -1) for n, v in values.items()}
        masks = create_random_autoregressize_mask(shapes, shares, T, "cpu")
        train_one_batch(its, optimizer, scheduler, manager, discrete, batch, masks)
        if (step + 1) % config.validate_every == 0:
            layers = (config.model.encoder_layers, config.model.decoder_layers)
            twin.load_state_dict(its_weights(its, modalities, layers))
            rows.append({"step": step + 1.0, **validator.measure(twin)})
    return rows


def _original(description: Description) -> tuple[Any, Any, Any, Any]:
    """Its network, optimizer, schedule and tokenizers, of the sizes of our settings."""
    from research.mtm.models.mtm_model import MTM as Original  # noqa: N811
    from research.mtm.models.mtm_model import MTMConfig
    from research.mtm.tokenizers.base import TokenizerManager
    from research.mtm.tokenizers.continuous import ContinuousTokenizer

    config = description.train
    model, rates = config.model, config.optimizer
    sizes = {"n_embd": model.width, "n_head": model.heads, "n_enc_layer": model.encoder_layers}
    its = MTMConfig(
        **sizes, n_dec_layer=model.decoder_layers, dropout=model.dropout, norm="none"
    ).create({m.name: (1, m.size) for m in description.modalities}, model.segment_length)
    optimizer = Original.configure_optimizers(
        its, rates.learning_rate, rates.weight_decay, rates.betas
    )

    def schedule(step: int) -> float:
        if step < rates.warmup_steps:
            return step / rates.warmup_steps
        done = (step - rates.warmup_steps) / (config.steps - rates.warmup_steps)
        return 0.5 * (1 + math.cos(done * math.pi))

    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, schedule)
    tokenizers = {}
    for name, known in description.normalizer.statistics.items():
        stats = SimpleNamespace(min=known.low, max=known.high)
        tokenizers[name] = ContinuousTokenizer(known.mean.reshape(-1), known.std.reshape(-1), stats)
    return its.train(), optimizer, scheduler, TokenizerManager(tokenizers)


if __name__ == "__main__":
    main()
