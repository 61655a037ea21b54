"""The training step and its parts, at the sizes of two presets."""

from __future__ import annotations

import numpy as np
import torch
from lightning_fabric import Fabric

from benchmarks.timing import Row, seconds_per_call
from mtm.config import TrainConfig, preset
from mtm.datasets import builtin
from mtm.loop import BatchMaker, parameter_groups, train_step
from mtm.machine import keep_freed_memory
from mtm.masks import MaskFunction, make_mask
from mtm.model import MTM
from mtm.normalizer import Normalizer
from mtm.run import Description
from mtm.segments import Segments
from mtm.training import prepare


def measure(peak: float) -> list[Row]:
    """Segments per second, share of the machine's peak, cost of a mask per sample."""
    keep_freed_memory()  # as training does
    return [row for name in ("cpu", "paper") for row in _measure(name, preset(name), peak)]


def _measure(name: str, config: TrainConfig, peak: float) -> list[Row]:
    data = prepare(builtin.hopper(), config)
    description = Description(config, data.modalities, Normalizer.fit(data), {})
    fabric = Fabric(accelerator="cpu", devices=1)
    network = MTM(data.modalities, config.model)
    groups = parameter_groups(network, config.optimizer.weight_decay)
    adam = torch.optim.AdamW(groups, lr=1e-4, fused=True)
    model, optimizer = fabric.setup(network, adam)
    segments = Segments(data, config.model.segment_length)
    per_sample = make_mask(config.mask)
    steps = iter(range(10**9))

    def step(mask: MaskFunction) -> None:
        maker = BatchMaker(fabric, description, segments, mask)
        inputs = maker(next(steps))
        train_step(fabric, model, optimizer, data.modalities, inputs, 1.0)

    maker = BatchMaker(fabric, description, segments, per_sample)
    whole = seconds_per_call(lambda: step(per_sample), at_least=6)
    shared = seconds_per_call(lambda: step(_one_for_all(per_sample)), at_least=6)
    making = seconds_per_call(lambda: maker(next(steps)))
    flops = np.mean([_flops(network, maker(i).visible, config) for i in range(20)])
    return [
        Row(f"training, {name}", "whole step", config.batch_size / whole, "segments/s"),
        Row(f"training, {name}", "share of the machine's peak", flops / whole / peak, ""),
        Row(f"training, {name}", "data and masks, share of a step", making / whole, ""),
        Row(f"training, {name}", "mask per sample / mask per batch", whole / shared, "times"),
    ]


def _one_for_all(mask: MaskFunction) -> MaskFunction:
    def shared(modalities, segment_length, batch_size, rng):  # type: ignore[no-untyped-def]
        return np.repeat(mask(modalities, segment_length, 1, rng), batch_size, axis=0)

    return shared


def _flops(network: MTM, visible: torch.Tensor, config: TrainConfig) -> float:
    """Operations of one step, from the tokens really processed; backward is twice forward."""
    D, c = config.model.width, config.model
    B, L = visible.shape
    shown = visible.sum(dim=1).double()
    layer, attention = 24 * D * D, 4 * D  # per token; per pair of tokens
    encoder = c.encoder_layers * float((shown * layer + shown**2 * attention).sum())
    decoder = c.decoder_layers * B * (L * layer + L * L * attention)
    ends = 2 * D * D * float(shown.sum())  # from encoder to decoder
    ends += B * c.segment_length * sum(4 * D * m.size + 2 * D * D for m in network.modalities)
    return 3.0 * (encoder + decoder + ends)
