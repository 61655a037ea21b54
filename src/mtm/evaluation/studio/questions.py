"""Masks for a window: a capability at a moment, or a draw of what the run was trained with."""

from __future__ import annotations

from typing import Any

import numpy as np

from mtm.core.config import CUSTOM_MASK
from mtm.core.errors import ConfigError
from mtm.core.names import TITLES
from mtm.data.modalities import BoolArray
from mtm.evaluation.studio.episodes import as_row, values_of, window_slice
from mtm.evaluation.studio.faults import bad_request, impossible
from mtm.evaluation.studio.workspace import Workspace
from mtm.masks.capabilities import NAMED_MASKS, Question
from mtm.masks.make import RANDOM_SUMMARIES, training_mask
from mtm.masks.training_masks import draw_questions
from mtm.runs.run import Run

TRAINING = "training"
"""What a request calls the mask that the run was trained with."""

MORE_TITLES = {
    "bc-now": "cloning, now only",
    "rcbc-now": "return-conditioned, now only",
    "bd": "backward dynamics",
    "goal": "reaching a goal",
    "waypoints": "waypoints",
    "past": "past inference",
    "plan": "planning, first stage",
}


def named_masks(run: Run) -> list[dict[str, Any]]:
    """The capabilities, what each is for, and why the run cannot be asked some of them."""
    return [{"name": name, **_text(name), "problem": _problem(run, name)} for name in NAMED_MASKS]


def training_masks(run: Run) -> dict[str, Any]:
    """What the run was trained with."""
    name = run.description.train.mask
    own = "a function of the user's own, which the run does not hold"
    return {
        "name": name,
        "summary": RANDOM_SUMMARIES.get(name) or (own if name == CUSTOM_MASK else f"a mix: {name}"),
        "problem": f"The mask is {own}." if name == CUSTOM_MASK else None,
    }


def window_mask(
    workspace: Workspace,
    run: int,
    data: int,
    episode: int,
    start: int,
    length: int,
    mask: str,
    now: int | None,
    seed: int,
) -> dict[str, Any]:
    """What a mask shows of a window and asks for.

    A capability is asked of the whole window, however long. Of the training mask, one draw is laid
    over each segment of the window.
    """
    model, seen = workspace.run(run), workspace.episode(run, data, episode)
    steps = window_slice(int(seen.lengths[0]), start, length)
    present = np.stack([values_of(seen, m, steps)[1] for m in model.modalities], axis=1)
    S, T = len(present), model.segment_length
    moments: list[int | None] = [None, None]
    note = None
    if mask == TRAINING:
        question = _draw(model, present, seed)
        text = {"title": "training mask", "summary": training_masks(model)["summary"]}
        if S > T:
            note = f"The model sees {T} steps at once: each {T} steps have a draw of their own."
    else:
        question, now, moments = _ask(model, mask, S, now)
        text = _text(mask)
        if S > T:
            note = (
                f"The model sees {T} steps at once. Each hidden value is asked where most around "
                "it is seen, and answers become part of what is seen, as mtm.predict does."
            )
    names = model.modalities.names
    shown, wanted = question.visible & present, question.wanted & ~question.visible
    return {
        "mask": mask,
        "length": S,
        **text,
        "now": now,
        "moments": moments,
        "visible": {name: as_row(shown[:, i]) for i, name in enumerate(names)},
        "wanted": {name: as_row(wanted[:, i]) for i, name in enumerate(names)},
        "note": note,
    }


def _ask(
    run: Run, name: str, length: int, now: int | None
) -> tuple[Question, int | None, list[int | None]]:
    """The question of a capability, its moment, and the first and last of all moments."""
    if name not in NAMED_MASKS:
        raise bad_request(
            f"there is no such mask; allowed are {TRAINING}, {', '.join(NAMED_MASKS)}."
        )
    if (problem := _problem(run, name)) is not None:
        raise impossible(problem)
    capability = NAMED_MASKS[name]
    moments = capability.moments(length)
    now = capability.usual(length) if now is None else min(now, max(len(moments) - 1, 0))
    try:
        question = capability.question(run.modalities, length, now)
    except ConfigError as error:
        raise impossible(str(error)) from error
    return question, now, [moments[0], moments[-1]]


def _draw(run: Run, present: BoolArray, seed: int) -> Question:
    """A draw for each segment of the window, (S, M)."""
    if (problem := training_masks(run)["problem"]) is not None:
        raise impossible(problem)
    S, T = len(present), run.segment_length
    count = -(-S // T)
    padded = np.zeros((count * T, present.shape[1]), bool)
    padded[:S] = present
    segments = padded.reshape(count, T, -1)
    rng = np.random.default_rng(seed)
    drawn = draw_questions(training_mask(run.description.train), run.modalities, segments, rng)
    visible, wanted = (q.reshape(count * T, -1)[:S] for q in (drawn.visible, drawn.wanted))
    return Question(visible, wanted)


def _problem(run: Run, name: str) -> str | None:
    """Why a run cannot be asked a capability."""
    config = run.description.train
    if config.model.network == "mlp" and config.mask in NAMED_MASKS and config.mask != name:
        return f"The run is a perceptron trained for {config.mask} alone."
    roles = {m.role for m in run.modalities}
    missing = [role for role in NAMED_MASKS[name].roles if role not in roles]
    if missing:
        return f"The run has no modality of role {' and '.join(missing)}."
    return None


def _text(name: str) -> dict[str, str]:
    """Title and purpose."""
    title = TITLES[name] if name in TITLES and name != "plan" else MORE_TITLES[name]
    return {"title": title, "summary": NAMED_MASKS[name].summary.partition(": ")[2]}
