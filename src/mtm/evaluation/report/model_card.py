"""The model card of a run that is shared: what it is, what was measured, and how to load it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mtm.core.errors import ConfigError
from mtm.core.names import TITLES, VALIDATED
from mtm.evaluation.report.tables import TARGETS_NOTE, acting_table, error_table
from mtm.runs.bundle import CONFIG, EVALUATION, checkpoint_in
from mtm.runs.checkpoint import State
from mtm.runs.description import Description, parse_description

LICENCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]*")

USED = """Choose what is visible, and the same weights are another model: `mtm.predict`,
`mtm.forward_dynamics`, `mtm.inverse_dynamics`, `mtm.policies`. Values go in and come out in raw
units. The files are JSON and safetensors: nothing in them is executed. `manifest.json` has the
SHA-256 of each, which loading compares."""

CAVEATS = """- These are figures of one training. The standard deviation is over episodes, not over
  trainings; other seeds give other figures.
- Errors are of held-out episodes of the same data. Nothing is said about states, actions and
  returns that the data do not cover: a predicted action may be far off there.
- Returns were measured in simulation. Nothing was measured on a real machine.
"""


def model_card(
    files: Mapping[str, bytes], title: str, address: str, licence: str | None = None
) -> str:
    """Write the README of a shared run, as Markdown with the head that a hub reads.

    Args:
        files: Of `mtm.runs.bundle.gather`.
        title: What to call the model.
        address: What `mtm.load_run` takes.
        licence: An identifier such as `mit`; None: none is stated.

    Raises:
        ConfigError: The licence is no identifier.
    """
    if licence is not None and not LICENCE.fullmatch(licence):
        raise ConfigError(
            f"--licence must be an identifier such as mit, apache-2.0 or other, got {licence!r}."
        )
    path = Path(address)
    description = parse_description(files[CONFIG], path)
    state = checkpoint_in(files, address).state
    measured = json.loads(files[EVALUATION]) if EVALUATION in files else None
    parts = [
        _head(licence),
        f"# {_text(title)}",
        "A masked trajectory model: one network, trained by filling in hidden parts of logged "
        "trajectories, that answers for whatever is visible.",
        f"## Load it\n\n```python\nimport mtm\n\nrun = mtm.load_run({address!r})\n```\n\n{USED}",
        _modalities(description),
        _data(description.data),
        _settings(description, state),
        _held_out(state),
        _measured(measured),
        f"Read them with care:\n\n{CAVEATS}",
    ]
    return "\n\n".join(part.rstrip("\n") for part in parts if part) + "\n"


def _head(licence: str | None) -> str:
    lines = ["library_name: masked-trajectory-models", "pipeline_tag: reinforcement-learning"]
    tags = ("masked-trajectory-model", "offline-reinforcement-learning", "trajectories")
    lines += ["tags:", *(f"- {tag}" for tag in tags)]
    lines += [] if licence is None else [f"license: {licence.lower()}"]
    return "\n".join(["---", *lines, "---"])


def _modalities(description: Description) -> str:
    rows = [
        (m.name, m.role, str(list(m.shape)), f"{m.classes} classes" if m.classes else "numbers")
        for m in description.modalities
    ]
    steps = description.train.model.segment_length
    return (
        f"## What it knows\n\n{_table(('modality', 'role', 'shape', 'values'), rows)}\n\n"
        f"It sees {steps} steps at once; longer trajectories are asked in windows."
    )


def _data(data: Mapping[str, Any]) -> str:
    metadata = data["metadata"]
    rows = [
        ("data", data["spec"]),
        ("fingerprint", data["fingerprint"]),
        ("episodes, steps", f"{data['episodes']:,}, {data['steps']:,}"),
        ("environment", metadata.get("env_id") or "not named"),
        *metadata.get("notes", {}).items(),
    ]
    return f"## Data\n\n{_table(('what', 'value'), rows)}"


def _settings(description: Description, state: State) -> str:
    train, model = description.train, description.train.model
    rows = [
        ("steps", f"{state.step:,} of {train.batch_size} segments, {state.seconds:,.0f} s"),
        ("mask", train.mask),
        ("network", f"{model.network}, {model.encoder_layers} + {model.decoder_layers} layers"),
        ("width, heads, members", f"{model.width}, {model.heads}, {model.members}"),
        ("optimizer", f"{train.optimizer.name}, learning rate {train.optimizer.learning_rate}"),
        ("returns", f"{train.returns.kind}, discount {train.returns.discount}"),
        ("seed", train.seed),
    ]
    return f"## Settings\n\n{_table(('what', 'value'), rows)}\n\nAll of them are in `config.json`."


def _held_out(state: State) -> str:
    head = "## Measured\n\n"
    rows = [(TITLES[n], f"{state.validation[n]:.4f}") for n in VALIDATED if n in state.validation]
    if not rows:
        return f"{head}Nothing was measured on held-out episodes in training."
    title = "Errors on held-out episodes in training, in units of the data's variance:"
    return f"{head}{title}\n\n{_table(('capability', 'error'), rows)}"


def _measured(result: Mapping[str, Any] | None) -> str:
    """What `mtm eval` found."""
    if result is None:
        return "Nothing more was measured: `mtm eval` was not run on these weights before."
    tables = [t for t in (error_table(result["tasks"]), acting_table(result["tasks"])) if t]
    parts = [f"{t.title.capitalize()}:\n\n{_table(t.head, t.rows)}" for t in tables]
    where = f"`mtm eval`, {result['episodes']} episodes for each policy, seed {result['seed']}"
    named = result["environment"]
    parts.insert(0, f"{where}, {f'in {_text(named)}' if named else 'without an environment'}.")
    return "\n\n".join([*parts, TARGETS_NOTE])


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *([_text(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _text(value: object) -> str:
    """What comes from data as plain text: on one line, and without a meaning in Markdown."""
    line = " ".join(str(value).split())
    return re.sub(r"([\\`*_\[\]<>|#!~$])", r"\\\1", line)
