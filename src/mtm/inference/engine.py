"""The one call that everything comes down to: windows in raw units, and tokens asked back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from mtm.data.modalities import BoolArray, IntArray, Modality
from mtm.masks import NAMED_MASKS
from mtm.runs.run import Run

Arrays: TypeAlias = dict[str, NDArray[Any]]

LARGEST_BATCH = 4096
"""Windows in one forward pass; more are asked in several."""


def ask_capability(
    run: Run,
    capability: str,
    window: Arrays,
    known: BoolArray,
    now: IntArray,
    wanted: BoolArray | None = None,
) -> Arrays:
    """Ask what a capability wants, showing what its mask allows of what is known.

    Args:
        run: A trained run.
        capability: A name of `mtm.masks.NAMED_MASKS`.
        window: Modality -> (B, S, *shape), S at most the model's segment length.
        known: Which tokens of the window exist, (B, S, M).
        now: The moment of each sample, (B,).
        wanted: The tokens that matter, (B, S, M), if they are fewer than the mask wants.

    Returns:
        As `ask`, for a whole segment: each modality that is wanted, (B, T, *shape).

    Raises:
        ConfigError: The run has no modality that the capability needs, or its segments are too
            short.
    """
    lacking = run.segment_length - known.shape[1]
    window = {name: _lengthen(values, lacking) for name, values in window.items()}
    question = NAMED_MASKS[capability].questions(run.modalities, run.segment_length, now)
    asked = question.wanted if wanted is None else question.wanted & _lengthen(wanted, lacking)
    want = [m.name for i, m in enumerate(run.modalities) if asked[:, :, i].any()]
    return ask(run, window, question.visible & _lengthen(known, lacking), want, asked)


def ask(
    run: Run,
    window: Arrays,
    visible: BoolArray,
    want: Sequence[str],
    wanted: BoolArray | None = None,
) -> Arrays:
    """One window per sample, in raw units.

    A window shorter than a segment is answered as one whose later steps are hidden, because whole
    segments are what the model was trained on.

    Args:
        run: A trained run.
        window: Modality -> (B, T, *shape); modalities that are left out must not be visible.
        visible: (B, T, M).
        want: Names.
        wanted: The tokens that matter, (B, T, M); all of the wanted modalities if None.

    Returns:
        Each wanted modality, (B, T, *shape); the likeliest class of a discrete one. What stands at
        tokens that do not matter means nothing.
    """
    T = visible.shape[1]
    if wanted is None:
        wanted = np.zeros_like(visible)
        wanted[:, :, [run.modalities.place(name) for name in want]] = True
    lacking = run.segment_length - T
    visible, wanted = _lengthen(visible, lacking), _lengthen(wanted, lacking)
    window = {name: _lengthen(values, lacking) for name, values in window.items()}
    answers: dict[str, list[NDArray[Any]]] = {name: [] for name in want}
    for part in batches(len(visible)):
        inputs = tensors(run, {n: v[part] for n, v in window.items()}, visible[part])
        shown, asked = torch.from_numpy(visible[part]), torch.from_numpy(wanted[part])
        with torch.inference_mode():
            out = run.model(inputs, shown, asked).values
        for name in want:
            m = run.modalities.named(name)
            if name not in out:  # none of its tokens matters in this part
                shape = (*visible[part].shape[:2], *m.shape)
                answers[name].append(np.zeros(shape, dtype_of(m)))
            elif m.kind == "discrete":
                answers[name].append(out[name].argmax(dim=-1).cpu().numpy())
            else:
                answers[name].append(run.normalizer.denormalize(name, out[name]).cpu().numpy())
    return {name: np.concatenate(parts)[:, :T] for name, parts in answers.items()}


def dtype_of(m: Modality) -> type[np.generic]:
    """Of the values that a model takes and gives."""
    return np.int64 if m.kind == "discrete" else np.float32


def tensors(run: Run, window: Arrays, visible: BoolArray) -> dict[str, torch.Tensor]:
    """Normalised tensors of every modality; zeros for those that are not in the window."""
    B, T = visible.shape[:2]
    inputs = {}
    for m in run.modalities:
        if m.name in window:
            raw = torch.from_numpy(np.ascontiguousarray(window[m.name])).to(run.device)
            inputs[m.name] = run.normalizer.normalize(m.name, raw)
        else:
            kind = torch.int64 if m.kind == "discrete" else torch.float32
            inputs[m.name] = torch.zeros(B, T, *m.shape, dtype=kind, device=run.device)
    return inputs


def batches(count: int) -> list[slice]:
    """Parts of so many windows that fit into one forward pass each."""
    return [slice(i, i + LARGEST_BATCH) for i in range(0, count, LARGEST_BATCH)]


def _lengthen(values: NDArray[Any], steps: int) -> NDArray[Any]:
    """More steps of zeros at the end of axis 1; unchanged if there are none to add."""
    if steps <= 0:
        return values
    return np.pad(values, [(0, 0), (0, steps)] + [(0, 0)] * (values.ndim - 2))
