"""The input of a step: a part of the batch, and the masks, that (seed, step) decide.

It is made on the CPU. For a GPU it is made ahead, in pinned memory, so that neither waits for the
other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mtm.core.config import LossOn
from mtm.core.randomness import Purpose, generator
from mtm.data.modalities import BoolArray, Modality
from mtm.data.segments import Segments
from mtm.masks import MaskFunction, Question, draw_one_for_all, draw_questions
from mtm.runs.description import Description
from mtm.training.prefetch import Prefetcher


class Masks:
    """Masks of a batch, (B, T, M) booleans that stay on the CPU, where they are worked with.

    DDP moves every tensor that it finds among the arguments of a network, in tuples, lists and
    dicts too, to its GPU; to read a mask there, the CPU would have to wait for all that the GPU has
    to do. So this is none of these, and no dataclass, which Fabric would take apart.

    Args:
        visible: What the encoder sees.
        wanted: What to predict; None: all.
    """

    __slots__ = ("visible", "wanted")

    def __init__(self, visible: Tensor, wanted: Tensor | None) -> None:
        self.visible, self.wanted = visible, wanted


@dataclass(frozen=True)
class StepInput:
    """What one process needs for one step.

    Attributes:
        values: Normalised values, name -> (B, T, *shape).
        weights: How much each token counts in the loss, (B, T, M); 0: not at all.
        hidden: Those that count and are not visible, (B, T, M).
        chosen: At which steps a hidden action is to be chosen, (B, T): no later state tells what
            was done.
        masks: Visible and wanted tokens.
        totals: The weights of each modality in the whole batch of all processes, (M,).
        processes: How many processes share that batch.
    """

    values: dict[str, Tensor]
    weights: Tensor
    hidden: Tensor
    chosen: Tensor
    masks: Masks
    totals: Tensor
    processes: int

    def to(self, device: torch.device) -> StepInput:
        """All but the masks on a device; what is pinned gets there while the CPU goes on."""
        return self._map(lambda tensor: tensor.to(device, non_blocking=True))

    def pinned(self, device: torch.device) -> StepInput:
        """The same in memory that a GPU reads by itself."""
        with torch.cuda.device(device):  # a thread of its own would take the first GPU
            masks = Masks(self.masks.visible.pin_memory(), self.masks.wanted)
            return replace(self._map(Tensor.pin_memory), masks=masks)

    def _map(self, change: Callable[[Tensor], Tensor]) -> StepInput:
        return replace(
            self,
            values={name: change(value) for name, value in self.values.items()},
            weights=change(self.weights),
            hidden=change(self.hidden),
            chosen=change(self.chosen),
            totals=change(self.totals),
        )


class BatchMaker:
    """Makes the input of any step, on the CPU: a process's part of the batch.

    Args:
        description: Settings, modalities, normalizer.
        segments: Of the training split.
        mask: Draws what is visible.
        rank: Which of the processes this is.
        processes: How many share a batch.
    """

    def __init__(
        self,
        description: Description,
        segments: Segments,
        mask: MaskFunction,
        *,
        rank: int = 0,
        processes: int = 1,
    ) -> None:
        self.config, self.modalities = description.train, description.modalities
        self.normalizer, self.segments, self.mask = description.normalizer, segments, mask
        self.processes, self.mine = processes, slice(rank, None, processes)

    def __call__(self, step: int) -> StepInput:
        """The input of a step, counted from 0."""
        config = self.config
        numbers = self.segments.draw(config.batch_size, config.seed, step)
        batch = self.segments.gather(numbers[self.mine])
        everywhere = batch.present if self.processes == 1 else self.segments.present(numbers)
        rng = generator(config.seed, Purpose.MASKS, step)
        draw = draw_questions if config.mask_per == "sample" else draw_one_for_all
        question = draw(self.mask, self.modalities, everywhere, rng)
        hidden = everywhere & ~question.visible
        scored = scored_tokens(config.loss_on, question, everywhere)
        weights = _weights(scored) if config.loss_on == "wanted" else scored.astype(np.float32)
        shown = question.visible[self.mine] & batch.present
        wanted = None if config.loss_on == "all" else _wanted(scored[self.mine])
        return StepInput(
            self.normalizer.tensors(batch),
            torch.from_numpy(weights[self.mine]),
            torch.from_numpy((scored & hidden)[self.mine]),
            torch.from_numpy(chosen_steps(self.modalities, shown)),
            Masks(torch.from_numpy(shown), wanted),
            torch.from_numpy(weights.sum(axis=(0, 1))),
            self.processes,
        )


def made_for(
    device: torch.device, make: Callable[[int], StepInput], end: int
) -> Callable[[int], StepInput] | Prefetcher[StepInput]:
    """What gives the inputs of the steps up to `end`: ahead and pinned if a GPU is to read them.

    On a CPU they are made when asked for: a thread would take cores from the arithmetic.
    """
    if device.type != "cuda":
        return make
    return Prefetcher(lambda step: make(step).pinned(device), end)


def scored_tokens(loss_on: LossOn, question: Question, present: BoolArray) -> BoolArray:
    """The tokens that the loss counts, (B, T, M)."""
    if loss_on == "all":
        return present
    return present & (question.wanted if loss_on == "wanted" else ~question.visible)


def chosen_steps(modalities: Sequence[Modality], visible: BoolArray) -> BoolArray:
    """At which steps no later state is visible, (B, T), of what is visible, (B, T, M)."""
    states = [i for i, m in enumerate(modalities) if m.role == "state"]
    shown: BoolArray = np.any(visible[:, :, states], axis=2)  # (B, T)
    until = np.logical_or.accumulate(shown[:, ::-1], axis=1)[:, ::-1]  # now or later
    chosen = np.ones_like(until)
    chosen[:, :-1] = ~until[:, 1:]
    return chosen


def _weights(scored: BoolArray) -> NDArray[np.float32]:
    """Of scored tokens: those of a modality share the weight of 1 that each sample gives it.

    So a question that wants one action counts as much as one that wants all of them.
    """
    counts = scored.sum(axis=1, keepdims=True, dtype=np.float32)
    weights: NDArray[np.float32] = scored / np.maximum(counts, 1)
    return weights


def _wanted(scored: BoolArray) -> Tensor:
    """The scored tokens and one of each modality: every head takes part in every step."""
    wanted = scored.copy()
    wanted[0, 0] |= ~scored.any(axis=(0, 1))
    return torch.from_numpy(wanted)
