"""The one call that everything comes down to: windows in raw units, and tokens asked back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mtm.data.modalities import BoolArray, IntArray, Modality
from mtm.inference.forward import forward
from mtm.masks import NAMED_MASKS
from mtm.models.heads import Predictions
from mtm.models.members import Members
from mtm.runs.run import Run

Arrays: TypeAlias = dict[str, NDArray[Any]]

LARGEST_BATCH = 4096
"""Windows in one forward pass, times members; more are asked in several."""


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
    *,
    specialised: bool = True,
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
        specialised: Whether these masks will be asked again, see `mtm.inference.forward`.

    Returns:
        Each wanted modality, (B, T, *shape); the likeliest class of a discrete one. What stands at
        tokens that do not matter means nothing.
    """
    found = _predictions(
        run, window, visible, want, wanted, specialised=specialised, values_only=True
    )
    return _joined([_raw(run, out, want, size) for out, size in found], visible.shape[1])


def ask_with_certainty(
    run: Run, window: Arrays, visible: BoolArray, want: Sequence[str], wanted: BoolArray
) -> tuple[Arrays, Arrays]:
    """As `ask`, and how sure the model is of each number and each class.

    Returns:
        The answers; and of numbers the standard deviation that the model expects of them, in raw
        units, (B, T, *shape), NaN where it says nothing; of classes their probabilities,
        (B, T, classes).
    """
    answers, certainty = [], []
    for out, size in _predictions(run, window, visible, want, wanted, specialised=False):
        answers.append(_raw(run, out, want, size))
        certainty.append({n: _certainty(run, run.modalities.named(n), out, size) for n in want})
    return _joined(answers, visible.shape[1]), _joined(certainty, visible.shape[1])


def stated_errors(run: Run, name: str, certainty: NDArray[Any]) -> NDArray[Any]:
    """The error that a model expects of each of its answers, (B, T); NaN where it says nothing.

    Of numbers it is the mean of their variances, of which the disagreement of members is a part, in
    units of the training data's variance; of a class, the probability that it is another one.

    Args:
        run: What was asked.
        name: Of a modality.
        certainty: Of `ask_with_certainty`.
    """
    m = run.modalities.named(name)
    if m.kind == "discrete":
        unlikely: NDArray[Any] = 1 - certainty.max(axis=-1)
        return unlikely
    squares = (certainty / run.normalizer.statistics[name].std) ** 2
    mean: NDArray[Any] = squares.reshape(*squares.shape[:2], -1).mean(axis=2)
    return mean


def ask_members(
    run: Run,
    window: Arrays,
    visible: BoolArray,
    want: Sequence[str],
    wanted: BoolArray | None = None,
) -> Arrays:
    """As `ask`, but what each member answers by itself: each wanted modality, (K, B, T, *shape).

    A network that is alone is one member.
    """
    parts: list[list[Arrays]] = [[] for _ in range(run.members)]
    for out, size in _predictions(run, window, visible, want, wanted, each=True, values_only=True):
        each = out.apart(run.members) if isinstance(run.model, Members) else [out]
        for mine, predictions in zip(parts, each, strict=True):
            mine.append(_raw(run, predictions, want, size))
    members = [_joined(mine, visible.shape[1]) for mine in parts]
    return {name: np.stack([answers[name] for answers in members]) for name in want}


def _predictions(
    run: Run,
    window: Arrays,
    visible: BoolArray,
    want: Sequence[str],
    wanted: BoolArray | None,
    *,
    each: bool = False,
    specialised: bool = True,
    values_only: bool = False,
) -> Iterator[tuple[Predictions, tuple[int, int]]]:
    """What the network says of windows, made as long as segments, some at a time, and their (B, T).

    The arguments are those of `ask` and of `forward`.
    """
    if wanted is None:
        wanted = np.zeros_like(visible)
        wanted[:, :, [run.modalities.place(name) for name in want]] = True
    lacking = run.segment_length - visible.shape[1]
    visible, wanted = _lengthen(visible, lacking), _lengthen(wanted, lacking)
    window = {name: _lengthen(values, lacking) for name, values in window.items()}
    for part in batches(len(visible), run.members):
        mine = {name: values[part] for name, values in window.items()}
        predictions = forward(
            run,
            mine,
            visible[part],
            wanted[part],
            each=each,
            specialised=specialised,
            values_only=values_only,
        )
        yield predictions, (len(visible[part]), visible.shape[1])


def _raw(run: Run, out: Predictions, want: Sequence[str], size: tuple[int, int]) -> Arrays:
    """Predictions in raw units, or the likeliest classes; zeros where no token is wanted."""
    arrays: Arrays = {}
    for name in want:
        m = run.modalities.named(name)
        if name not in out.values:
            arrays[name] = np.zeros((*size, *m.shape), dtype_of(m))
        elif m.kind == "discrete":
            arrays[name] = out.values[name].argmax(dim=-1).cpu().numpy()
        else:
            arrays[name] = run.normalizer.denormalize(name, out.values[name]).cpu().numpy()
    return arrays


def _certainty(run: Run, m: Modality, out: Predictions, size: tuple[int, int]) -> NDArray[Any]:
    """Standard deviations in raw units, (B, T, *shape), or probabilities, (B, T, classes)."""
    if m.kind == "discrete":
        if m.name not in out.values:
            return np.full((*size, m.classes), np.nan, np.float32)
        return out.values[m.name].softmax(dim=-1).cpu().numpy()
    if m.name not in out.log_variances:
        return np.full((*size, *m.shape), np.nan, np.float32)
    deviations = (out.log_variances[m.name] / 2).exp().cpu().numpy()
    return np.asarray(deviations * run.normalizer.statistics[m.name].std)


def _joined(parts: Sequence[Arrays], length: int) -> Arrays:
    """All windows, and of each as many steps as were asked about."""
    if len(parts) == 1:
        return {name: values[:, :length] for name, values in parts[0].items()}
    return {name: np.concatenate([part[name] for part in parts])[:, :length] for name in parts[0]}


def dtype_of(m: Modality) -> type[np.generic]:
    """Of the values that a model takes and gives."""
    return np.int64 if m.kind == "discrete" else np.float32


def batches(count: int, members: int) -> list[slice]:
    """Parts of so many windows that fit into one forward pass each, in which all members answer."""
    size = max(LARGEST_BATCH // members, 1)
    return [slice(i, i + size) for i in range(0, count, size)]


def _lengthen(values: NDArray[Any], steps: int) -> NDArray[Any]:
    """More steps of zeros at the end of axis 1; unchanged if there are none to add."""
    if steps <= 0:
        return values
    return np.pad(values, [(0, 0), (0, steps)] + [(0, 0)] * (values.ndim - 2))
