"""The Python that gives the same answer as the page."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np

from mtm.core.reading import AS_IT_IS
from mtm.runs.run import Run

if TYPE_CHECKING:
    from mtm.evaluation.studio.answers import Asked
    from mtm.evaluation.studio.workspace import Source

PROGRAM = """\
import mtm
import numpy as np
from mtm.inference.run_data import episode_shown_to

run = mtm.load_run({run!r})
data = mtm.load_dataset({spec!r}{reading})
episode = episode_shown_to(run, data, {episode}).episode(0)  # as the run sees it

shown = {{  # 1: visible
{rows}
}}
given = {{name: episode[name][{start}:{stop}] for name in shown if name in episode}}
{edits}present = {{name: np.array([mark == "1" for mark in row]) for name, row in shown.items()}}
answer = mtm.predict(run, given, {names!r}, present=present)
"""


def python_of(run: Run, source: Source, asked: Asked, lacking: Collection[str]) -> str:
    """A program whose `answer` is what the page shows as prediction.

    Args:
        run: It was asked.
        source: Its data.
        asked: The question.
        lacking: Modalities that the data do not have at all: what is shown of them is made up.
    """
    shown = {name: marks for name, marks in asked.visible.items() if marks.any()}
    rows = [f"    {name!r}: {''.join('01'[int(m)] for m in row)!r}," for name, row in shown.items()]
    edits = [
        f"given[{name!r}] = np.full({(asked.length, *run.modalities.named(name).shape)}, np.nan)\n"
        for name in shown
        if name in lacking
    ]
    for edit in asked.edits:
        m = run.modalities.named(edit.modality)
        place = [
            str(edit.step),
            *map(str, np.unravel_index(edit.feature, m.shape) if m.shape else ()),
        ]
        value = int(edit.value) if m.kind == "discrete" else edit.value
        edits.append(f"given[{m.name!r}][{', '.join(place)}] = {value!r}  # what if\n")
    reading = "" if source.reading == AS_IT_IS else f", mtm.{source.reading!r}"
    return PROGRAM.format(
        run=str(run.path.resolve()),
        spec=source.spec,
        reading=reading,
        episode=asked.episode,
        rows="\n".join(rows),
        start=asked.start,
        stop=asked.start + asked.length,
        edits="".join(edits),
        names=list(run.modalities.names),
    )
