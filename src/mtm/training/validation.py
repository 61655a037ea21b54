"""How good a model is on the episodes of validation, without an environment.

Always the same segments and the same masks for a seed, so that two checkpoints compare. All errors
are in normalised units (mean squared) or nats (discrete modalities).
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from mtm.core.config import LossOn, TrainConfig
from mtm.core.errors import ConfigError
from mtm.core.names import VALIDATED
from mtm.core.randomness import Purpose, generator
from mtm.data.modalities import Modality
from mtm.data.normalizer import Normalizer
from mtm.data.segments import Segments
from mtm.data.trajectories import TrajectoryDataset
from mtm.masks import MaskFunction, draw_questions
from mtm.masks.capabilities import NAMED_MASKS, Question
from mtm.training.batches import scored_tokens
from mtm.training.losses import token_errors

BATCH_SIZE = 1024


class Validator:
    """Measures a model on held-out segments.

    Args:
        dataset: The held-out episodes.
        normalizer: Of the training split.
        segment_length: T.
        mask: The training mask, for the reconstruction errors.
        loss_on: Tokens that count, as in the loss that the model was trained with.
        capabilities: Named masks to measure prediction errors of, where the data allow them.
        segments: How many segments to look at.
        seed: Chooses the segments and the masks.
    """

    def __init__(
        self,
        dataset: TrajectoryDataset,
        normalizer: Normalizer,
        *,
        segment_length: int,
        mask: MaskFunction,
        loss_on: LossOn,
        capabilities: Sequence[str],
        segments: int,
        seed: int,
    ) -> None:
        self.modalities = dataset.modalities
        self.questions = _possible_questions(capabilities, self.modalities, segment_length)
        self._parts = ("hidden",) if loss_on == "hidden" else ("hidden", "visible")
        pool = Segments(dataset, segment_length)
        numbers = pool.sample(segments, seed)
        rng = generator(seed, Purpose.VALIDATION, 1)
        present = pool.present(numbers)
        question = draw_questions(mask, self.modalities, present, rng)
        scored = scored_tokens(loss_on, question, present)
        self._batches = []
        for start in range(0, len(numbers), BATCH_SIZE):
            part = slice(start, start + BATCH_SIZE)
            batch = pool.gather(numbers[part])
            asked = Question(question.visible[part], scored[part])
            self._batches.append((normalizer.tensors(batch), batch.present, asked))

    @property
    def names(self) -> list[str]:
        """Names of the metrics that `measure` gives."""
        parts = [f"{m.name}/{part}" for m in self.modalities for part in self._parts]
        baseline = ["fd_copy_last"] if "fd" in self.questions else []
        return ["loss", *parts, *self.questions, *baseline]

    @torch.no_grad()
    def measure(self, model: nn.Module) -> dict[str, float]:
        """All metrics of a model; those that no held-out token bears on are left out."""
        if next(model.parameters()).dtype != torch.float32:
            model = copy.deepcopy(model).float()  # as it will be loaded
        was_training = model.training
        model.eval()
        device = next(model.parameters()).device
        totals: dict[str, list[float]] = {name: [0.0, 0.0] for name in self.names}
        for values, present, asked in self._batches:
            moved = {name: v.to(device) for name, v in values.items()}
            self._measure_reconstruction(model, moved, present, asked, totals)
            for name, question in self.questions.items():
                self._measure_question(model, moved, present, name, question, totals)
        model.train(was_training)
        metrics = {name: total / n for name, (total, n) in totals.items() if n > 0}
        # The training loss: every modality counts alike, however many of its tokens are present.
        metrics["loss"] = sum(
            _ratio(
                sum(totals[f"{m.name}/{part}"][0] for part in self._parts),
                sum(totals[f"{m.name}/{part}"][1] for part in self._parts),
            )
            for m in self.modalities
        )
        return metrics

    def _measure_reconstruction(
        self,
        model: nn.Module,
        values: dict[str, Tensor],
        present: np.ndarray,
        asked: Question,
        totals: dict[str, list[float]],
    ) -> None:
        shown = asked.visible & present
        predictions = model(values, torch.from_numpy(shown)).values
        for i, m in enumerate(self.modalities):
            errors = token_errors(m, predictions[m.name], values[m.name])
            for part in self._parts:
                chosen = shown if part == "visible" else ~shown
                _add(totals[f"{m.name}/{part}"], errors, (chosen & asked.wanted)[:, :, i])

    def _measure_question(
        self,
        model: nn.Module,
        values: dict[str, Tensor],
        present: np.ndarray,
        name: str,
        question: Question,
        totals: dict[str, list[float]],
    ) -> None:
        shown = question.visible & present
        # A segment counts where everything that the question gives exists.
        complete = np.all(present | ~question.visible, axis=(1, 2), keepdims=True)
        chosen = question.wanted & present & complete
        if not chosen.any():
            return  # such as a batch of episodes that all lack actions
        predictions = model(values, torch.from_numpy(shown), torch.from_numpy(chosen)).values
        for i, m in enumerate(self.modalities):
            if m.name not in predictions:
                continue
            _add(
                totals[name], token_errors(m, predictions[m.name], values[m.name]), chosen[:, :, i]
            )
            if name == "fd" and m.kind == "continuous":
                copied = values[m.name].roll(1, dims=1)
                _add(
                    totals["fd_copy_last"], token_errors(m, copied, values[m.name]), chosen[:, :, i]
                )


def capabilities_of(config: TrainConfig) -> tuple[str, ...]:
    """What a network with these settings can be asked: a perceptron only what it was trained on."""
    if config.model.network == "mlp" and config.mask in NAMED_MASKS:
        return (config.mask,)
    return VALIDATED


def _possible_questions(
    names: Sequence[str], modalities: Sequence[Modality], segment_length: int
) -> dict[str, Question]:
    """The capabilities of these that these modalities and this length allow."""
    questions = {}
    for name in names:
        try:
            questions[name] = NAMED_MASKS[name].question(modalities, segment_length)
        except ConfigError:
            continue  # such as rcbc without returns: there is nothing to measure
    return questions


def _add(total: list[float], errors: Tensor, chosen: np.ndarray) -> None:
    picked = errors.cpu()[torch.from_numpy(chosen)]
    total[0] += float(picked.double().sum())
    total[1] += picked.numel()


def _ratio(total: float, count: float) -> float:
    return total / count if count else 0.0
