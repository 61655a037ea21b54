"""One self-contained HTML page of a diagnosis: faults, the ranking, pictures of the worst steps."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mtm.core.atomic_write import write_atomically
from mtm.core.errors import require
from mtm.data.faults import LEAVE_OUT
from mtm.evaluation.doctor.examine import Diagnosis, EpisodeScore
from mtm.evaluation.doctor.quick_model import Answered
from mtm.evaluation.report.page import Section, html_of, png_of
from mtm.evaluation.report.tables import NumberTable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TEMPLATE = "doctor.html.j2"
MOST_DRAWN = 8
"""Episodes with a picture: the most suspicious ones."""
MOST_ROWS = 200
"""Of a table; the JSON file has all."""
AROUND = 40
"""Steps before and after the worst one."""
MOST_LEVEL = 6.0
"""The darkest colour: the logarithm of a surprise of some 400."""


def write_page(diagnosis: Diagnosis, file: Path, title: str) -> None:
    """Write the page.

    Args:
        diagnosis: Of `mtm.doctor`.
        file: The page.
        title: What the data are called.

    Raises:
        MissingExtraError: Matplotlib or Jinja is not installed.
        RunError: It could not be written.
    """
    for library in ("matplotlib", "jinja2"):
        require(library, extra="report")
    sections = [_faults(diagnosis), _ranking(diagnosis)]
    sections += [_episode(diagnosis, episode) for episode in diagnosis.episodes[:MOST_DRAWN]]
    pictures = {s.name: png_of(s.figure) for s in sections if s.figure is not None}
    page = html_of(
        TEMPLATE,
        sections,
        pictures,
        title=title,
        episodes=len(diagnosis.episodes),
        faults=len(diagnosis.faults),
        suspects=len(diagnosis.suspects),
        limit=f"{LEAVE_OUT:g}",
    )
    write_atomically(file, page.encode())


def _faults(diagnosis: Diagnosis) -> Section:
    rows = tuple(
        (fault.check, fault.place or "everywhere", f"{fault.what} {fault.cure}")
        for fault in diagnosis.faults[:MOST_ROWS]
    )
    text = "What is wrong by itself, and what to do about it." if rows else "None was found."
    tables = (NumberTable("faults, the heaviest first", ("check", "place", "what"), rows),)
    return Section("faults", "Faults", text, tables=tables if rows else ())


def _ranking(diagnosis: Diagnosis) -> Section:
    rows = tuple(
        (str(e.episode), f"{e.score:.1f}", "; ".join(e.reasons[:2]))
        for e in diagnosis.episodes[:MOST_ROWS]
    )
    table = NumberTable("the most suspicious first", ("episode", "score", "reasons"), rows)
    return Section("episodes", "Episodes", "From the most suspicious one on.", tables=(table,))


def _episode(diagnosis: Diagnosis, episode: EpisodeScore) -> Section:
    text = "; ".join(episode.reasons) or "Nothing stands out."
    title = f"Episode {episode.episode}, score {episode.score:.1f}"
    return Section(f"episode-{episode.episode}", title, text, _picture(diagnosis, episode.episode))


def _picture(diagnosis: Diagnosis, episode: int) -> Figure | None:
    """The worst column around its worst step, and how surprising all columns are all along."""
    from matplotlib.figure import Figure

    assert diagnosis.dataset is not None
    column, step = _worst(diagnosis, episode)
    if column is None:
        return None
    answers = []
    if diagnosis.model is not None and diagnosis.dataset.lengths[episode] > 1:
        answers = next(diagnosis.model.answers(np.array([episode])))
    figure = Figure(figsize=(9, 2.4 + 1.6 * len(answers)), layout="constrained")
    axes = np.atleast_1d(figure.subplots(1 + len(answers), 1, squeeze=True))
    _recorded(axes[0], diagnosis, episode, column, step)
    for place, answered in zip(axes[1:], answers, strict=True):
        _heat(place, answered)
    return figure


def _worst(diagnosis: Diagnosis, episode: int) -> tuple[tuple[str, int] | None, int]:
    """Modality and feature of the heaviest evidence, and its step."""
    dataset = diagnosis.dataset
    assert dataset is not None
    numbers = {m.name for m in dataset.modalities if m.kind == "continuous"}
    found: list[tuple[float, str, int, int]] = [
        (f.weight, f.modality, f.feature or 0, f.step or 0)
        for f in diagnosis.faults
        if f.episode == episode and f.modality in numbers
    ]
    for channel in diagnosis.channels:
        name, _, number = channel.subject.rstrip("]").partition("[")
        if name in numbers:
            place = (name, int(number or 0), int(channel.step[episode]))
            found.append((float(channel.standing[episode]), *place))
    if not found:
        first = next((m.name for m in dataset.modalities if m.name in numbers), None)
        return (None if first is None else (first, 0)), 0
    _, name, feature, step = max(found)
    return (name, feature), step


def _recorded(
    axes: Axes, diagnosis: Diagnosis, episode: int, column: tuple[str, int], step: int
) -> None:
    assert diagnosis.dataset is not None
    name, feature = column
    values = np.asarray(diagnosis.dataset.episode(episode)[name], np.float64)
    values = values.reshape(len(values), -1)[:, feature]
    begin, end = max(step - AROUND, 0), min(step + AROUND + 1, len(values))
    axes.plot(np.arange(begin, end), values[begin:end], color="#333333", lw=1.2, marker=".", ms=3)
    axes.axvline(step, color="#d9480f", lw=1)
    axes.set_title(f"{name}[{feature}] as recorded, around step {step}", fontsize=9)
    _clean(axes)


def _heat(axes: Axes, answered: Answered) -> None:
    """Surprise of each column at each step: white is usual, dark is not."""
    levels = np.log1p(answered.squares).T  # (K, S)
    axes.imshow(levels, aspect="auto", cmap="Oranges", vmin=0, vmax=MOST_LEVEL, origin="lower")
    names = dict.fromkeys(column.modality for column in answered.columns)
    axes.set_title(f"{answered.question}: surprise of {', '.join(names)}", fontsize=9)
    axes.set_ylabel("feature", fontsize=8)
    axes.locator_params(axis="y", integer=True)
    axes.set_xlabel("step of the episode", fontsize=8)
    _clean(axes)


def _clean(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
