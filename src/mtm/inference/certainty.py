"""Answers of a run together with how far off they may be, and what returns can be reached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from mtm.data.modalities import BoolArray, Modality
from mtm.inference.engine import Arrays, batches, dtype_of
from mtm.inference.forward import forward
from mtm.models.heads import Predictions
from mtm.runs.run import Run


@dataclass(frozen=True)
class Answers:
    """What a model says of segments, in raw units: modality -> (B, T, *shape) each.

    Attributes:
        values: Numbers; the likeliest class of a discrete modality.
        deviations: The standard deviation that the model expects of its numbers; nothing if the run
            does not predict variances.
        expectiles: The upper expectile of returns; nothing if the run was trained without
            `model.values`.
    """

    values: Arrays
    deviations: Arrays
    expectiles: Arrays


def ask_how_sure(
    run: Run, window: Arrays, visible: BoolArray, want: Sequence[str], wanted: BoolArray
) -> Answers:
    """As `mtm.inference.engine.ask`, for whole segments, and also how far off the answers may be.

    Args:
        run: A trained run.
        window: Modality -> (B, T, *shape); modalities that are left out must not be visible.
        visible: (B, T, M).
        want: Names.
        wanted: The tokens that matter, (B, T, M).
    """
    asked = [run.modalities.named(name) for name in want]
    shape = visible.shape[:2]
    answers = Answers({m.name: np.zeros((*shape, *m.shape), dtype_of(m)) for m in asked}, {}, {})
    for part in batches(len(visible), run.members):
        mine = {name: values[part] for name, values in window.items()}
        out = forward(run, mine, visible[part], wanted[part])
        with torch.inference_mode():
            for m in asked:
                for kind, numbers in _in_raw_units(run, m, out).items():
                    found = getattr(answers, kind)
                    found.setdefault(m.name, np.zeros((*shape, *m.shape), np.float32))
                    found[m.name][part] = numbers.cpu().numpy()
    return answers


def _in_raw_units(run: Run, m: Modality, out: Predictions) -> dict[str, torch.Tensor]:
    """What is said of a modality: its values, and deviations and expectiles where there are any."""
    if m.name not in out.values:
        return {}  # none of its tokens matters
    if m.kind == "discrete":
        return {"values": out.values[m.name].argmax(dim=-1)}
    found = {"values": run.normalizer.denormalize(m.name, out.values[m.name])}
    if m.name in out.log_variances:
        std = torch.as_tensor(run.normalizer.statistics[m.name].std, device=run.device)
        found["deviations"] = torch.exp(out.log_variances[m.name] / 2) * std
    if m.name in out.expectiles:
        found["expectiles"] = run.normalizer.denormalize(m.name, out.expectiles[m.name])
    return found
