"""One self-contained HTML page of a run, and its pictures as PNG files."""

from __future__ import annotations

import base64
import html
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtm.control.return_targets import discount_of
from mtm.core.atomic_write import write_atomically
from mtm.core.errors import DataError, MTMError, RunError, require
from mtm.evaluation.report.tables import TARGETS_NOTE, mean_and_std, number, rolls_of
from mtm.inference.run_data import held_out_episodes
from mtm.masks.capabilities import NAMED
from mtm.runs import checkpoint
from mtm.runs.run import Run
from mtm.training.trackers import read_metrics

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from mtm.data.trajectories import TrajectoryDataset

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #222; max-width: 60rem; margin: 2rem auto;
       padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2.5rem; }
img { max-width: 100%; } p.what { color: #555; margin: .2rem 0 .6rem; }
table { border-collapse: collapse; } th, td { padding: .25rem .9rem .25rem 0; text-align: right;
       border-bottom: 1px solid #ddd; } th:first-child, td:first-child { text-align: left; }
.big { font-size: 1.1rem; }
"""


@dataclass(frozen=True)
class Section:
    """A heading, a sentence, and a picture or a table."""

    title: str
    text: str
    name: str | None = None
    figure: Figure | None = None
    table: str = ""


def write_report(run: Run, out: Path, say: Callable[[str], None] = print) -> Path:
    """Write `report.html` and its PNGs into a folder, and return the page's path.

    Returns are taken from the run's evaluation.json (`mtm eval`), if it is there.

    Raises:
        MissingExtraError: Matplotlib is not installed.
    """
    require("matplotlib", extra="report")
    out.mkdir(parents=True, exist_ok=True)
    sections = [_training(run, say)]
    try:
        held_out = held_out_episodes(run)
    except DataError as error:
        say(f"no predictions are drawn: {error}")
    else:
        sections += _predictions(run, held_out, say)
    sections += _acting(run, say)
    parts = [_render(section, out) for section in sections]
    page = out / "report.html"
    write_atomically(page, _page(run, "\n".join(parts)).encode())
    return page


def _training(run: Run, say: Callable[[str], None]) -> Section:
    from mtm.evaluation.report import pictures

    state = checkpoint.load(run.path / "checkpoints", optimizer=False).state
    text = f"{state.step:,} steps in {state.seconds:,.0f} s, mask {run.description.train.mask}."
    try:
        rows = read_metrics(run.path / "metrics.csv")
    except (OSError, RunError) as error:
        say(f"no training curves are drawn: {error}")
        return Section("Training", text)
    return Section("Training", text, "training", pictures.training_curves(rows, run.modalities))


def _predictions(
    run: Run, held_out: TrajectoryDataset, say: Callable[[str], None]
) -> list[Section]:
    from mtm.evaluation.report import pictures

    sections = []
    for name, pattern in NAMED.items():
        try:
            figure = pictures.capability(run, held_out, name)
        except MTMError as error:
            say(f"{name} is not drawn: {error}")
            continue
        title, _, what = pattern.summary.partition(": ")
        sections.append(Section(title.capitalize(), what, name, figure))
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
    return [] if figure is None else [Section(title, text, "open-loop", figure)]


def _acting(run: Run, say: Callable[[str], None]) -> list[Section]:
    from mtm.evaluation.report import pictures

    file = run.path / "evaluation.json"
    if not file.exists():
        say(f"no returns are drawn: {file} is not there yet. Run: mtm eval {run.path}")
        return []
    result = json.loads(file.read_text())
    sections = []
    figure = pictures.asked_and_got(result["tasks"], discounted=discount_of(run) < 1)
    if figure is not None:
        text = "The same weights, asked for more and more."
        sections.append(Section("Return against asked-for return", text, "returns", figure))
    elif result["tasks"].get("rcbc"):
        say("return against asked-for return is not drawn: no episode finished.")
    sections.append(Section("Numbers", _caption(result), table=_table(result["tasks"])))
    return sections


def _caption(result: dict[str, Any]) -> str:
    where = f"Measured at step {result['step']:,}, seed {result['seed']}"
    return f"{where}; mean and standard deviation over episodes. {TARGETS_NOTE}"


def _table(tasks: dict[str, Any]) -> str:
    rows = ["<tr><th>policy</th><th>target</th><th>asked</th><th>return</th><th>score</th></tr>"]
    for policy, chosen, roll in rolls_of(tasks):
        cells = (
            policy, chosen, number(roll["target"]), mean_and_std(roll["return"]),
            mean_and_std(roll["score"], ".1f"),
        )  # fmt: skip
        rows.append("<tr>" + "".join(f"<td>{html.escape(c)}</td>" for c in cells) + "</tr>")
    for name, title in (("fd", "forward dynamics"), ("id", "inverse dynamics")):
        if tasks.get(name):
            e = tasks[name]
            copied = f"copying: {number(e['copy_last'], '.4f')}" if "copy_last" in e else ""
            cells = (title, "error, normalised", copied, number(e["normalized"], ".4f"), "")
            rows.append("<tr>" + "".join(f"<td>{html.escape(c)}</td>" for c in cells) + "</tr>")
    return f"<table>{''.join(rows)}</table>"


def _render(section: Section, out: Path) -> str:
    parts = [
        f"<h2>{html.escape(section.title)}</h2>",
        f"<p class=what>{html.escape(section.text)}</p>",
    ]
    if section.figure is not None:
        data = io.BytesIO()
        section.figure.savefig(data, format="png", dpi=110)
        write_atomically(out / f"{section.name}.png", data.getvalue())
        encoded = base64.b64encode(data.getvalue()).decode()
        alt = html.escape(f"{section.title}: {section.text}")
        parts.append(f'<img alt="{alt}" src="data:image/png;base64,{encoded}">')
    return "\n".join([*parts, section.table])


def _page(run: Run, body: str) -> str:
    data = run.description.data
    intro = (
        f"One network, trained by filling in hidden parts of {data['steps']:,} steps of "
        f"{data['spec']}. Everything below uses the same weights; only what is visible differs. "
        "Predictions are on held-out episodes."
    )
    return (
        "<!doctype html><html lang=en><meta charset=utf-8>"
        f"<title>{html.escape(run.path.name)}</title><style>{STYLE}</style>"
        f"<h1>{html.escape(run.path.name)}</h1><p class=big>{html.escape(intro)}</p>{body}</html>"
    )
