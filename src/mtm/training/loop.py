"""One step and one loop, for the masked model and for models specialised in one mask.

`train_step` holds the mathematics; `Loop.run` fetches, steps, validates, logs and saves. The batch,
the masks and the learning rate of step k are pure functions of (config, k), so a resumed run takes
the same steps as one that was never stopped.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from mtm.core.progress import TrainingProgress
from mtm.core.randomness import Purpose, generator
from mtm.data.modalities import BoolArray, Modality
from mtm.data.segments import Segments
from mtm.masks import MaskFunction, draw_masks
from mtm.models.network import make_network
from mtm.runs import checkpoint
from mtm.runs.checkpoint import State
from mtm.runs.run import Description
from mtm.training.losses import reconstruction_losses
from mtm.training.optimization import (
    check_finite,
    gradient_norm,
    learning_rate,
    make_optimizers,
    set_learning_rate,
)
from mtm.training.trackers import MetricsFile, TensorBoard, Tracker, WeightsAndBiases
from mtm.training.validation import Validator

EXTRA_COLUMNS = ("gradient_norm", "learning_rate", "segments_per_second", "seconds")


@dataclass(frozen=True)
class StepInput:
    """What one process needs for one step.

    Attributes:
        values: Normalised values, name -> (B, T, *shape).
        scored: Tokens that the loss counts, (B, T, M).
        hidden: Those of them that are not visible, (B, T, M).
        visible: (B, L), on the CPU.
        wanted: Tokens to predict, (B, L), on the CPU; None: all.
        counts: Scored tokens of each modality in the whole batch of all processes, (M,).
        processes: How many processes share that batch.
    """

    values: dict[str, Tensor]
    scored: Tensor
    hidden: Tensor
    visible: Tensor
    wanted: Tensor | None
    counts: Tensor
    processes: int


class BatchMaker:
    """Makes the input of any step: a process's part of the batch that (seed, step) decide."""

    def __init__(
        self, fabric: Fabric, description: Description, segments: Segments, mask: MaskFunction
    ) -> None:
        self.config, self.modalities = description.train, description.modalities
        self.normalizer, self.segments, self.mask = description.normalizer, segments, mask
        self.device = fabric.device
        self.processes = fabric.world_size
        self.mine = slice(fabric.global_rank, None, fabric.world_size)

    def __call__(self, step: int) -> StepInput:
        """The input of a step, counted from 0."""
        config = self.config
        numbers = self.segments.draw(config.batch_size, config.seed, step)
        batch = self.segments.gather(numbers[self.mine])
        everywhere = batch.present if self.processes == 1 else self.segments.present(numbers)
        rng = generator(config.seed, Purpose.MASKS, step)
        visible = draw_masks(self.mask, self.modalities, everywhere, rng)
        hidden = everywhere & ~visible
        scored = hidden if config.loss_on == "hidden" else everywhere
        shown = (visible[self.mine] & batch.present).reshape(len(batch.present), -1)
        counts = torch.from_numpy(scored.sum(axis=(0, 1)))
        values = self.normalizer.tensors(batch)
        return StepInput(
            {name: v.to(self.device, non_blocking=True) for name, v in values.items()},
            torch.from_numpy(scored[self.mine]).to(self.device, non_blocking=True),
            torch.from_numpy(hidden[self.mine]).to(self.device, non_blocking=True),
            torch.from_numpy(shown),
            _wanted(scored[self.mine]) if config.loss_on == "hidden" else None,
            counts.to(self.device, non_blocking=True),
            self.processes,
        )


def train_step(
    fabric: Fabric,
    model: nn.Module,
    optimizers: Sequence[torch.optim.Optimizer],
    modalities: Sequence[Modality],
    inputs: StepInput,
    clip_norm: float,
) -> Tensor:
    """One optimizer step.

    Returns:
        The errors of all modalities together, of each of them, and the norm of the gradient,
        (M + 2,); still on the device, so that nothing waits for it.
    """
    predictions = model(inputs.values, inputs.visible, inputs.wanted)
    losses, errors = reconstruction_losses(
        modalities,
        predictions,
        inputs.values,
        inputs.scored,
        inputs.hidden,
        inputs.counts,
        partial(_total, inputs.processes),
    )
    for optimizer in optimizers:
        optimizer.zero_grad()
    # Each process holds its part of the sum, and DDP averages the gradients over processes.
    fabric.backward(losses.sum() * inputs.processes)
    norm = _clip(model, clip_norm)
    for optimizer in optimizers:
        optimizer.step()
    errors = errors * inputs.processes
    return torch.cat([errors.sum()[None], errors, norm[None]])


