"""The training step and its parts, at the sizes of two presets."""

from __future__ import annotations

import statistics
from dataclasses import replace

import numpy as np
from lightning_fabric import Fabric

from benchmarks import one_training
from benchmarks.timing import Row, peak_flops, seconds_of_each
from mtm.core.config import TrainConfig, preset
from mtm.core.system import keep_freed_memory
from mtm.data.formats import builtin
from mtm.data.modalities import Modality
from mtm.data.normalizer import Normalizer
from mtm.data.preparation import prepare
from mtm.data.segments import Segments
from mtm.data.trajectories import TrajectoryDataset
from mtm.masks import MaskFunction, training_mask
from mtm.models.network import make_network
from mtm.runs.description import Description
from mtm.training.batches import BatchMaker
from mtm.training.masked_model import MaskedForward, train_step
from mtm.training.optimization import make_optimizers, set_learning_rate

STEPS = {"cpu": 120, "paper": 6}
REPEATS = {"cpu": 60, "paper": 4}
"""Steps with each kind of mask."""
SHARE_OF_PEAK = {"cpu": "0.5", "paper": "0.65"}


def measure() -> list[Row]:
    """Segments per second, share of the machine's peak, cost of a mask per sample, memory."""
    keep_freed_memory()  # as training does
    return [row for name in STEPS for row in _measure(name, preset(name))]


def _measure(name: str, config: TrainConfig) -> list[Row]:
    part = f"training, {name}"
    peaks = [peak_flops()]
    whole = one_training.measured(name, STEPS[name])
    peaks.append(peak_flops())  # a shared machine gets faster and slower meanwhile
    stepper = Stepper(builtin.hopper(), config)
    per_sample = training_mask(config)
    masks = {"sample": per_sample, "batch": one_for_all(per_sample)}
    seconds = seconds_of_each(
        {each: lambda mask=mask: stepper.step(mask) for each, mask in masks.items()},  # type: ignore[misc]
        at_least=0,
        repeats=REPEATS[name],
        average=statistics.fmean,  # a mask for all samples hides much or little, by chance
    )
    flops = np.mean([stepper.flops(per_sample) for _ in range(20)])
    share = flops / whole["seconds"] / statistics.fmean(peaks)
    ratio = seconds["sample"] / seconds["batch"]
    return [
        Row(part, "whole loop", config.batch_size / whole["seconds"], "segments/s"),
        Row(part, "share of the machine's peak", share, "", f"at least {SHARE_OF_PEAK[name]}"),
        Row(part, "data, masks and logging, share", whole["outside"], "", "below 0.05"),
        Row(part, "mask per sample / mask per batch", ratio, "times", "at most 1.15"),
        Row(part, "peak memory", whole["memory"] / 2**20, "MiB"),
    ]


class Stepper:
    """Takes steps of training with one network and any mask."""

    def __init__(self, source: TrajectoryDataset, config: TrainConfig) -> None:
        data = prepare(source, config)
        self._config = config = replace(config, mask_per="sample")  # else, a mask says so itself
        self._description = Description(config, data.modalities, Normalizer.fit(data), {})
        self._fabric = Fabric(accelerator="cpu", devices=1)
        self.network = make_network(data.modalities, config.model)
        optimizers = make_optimizers(self.network, config.optimizer)
        set_learning_rate(optimizers, 1e-4)
        self._model, *self._optimizers = self._fabric.setup(
            MaskedForward(self.network), *optimizers
        )
        self._segments = Segments(data, config.model.segment_length)
        self._numbers = iter(range(10**9))

    def step(self, mask: MaskFunction) -> None:
        """A whole step: batch, masks, forward, backward, optimizer."""
        inputs = self._maker(mask)(next(self._numbers))
        train_step(
            self._fabric,
            self._model,
            self._optimizers,
            self._description.modalities,
            inputs,
            self._config.optimizer.clip_norm,
            self._config.action_loss,
        )

    def flops(self, mask: MaskFunction) -> float:
        """Operations of one step, from the tokens really processed; backward is twice forward."""
        c, D = self._config.model, self._config.model.width
        visible = self._maker(mask)(next(self._numbers)).masks.visible
        B, L = visible.flatten(1).shape
        shown = visible.sum(dim=(1, 2)).double()
        layer, attention = 24 * D * D, 4 * D  # per token; per pair of tokens
        encoder = c.encoder_layers * float((shown * layer + shown**2 * attention).sum())
        decoder = c.decoder_layers * B * (L * layer + L * L * attention)
        # Before its first attention, hidden tokens are the same in all samples.
        decoder -= 6 * D * D * (B * L - (float(shown.sum()) + L))
        between = 2 * D * D * float(shown.sum())
        ends = B * c.segment_length * sum(self._ends(m) for m in self._description.modalities)
        return 3.0 * (encoder + between + decoder) + ends

    def _ends(self, modality: Modality) -> int:
        """Operations of a token's way into the network and out of it, forward and backward.

        Nothing comes before the data, so the first layer passes no gradient on.
        """
        D, is_discrete = self._config.model.width, modality.kind == "discrete"
        numbers = modality.size * (2 if self._config.model.predict_variance else 1)
        inputs = 0 if is_discrete else modality.size  # a class is looked up
        outputs = modality.classes if is_discrete else numbers
        return 2 * D * (2 * inputs + 3 * D + 3 * outputs)

    def _maker(self, mask: MaskFunction) -> BatchMaker:
        return BatchMaker(self._description, self._segments, mask)


def one_for_all(mask: MaskFunction) -> MaskFunction:
    """The same mask for all samples of a batch, as the original draws it."""

    def shared(modalities, segment_length, batch_size, rng):  # type: ignore[no-untyped-def]
        return np.repeat(mask(modalities, segment_length, 1, rng), batch_size, axis=0)

    return shared
