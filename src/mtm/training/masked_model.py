"""The masked model and those specialised in one mask: a step of theirs, for the scaffold.

`train_step` holds the mathematics. The batch, the masks and the learning rate of step k are pure
functions of (config, k).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from mtm.core.config import ActionLoss
from mtm.core.randomness import Purpose, generator
from mtm.data.modalities import Modality
from mtm.data.segments import Segments
from mtm.masks import MaskFunction
from mtm.models.heads import Predictions
from mtm.models.members import Members
from mtm.models.network import Network, make_network
from mtm.runs.description import Description
from mtm.training.batches import BatchMaker, Masks, StepInput, made_for
from mtm.training.losses import reconstruction_losses
from mtm.training.optimization import (
    clip_members,
    gradient_norm,
    learning_rate,
    make_optimizers,
    set_learning_rate,
)
from mtm.training.prefetch import Prefetcher
from mtm.training.scaffold import Look, Schedule, Trainer
from mtm.training.trackers import MetricsFile, TensorBoard, Tracker, WeightsAndBiases
from mtm.training.validation import Validator
from mtm.training.values import expectile_losses
from mtm.training.weight_average import WeightAverage

EXTRA_COLUMNS = ("gradient_norm", "learning_rate", "segments_per_second", "seconds")


class MaskedForward(nn.Module):
    """What Fabric wraps in place of the network: it takes the masks out of their box.

    Args:
        network: Its parameters are all that this has.
    """

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network

    def forward(self, values: Mapping[str, Tensor], masks: Masks) -> list[Predictions]:
        """Predict the wanted tokens, as each member of the network does, or it alone."""
        if isinstance(self.network, Members):
            each = self.network.each(values, masks.visible, masks.wanted)
            return each.apart(self.network.config.members)
        return [self.network(values, masks.visible, masks.wanted)]


def train_step(
    fabric: Fabric,
    model: nn.Module,
    optimizers: Sequence[torch.optim.Optimizer],
    modalities: Sequence[Modality],
    inputs: StepInput,
    clip_norm: float,
    action_loss: ActionLoss,
    expectile: float = 0.0,
) -> Tensor:
    """One optimizer step; members take it side by side, each by its own loss.

    Args:
        fabric: Launched.
        model: A `MaskedForward`, set up by it.
        optimizers: Set up by it too.
        modalities: Of the network.
        inputs: On the model's device.
        clip_norm: The largest norm of the gradient, of each member; 0: any.
        action_loss: How errors of hidden actions that are to be chosen count.
        expectile: Which one of returns is learned too; 0: none.

    Returns:
        The errors of all modalities together, of each of them, and the norm of the gradient,
        (M + 2,), means over the members; still on the device, so that nothing waits for it.
    """
    found = []
    for predictions in model(inputs.values, inputs.masks):
        losses, errors = reconstruction_losses(
            modalities,
            predictions,
            inputs.values,
            inputs.weights,
            inputs.hidden,
            inputs.totals,
            action_loss,
            inputs.chosen,
            partial(_total, inputs.processes),
        )
        if expectile:
            losses = losses + expectile_losses(
                modalities,
                predictions,
                inputs.values,
                inputs.weights,
                inputs.hidden,
                inputs.totals,
                expectile,
            )
        found.append((losses, errors))
    losses = torch.cat([losses for losses, _ in found])
    errors = torch.stack([errors for _, errors in found]).mean(dim=0)
    for optimizer in optimizers:
        optimizer.zero_grad()
    # Each process holds its part of the sum, and DDP averages the gradients over processes.
    fabric.backward(losses.sum() * inputs.processes)
    norm = _clip(model, clip_norm, members=len(found))
    for optimizer in optimizers:
        optimizer.step()
    errors = errors * inputs.processes
    return torch.cat([errors.sum()[None], errors, norm[None]])


class MaskedTrainer(Trainer):
    """Trains a network to reconstruct what masks hide.

    Args:
        fabric: Launched.
        description: Settings, modalities, normalizer.
        segments: Of the training split.
        mask: Draws what is visible.
        validator: Of the held-out split, if there is one.
    """

    cure = "a lower optimizer.learning_rate, or --precision 32-true"
    measured_as = "val/"

    def __init__(
        self,
        fabric: Fabric,
        description: Description,
        segments: Segments,
        mask: MaskFunction,
        validator: Validator | None,
    ) -> None:
        config = description.train
        self.fabric, self.config, self.validator = fabric, config, validator
        self.modalities = description.modalities
        self.schedule = Schedule(
            steps=config.steps,
            log_every=config.log_every,
            measure_every=config.validate_every,
            save_every=config.checkpoint_every,
            keep=config.keep_checkpoints,
        )
        torch.manual_seed(config.seed)
        self.network = make_network(self.modalities, config.model)
        self.optimizers = make_optimizers(self.network, config.optimizer)
        # From here on, the network has the precision that is saved.
        self.model, *self.wrapped = fabric.setup(MaskedForward(self.network), *self.optimizers)
        if config.optimizer.averaged_share:
            before = config.steps - round(config.optimizer.averaged_share * config.steps)
            self.average = WeightAverage(self.network, after=before)
        rank, processes = fabric.global_rank, fabric.world_size
        make = BatchMaker(description, segments, mask, rank=rank, processes=processes)
        self.inputs = made_for(fabric.device, make, config.steps)
        self.losses = ["loss", *(f"loss/{m.name}" for m in self.modalities)]
        self._totals = torch.zeros(len(self.losses) + 1, device=fabric.device)
        self._counted = 0

    def step(self, step: int) -> None:
        """Take an optimizer step, counted from 0."""
        config = self.config
        set_learning_rate(self.optimizers, learning_rate(step, config.steps, config.optimizer))
        if config.model.dropout:
            number = (step + 1) * 2**20 + self.fabric.global_rank
            rng = generator(config.seed, Purpose.DROPOUT, number)
            torch.manual_seed(int(rng.integers(2**62)))
        self._totals += train_step(
            self.fabric,
            self.model,
            self.wrapped,
            self.modalities,
            self.inputs(step).to(self.fabric.device),
            config.optimizer.clip_norm,
            config.action_loss,
            config.model.values,
        )
        self._counted += 1

    def look(self, seconds: float) -> Look:
        """The means of what was added up since the last look, and how fast the steps were."""
        means = self.fabric.all_reduce(self._totals / self._counted)
        metrics = dict(zip([*self.losses, "gradient_norm"], means.tolist(), strict=True))  # type: ignore[union-attr]
        metrics["learning_rate"] = self.optimizers[0].param_groups[0]["lr"]
        segments = self._counted * self.config.batch_size
        metrics["segments_per_second"] = segments / max(seconds, 1e-9)
        self._totals.zero_()
        self._counted = 0
        return Look(metrics, metrics["loss"], metrics["gradient_norm"])

    def measure(self, step: int) -> dict[str, float]:
        """The errors on held-out episodes."""
        return {} if self.validator is None else self.validator.measure(self.network)

    def trackers(self, out: Path, resume_after: int) -> list[Tracker]:
        """A metrics file, and what the settings name."""
        names = [] if self.validator is None else self.validator.names
        columns = [*self.losses, *EXTRA_COLUMNS, *(f"{self.measured_as}{name}" for name in names)]
        trackers: list[Tracker] = [MetricsFile(out / "metrics.csv", columns, resume_after)]
        if "tensorboard" in self.config.trackers:
            trackers.append(TensorBoard(out, resume_after))
        if "wandb" in self.config.trackers:
            trackers.append(WeightsAndBiases(out, self.config.to_json()))
        return trackers

    def status(self, row: Mapping[str, float], rate: float) -> str:
        """Losses and segments per second."""
        parts = " ".join(f"{name.removeprefix('loss/')} {row[name]:.3f}" for name in self.losses)
        return f"{parts}  {row['segments_per_second']:,.0f} segments/s"

    def notice(self, measured: Mapping[str, float]) -> str:
        """Held-out errors."""
        named = [n for n in ("fd", "id", "bc", "rcbc") if n in measured]
        parts = "  ".join(f"{name} {measured[name]:.4f}" for name in named)
        return f"held out: loss {measured['loss']:.4f}  {parts}"

    def close(self) -> None:
        """End the thread that makes inputs ahead, if there is one."""
        if isinstance(self.inputs, Prefetcher):
            self.inputs.close()


def _total(processes: int, part: Tensor) -> Tensor:
    """The sum of what all processes hold; Fabric's own would let them wait for each other first."""
    if processes > 1:
        torch.distributed.all_reduce(part)
    return part


def _clip(model: nn.Module, clip_norm: float, members: int) -> Tensor:
    """Scale the gradient down to `clip_norm` (0: leave it) and return its norm before."""
    if members > 1:
        return clip_members(model.parameters(), clip_norm)
    norm = gradient_norm(model.parameters())
    if clip_norm > 0:
        nn.utils.clip_grads_with_norm_(model.parameters(), clip_norm, norm)
    return norm
