"""What a run answers about a window, and how far off it is beside what needs no model.

The answer is that of `mtm.predict` for the same values, all modalities wanted; `python_of` gives
the program that says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from mtm.core.errors import MTMError
from mtm.data.modalities import BoolArray, Modality
from mtm.data.neighbours import last_known, nearest, next_known
from mtm.evaluation.studio.episodes import as_json, as_row, values_of, window_slice
from mtm.evaluation.studio.faults import bad_request, impossible
from mtm.evaluation.studio.python_text import python_of
from mtm.evaluation.studio.workspace import Workspace
from mtm.inference.engine import Arrays, ask_with_certainty, dtype_of
from mtm.inference.inputs import Given
from mtm.inference.label_errors import errors
from mtm.inference.windowing import fill, no_certainty
from mtm.models.lines import between_visible
from mtm.runs.run import Run


@dataclass(frozen=True)
class Edit:
    """A visible number, or class, that is replaced: what if it were another?"""

    modality: str
    step: int
    feature: int
    value: float


@dataclass(frozen=True)
class Asked:
    """A question about a window.

    Attributes:
        run: Number of the run.
        data: Number of the data set.
        episode: Number of the episode.
        start: First step of the window.
        length: Steps.
        visible: Modality -> whether each step is shown, (S,); what is not named is hidden.
        edits: Values that are shown instead of the recorded ones.
    """

    run: int
    data: int
    episode: int
    start: int
    length: int
    visible: dict[str, BoolArray]
    edits: tuple[Edit, ...] = ()


@dataclass(frozen=True)
class _Window:
    """Recorded values with the edits, where there are any, and what of them is shown."""

    truth: Arrays
    values: Arrays
    present: dict[str, BoolArray]
    shown: dict[str, BoolArray]


def answer(workspace: Workspace, asked: Asked, check: Callable[[], None]) -> dict[str, Any]:
    """Ask a run.

    Args:
        workspace: Holds run and data.
        asked: The question.
        check: Called before each forward pass; raises where the answer is no longer wanted.
    """
    began = time.perf_counter()
    run = workspace.run(asked.run)
    window = _window(workspace, run, asked)
    predictions, certainty = predict_with_certainty(run, window.values, window.shown, check)
    steps = len(predictions[run.modalities[0].name])
    modalities = {}
    for m in run.modalities:
        shown, here = window.shown[m.name], window.present[m.name]
        guess = predictions[m.name]
        modalities[m.name] = {
            "visible": as_row(shown),
            "present": as_row(here),
            "prediction": as_json(m, guess, np.ones(len(guess), bool)),
            **_certainty_json(m, certainty[m.name], ~shown),
            "error": _errors(run, m, guess, window, shown, here),
        }
    return {
        "run": asked.run,
        "data": asked.data,
        "episode": asked.episode,
        "start": asked.start,
        "length": steps,
        "edited": bool(asked.edits),
        "modalities": modalities,
        "python": python_of(
            run,
            workspace.sources[asked.data],
            replace(asked, length=steps, visible=window.shown),
            workspace.lacking(asked.run, asked.data),
        ),
        "milliseconds": 1e3 * (time.perf_counter() - began),
    }


def predict_with_certainty(
    run: Run, values: Arrays, shown: dict[str, BoolArray], check: Callable[[], None]
) -> tuple[Arrays, Arrays]:
    """As `mtm.predict` of one trajectory with all modalities wanted, and how sure the model is.

    Returns:
        Modality -> (S, *shape); and standard deviations of the same shape, or the probabilities of
        classes, (S, classes), NaN where nothing is said.
    """

    def asking(
        run: Run, window: Arrays, visible: BoolArray, want: Sequence[str], wanted: BoolArray
    ) -> tuple[Arrays, Arrays]:
        check()
        return ask_with_certainty(run, window, visible, want, wanted)

    given = {name: values[name] for name, marks in shown.items() if marks.any()}
    try:
        known = Given.of(run, given, {name: shown[name] for name in given})
    except MTMError as error:
        raise impossible(str(error)) from error
    stated = no_certainty(run, run.modalities.names, (1, known.visible.shape[1]))
    filled = fill(run, known, run.modalities.names, stated=stated, asking=asking)
    return {n: v[0] for n, v in filled.items()}, {n: v[0] for n, v in stated.items()}


def _window(workspace: Workspace, run: Run, asked: Asked) -> _Window:
    """Gather the window and lay the edits over it."""
    seen = workspace.episode(asked.run, asked.data, asked.episode)
    steps = window_slice(int(seen.lengths[0]), asked.start, asked.length)
    S = steps.stop - steps.start
    window = _Window({}, {}, {}, {})
    for m in run.modalities:
        window.truth[m.name], window.present[m.name] = values_of(seen, m, steps)
        window.values[m.name] = window.truth[m.name].copy()
        shown = asked.visible.get(m.name)
        window.shown[m.name] = np.zeros(S, bool) if shown is None else shown[:S].copy()
    edited: dict[tuple[str, int], set[int]] = {}
    for edit in asked.edits:
        _lay(run, window, edit)
        edited.setdefault((edit.modality, edit.step), set()).add(edit.feature)
    for m in run.modalities:
        for step in np.flatnonzero(window.shown[m.name] & ~window.present[m.name]):
            if len(edited.get((m.name, int(step)), ())) < m.size:
                raise bad_request(
                    f"{m.name} is absent at step {asked.start + int(step)} and cannot be shown; "
                    "hide it, or give every number of it."
                )
    if not any(shown.any() for shown in window.shown.values()):
        raise impossible("nothing is visible: show at least one token.")
    return window


def _lay(run: Run, window: _Window, edit: Edit) -> None:
    """Replace one number of a window."""
    m = run.modalities.named(edit.modality)
    S = len(window.shown[m.name])
    if not (0 <= edit.step < S and 0 <= edit.feature < m.size):
        raise bad_request(
            f"an edit names step {edit.step} and feature {edit.feature} of {m.name}; the window "
            f"has {S} steps, {m.name} {m.size} features, counted from 0."
        )
    if not window.shown[m.name][edit.step]:
        raise bad_request(
            f"an edit names {m.name} at step {edit.step}, which is hidden; show it first."
        )
    if m.kind == "discrete" and not (edit.value.is_integer() and 0 <= edit.value < m.classes):
        raise bad_request(f"{m.name} has the classes 0 to {m.classes - 1}, got {edit.value:g}.")
    window.values[m.name].reshape(S, m.size)[edit.step, edit.feature] = edit.value


def _certainty_json(m: Modality, certainty: NDArray[Any], hidden: BoolArray) -> dict[str, Any]:
    """Standard deviations of numbers, probabilities of classes, where the model was asked."""
    flat = certainty.reshape(len(certainty), -1).astype(np.float64)
    said = hidden & np.isfinite(flat).all(axis=1)
    rows = [row if s else None for row, s in zip(flat.tolist(), said, strict=True)]
    if m.kind == "discrete":
        return {"probabilities": rows, "deviation": None}
    return {"deviation": rows if said.any() or not hidden.any() else None}


def _errors(
    run: Run, m: Modality, guess: NDArray[Any], window: _Window, shown: BoolArray, here: BoolArray
) -> dict[str, Any]:
    """The error of what is hidden and recorded, beside copying, interpolation and the mean."""
    measured = here & ~shown
    truth, found = window.truth[m.name], {"tokens": int(measured.sum())}
    guesses: dict[str, NDArray[Any] | None] = dict.fromkeys(("copy", "interpolation", "mean"))
    if not measured.any():
        return {**found, "normalized": None, "raw": None, **guesses}
    guesses |= without_model(run, m, window.values[m.name], shown)
    return {
        **found,
        **_error(run, m, guess[measured], truth[measured]),
        **{
            name: None if other is None else _error(run, m, other[measured], truth[measured])
            for name, other in guesses.items()
        },
    }


def without_model(
    run: Run, m: Modality, values: NDArray[Any], shown: BoolArray
) -> dict[str, NDArray[Any] | None]:
    """What one would say without a model of what is not shown, from the same shown values.

    Returns:
        `copy`: the last shown value, before the first one that; `interpolation`: straight lines, of
        classes the nearest; `mean`: that of the training data. (S, *shape) each, or None.
    """
    found: dict[str, NDArray[Any] | None] = {"copy": None, "interpolation": None, "mean": None}
    if m.kind == "continuous":
        mean = run.normalizer.statistics[m.name].mean
        found["mean"] = np.broadcast_to(mean, values.shape).astype(dtype_of(m))
    if shown.any():
        last, coming = last_known(shown[None])[0], next_known(shown[None])[0]
        found["copy"] = values[np.where(last < 0, coming, last)]
        if m.kind == "continuous":
            line = between_visible(torch.from_numpy(values[None]), torch.from_numpy(shown[None]))
            found["interpolation"] = line.numpy()[0]
        else:
            places = np.where(shown, np.arange(len(shown)), nearest(shown[None])[0])
            found["interpolation"] = values[places]
    return found


def _error(
    run: Run, m: Modality, guess: NDArray[Any], truth: NDArray[Any]
) -> dict[str, float | None]:
    """Means over tokens: squared, in units of the training data's variance and raw."""
    raw = _finite(errors(run, m, guess, truth, raw=True).mean())
    if m.kind == "discrete":
        return {"normalized": None, "raw": raw}
    return {"normalized": _finite(errors(run, m, guess, truth).mean()), "raw": raw}


def _finite(value: float) -> float | None:
    """A number as JSON knows it."""
    return float(value) if np.isfinite(value) else None