class Loop:
    """Trains one network in a run directory that already holds its description.

    Args:
        fabric: Launched.
        description: Settings, modalities, normalizer.
        out: The run directory.
        segments: Of the training split.
        mask: Draws what is visible.
        validator: Of the held-out split, if there is one.
        resume: Start from the last checkpoint.
        silent: Show nothing.
    """

    def __init__(
        self,
        fabric: Fabric,
        description: Description,
        out: Path,
        segments: Segments,
        mask: MaskFunction,
        validator: Validator | None,
        *,
        resume: bool,
        silent: bool,
    ) -> None:
        self.fabric, self.config, self.out = fabric, description.train, out
        self.modalities, self.validator = description.modalities, validator
        self.is_first = fabric.is_global_zero
        torch.manual_seed(self.config.seed)
        self.network = make_network(self.modalities, self.config.model)
        self.optimizers = make_optimizers(self.network, self.config.optimizer)
        self.model, *self.wrapped = fabric.setup(self.network, *self.optimizers)
        self.state = State(0, 0.0, {})
        if resume:  # only now that the network has the precision that was saved
            self.state = checkpoint.restore(out / "checkpoints", self.network, *self.optimizers)
        self.make_batch = BatchMaker(fabric, description, segments, mask)
        self.losses = ["loss", *(f"loss/{m.name}" for m in self.modalities)]
        self.trackers = self._make_trackers(description) if self.is_first else []
        self.silent = silent or not self.is_first
        self._totals = torch.zeros(len(self.losses) + 1, device=fabric.device)
        self._counted = 0
        self._began = time.monotonic() - self.state.seconds
        self._resumed = time.monotonic()  # the steps, after what was done between them

    def run(self, stop_at: int | None = None) -> None:
        """Take the remaining steps, up to `stop_at`; a stop signal saves and ends early."""
        config = self.config
        last = config.steps if stop_at is None else min(stop_at, config.steps)
        progress = TrainingProgress(last, self.state.step, silent=self.silent)
        with ExitStack() as stack:
            for tracker in self.trackers:
                stack.callback(tracker.close)
            stop_requested = stack.enter_context(_stop_signals(self.fabric, config.log_every))
            stack.enter_context(progress)
            for step in range(self.state.step + 1, last + 1):
                self._step(step)
                progress.at(step)
                stopping = stop_requested(step)
                is_last = step == last
                is_validation_step = is_last or step % config.validate_every == 0
                is_save_step = is_last or stopping or step % config.checkpoint_every == 0
                # Logging looks whether all is finite, so that what is saved is sound.
                is_log_step = is_validation_step or is_save_step or step % config.log_every == 0
                if not is_log_step:
                    continue
                metrics = self._gather(step)  # first: the speed is that of the steps alone
                validation: dict[str, float] = {}
                if is_validation_step and self.validator is not None and self.is_first:
                    validation = self.validator.measure(self.network)
                    progress.show_validation(step, validation)
                self._log(step, metrics, validation)
                progress.show(step, metrics)
                if is_save_step and self.is_first:
                    self._save(step, validation)
                self._resumed = time.monotonic()
                if stopping and not is_last:
                    progress.say(f"stopped and saved at step {step:,}; continue with --resume")
                    break

    def _step(self, step: int) -> None:
        config = self.config
        set_learning_rate(self.optimizers, learning_rate(step - 1, config.steps, config.optimizer))
        if config.model.dropout:
            rng = generator(config.seed, Purpose.DROPOUT, step * 2**20 + self.fabric.global_rank)
            torch.manual_seed(int(rng.integers(2**62)))
        self._totals += train_step(
            self.fabric,
            self.model,
            self.wrapped,
            self.modalities,
            self.make_batch(step - 1),
            config.optimizer.clip_norm,
        )
        self._counted += 1

    def _gather(self, step: int) -> dict[str, float]:
        """The means of what was added up since the last row, and how fast the steps were."""
        means = self.fabric.all_reduce(self._totals / self._counted)
        metrics = dict(zip([*self.losses, "gradient_norm"], means.tolist(), strict=True))  # type: ignore[union-attr]
        cure = "a lower optimizer.learning_rate, or --precision 32-true"
        check_finite(step, metrics["loss"], metrics["gradient_norm"], cure)
        seconds = max(time.monotonic() - self._resumed, 1e-9)
        metrics["learning_rate"] = self.optimizers[0].param_groups[0]["lr"]
        metrics["segments_per_second"] = self._counted * self.config.batch_size / seconds
        self._totals.zero_()
        self._counted = 0
        return metrics

    def _log(self, step: int, metrics: dict[str, float], validation: dict[str, float]) -> None:
        """Hand a row to the trackers."""
        row = metrics | {"seconds": time.monotonic() - self._began}
        for tracker in self.trackers:
            tracker.log(step, row | {f"val/{k}": v for k, v in validation.items()})

    def _save(self, step: int, validation: dict[str, float]) -> None:
        self.state = State(step, time.monotonic() - self._began, validation)
        folder = self.out / "checkpoints"
        checkpoint.save(
            folder,
            self.state,
            self.network.state_dict(),
            checkpoint.optimizer_tensors(*self.optimizers),
        )
        checkpoint.prune(folder, self.config.keep_checkpoints)

    def _make_trackers(self, description: Description) -> list[Tracker]:
        measured = [f"val/{name}" for name in self.validator.names] if self.validator else []
        columns = [*self.losses, *EXTRA_COLUMNS, *measured]
        trackers: list[Tracker] = [
            MetricsFile(self.out / "metrics.csv", columns, resume_after=self.state.step)
        ]
        if "tensorboard" in self.config.trackers:
            trackers.append(TensorBoard(self.out, resume_after=self.state.step))
        if "wandb" in self.config.trackers:
            trackers.append(WeightsAndBiases(self.out, description.train.to_json()))
        return trackers


