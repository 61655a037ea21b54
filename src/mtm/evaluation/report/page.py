"""One self-contained HTML page of a run, and its pictures as PNG files."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtm.control.return_targets import discount_of
from mtm.core.atomic_write import write_atomically, writing_to
from mtm.core.errors import DataError, MTMError, RunError, require
from mtm.core.locks import held
from mtm.core.plain_data import expecting, parse_object
from mtm.data.loading import DataSpec, short
from mtm.evaluation.report.tables import TARGETS_NOTE, NumberTable, acting_table, error_table
from mtm.inference.run_data import reported_episodes
from mtm.masks.capabilities import NAMED_MASKS
from mtm.runs.run import Run
from mtm.runs.shared import read_evaluation
from mtm.training.trackers import read_metrics

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from mtm.data.trajectories import TrajectoryDataset

TEMPLATE = "page.html.j2"


@dataclass(frozen=True)
class Section:
    """A part of the page.

    Attributes:
        name: Its address in the page, and the name of its PNG file.
        title: The heading.
        text: What is seen.
        figure: A picture.
        tables: Numbers.
    """

    name: str
    title: str
    text: str
    figure: Figure | None = None
    tables: tuple[NumberTable, ...] = ()


def write_report(
    run: Run,
    out: str | Path,
    say: Callable[[str], None] = print,
    *,
    data: DataSpec | None = None,
) -> Path:
    """Write `report.html` and its PNGs into a folder, and return the page's path.

    Returns are taken from the run's evaluation.json (`mtm eval`), if it is there.

    Args:
        run: A trained run.
        out: The folder.
        say: Takes notices of what is left out.
        data: What predictions are drawn of, as for `reported_episodes`.

    Raises:
        MissingExtraError: Matplotlib or Jinja is not installed.
    """
    for library in ("matplotlib", "jinja2"):
        require(library, extra="report")
    out = Path(out)
    with held(out, "writing a report"), writing_to(out):
        return _write(run, out, say, data)


def png_of(figure: Figure) -> bytes:
    """A picture as a PNG file."""
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=110)
    return data.getvalue()


def html_of(
    template: str, sections: Sequence[Section], pictures: Mapping[str, bytes], **words: object
) -> str:
    """A page; whatever comes from data, a path or an environment is escaped.

    Args:
        template: A file of this package that extends `base.html.j2`.
        sections: Its parts.
        pictures: PNG files by the names of sections.
        **words: What the template asks for besides.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    templates = Environment(
        loader=PackageLoader("mtm.evaluation.report", package_path=""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    return templates.get_template(template).render(
        sections=sections,
        pictures={name: base64.b64encode(png).decode() for name, png in pictures.items()},
        **words,
    )


def _write(run: Run, out: Path, say: Callable[[str], None], data: DataSpec | None) -> Path:
    """Draw and write all of it."""
    sections = [_training(run, say)]
    try:
        held_out = reported_episodes(run, data, say)
    except DataError as error:
        say(f"no predictions are drawn: {error}")
    else:
        sections += _predictions(run, held_out, say)
    sections += _acting(run, say)
    pictures = {s.name: png_of(s.figure) for s in sections if s.figure is not None}
    for name, png in pictures.items():
        write_atomically(out / f"{name}.png", png)
    page = out / "report.html"
    write_atomically(page, _html(run, sections, pictures).encode())
    return page


def _training(run: Run, say: Callable[[str], None]) -> Section:
    from mtm.evaluation.report import pictures

    state = run.state
    text = f"{state.step:,} steps in {state.seconds:,.0f} s, mask {run.description.train.mask}."
    try:
        rows = read_metrics(run.path / "metrics.csv")
    except (OSError, RunError) as error:
        say(f"no training curves are drawn: {error}")
        return Section("training", "Training", text)
    return Section("training", "Training", text, pictures.training_curves(rows, run.modalities))


def _predictions(
    run: Run, held_out: TrajectoryDataset, say: Callable[[str], None]
) -> list[Section]:
    from mtm.evaluation.report import pictures

    sections = []
    for name, pattern in NAMED_MASKS.items():
        try:
            figure = pictures.capability(run, held_out, name)
        except MTMError as error:
            say(f"{name} is not drawn: {error}")
            continue
        title, _, what = pattern.summary.partition(": ")
        sections.append(Section(name, title.capitalize(), what.replace("->", "→"), figure))
    roles = {m.role for m in run.modalities}
    if {"state", "action"} <= roles and run.model.config.segment_length > 1:
        sections += _open_loop(run, held_out, say)
    return sections


def _open_loop(run: Run, held_out: TrajectoryDataset, say: Callable[[str], None]) -> list[Section]:
    from mtm.evaluation.report import pictures

    try:
        figure = pictures.open_loop(run, held_out)
    except MTMError as error:
        say(f"open-loop forward dynamics is not drawn: {error}")
        return []
    text = "Each predicted state becomes the history of the next; only actions are given."
    title = "Open-loop forward dynamics"
    return [] if figure is None else [Section("open-loop", title, text, figure)]


def _acting(run: Run, say: Callable[[str], None]) -> list[Section]:
    measured, file = read_evaluation(run.path), run.path / "evaluation.json"
    if measured is None:
        say(f"no returns are drawn: {file} is not there yet. Run: mtm eval {run.path}")
        return []
    with expecting(file, RunError, f"Run again: mtm eval {run.path}"):
        return _numbers(run, parse_object(measured), say)


def _numbers(run: Run, result: dict[str, Any], say: Callable[[str], None]) -> list[Section]:
    """What `mtm eval` measured."""
    from mtm.evaluation.report import pictures

    sections = []
    figure = pictures.asked_and_got(result["tasks"], discounted=discount_of(run) < 1)
    if figure is not None:
        text = "The same weights, asked for more and more."
        sections.append(Section("returns", "Return against asked-for return", text, figure))
    elif result["tasks"].get("rcbc"):
        say("return against asked-for return is not drawn: no episode finished.")
    tables = tuple(t for t in (error_table(result["tasks"]), acting_table(result["tasks"])) if t)
    if tables:
        text = f"Measured at step {result['step']:,}, seed {result['seed']}. {TARGETS_NOTE}"
        sections.append(Section("numbers", "Numbers", text, tables=tables))
    return sections


def _html(run: Run, sections: list[Section], pictures: dict[str, bytes]) -> str:
    data = run.description.data
    return html_of(
        TEMPLATE,
        sections,
        pictures,
        title=run.path.name,
        steps=data["steps"],
        source=short(data["spec"]),
    )