def _wanted(scored: BoolArray) -> Tensor:
    """The scored tokens, (B, L), and one of each modality: every head takes part in every step."""
    wanted = scored.copy()
    wanted[0, 0] |= ~scored.any(axis=(0, 1))
    return torch.from_numpy(wanted.reshape(len(wanted), -1))


def _total(processes: int, part: Tensor) -> Tensor:
    """The sum of what all processes hold; Fabric's own would let them wait for each other first."""
    if processes > 1:
        torch.distributed.all_reduce(part)
    return part


def _clip(model: nn.Module, clip_norm: float) -> Tensor:
    """Scale the gradient down to `clip_norm` (0: leave it) and return its norm before."""
    norm = gradient_norm(model.parameters())
    if clip_norm > 0:
        nn.utils.clip_grads_with_norm_(model.parameters(), clip_norm, norm)
    return norm


@contextmanager
def _stop_signals(fabric: Fabric, every: int) -> Iterator[Callable[[int], bool]]:
    """Turn the first SIGINT or SIGTERM into a request; the second one ends at once.

    Several processes must agree on the step to stop at; they compare notes every so many steps.
    """
    received = threading.Event()
    before: dict[signal.Signals, Any] = {}

    def on_signal(number: int, frame: FrameType | None) -> None:
        if received.is_set():
            raise KeyboardInterrupt
        received.set()

    def requested(step: int) -> bool:
        if fabric.world_size == 1:
            return received.is_set()
        if step % every:
            return False
        flag = torch.tensor(float(received.is_set()), device=fabric.device)
        return bool(fabric.all_reduce(flag, reduce_op="sum") > 0)  # type: ignore[operator]

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, on_signal)
    try:
        yield requested
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
