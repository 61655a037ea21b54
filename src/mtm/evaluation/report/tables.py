"""Numbers as tables: in the terminal, and for the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from mtm.control.rollout import EpisodeResults
from mtm.control.scores import score
from mtm.core.names import PREDICTION_TASKS, TITLES, VALIDATED
from mtm.core.terminal import PlainConsole
from mtm.data.loading import short
from mtm.runs.run import Run

PLAIN = {
    **{"bc": TITLES["bc"], "bc10": "10 %BC", "iql": "IQL", "cql": "CQL", "td3_bc": "TD3+BC"},
    **{"rebrac": "ReBRAC", "mopo": "MOPO", "tt": "Trajectory Transformer"},
}
"""Policies that act without a target."""

CONDITIONED = {"rcbc": TITLES["rcbc"], "dt": "Decision Transformer"}
"""Policies that ask for a return, at several targets."""


def print_held_out(run: Run, console: Console | None = None) -> None:
    """Print the held-out errors of a run's checkpoint."""
    console = console or PlainConsole()
    state = run.state
    console.print(f"\n{run.path}: step {state.step:,}, {state.seconds:.0f} s of training")
    metrics = state.validation
    if not metrics:
        console.print("nothing was measured on held-out episodes at this step")
        return
    table = Table(title="error on validation episodes, normalised: 1 is as good as the mean")
    table.box, table.title_justify = SIMPLE_HEAD, "left"
    table.add_column("mask")
    table.add_column("predicted")
    table.add_column("error", justify="right")
    for name in VALIDATED:
        if name in metrics:
            what = "the next state" if name == "fd" else "the action"
            table.add_row(f"{name} ({TITLES[name]})", what, f"{metrics[name]:.4f}")
        if name == "fd" and "fd_copy_last" in metrics:
            table.add_row("", "copying the last state instead", f"{metrics['fd_copy_last']:.4f}")
    for m in run.modalities:
        for part in ("hidden", "visible"):
            if f"{m.name}/{part}" in metrics:
                error = f"{metrics[f'{m.name}/{part}']:.4f}"
                table.add_row(run.description.train.mask, f"{part} {m.name}", error)
    console.print(table)


@dataclass(frozen=True)
class NumberTable:
    """What was measured, as text: a title, the names of the columns, and rows of cells."""

    title: str
    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


def print_evaluation(result: Mapping[str, Any], console: Console | None = None) -> None:
    """Print what `mtm.evaluation.evaluate.evaluate` measured."""
    console = console or PlainConsole()
    tasks = result["tasks"]
    console.print(f"\n{result['run']}: step {result['step']:,}, data {short(result['data'])}")
    if errors := error_table(tasks):
        console.print(_in_terminal(errors, labels=1))
    if acting := acting_table(tasks):
        console.print(_in_terminal(acting, labels=2))
        console.print(TARGETS_NOTE)


def error_table(tasks: Mapping[str, Any]) -> NumberTable | None:
    """The errors of prediction, if any were measured."""
    rows = []
    for name in PREDICTION_TASKS:
        if e := tasks.get(name):
            copy = number(e["copy_last"], ".4f") if "copy_last" in e else ""
            normalized = number(e["normalized"], ".4f")
            rows.append((TITLES[name], normalized, f"{e['raw']:.4g}", copy))
    head = ("capability", "normalised", "raw units", "copying the last state")
    return NumberTable("prediction error on test episodes", head, rows) if rows else None


def acting_table(tasks: Mapping[str, Any]) -> NumberTable | None:
    """What every policy earned at every target, if any acted."""
    rolls = rolls_of(tasks)
    if not rolls:
        return None
    rows = [
        (
            policy,
            chosen,
            number(roll["target"]),
            mean_and_std(roll["return"]),
            mean_and_std(roll["score"], ".1f"),
            number(roll["length"]["mean"]),
        )
        for policy, chosen, roll in rolls
    ]
    episodes = rolls[0][2]["episodes"]
    title = f"acting: mean and standard deviation over {episodes} episodes"
    return NumberTable(title, ("policy", "target", "asked", "return", "score", "steps"), rows)


def rolls_of(tasks: Mapping[str, Any]) -> list[tuple[str, str, Mapping[str, Any]]]:
    """(policy, target, roll), in the order to print."""
    rows = [(title, "-", tasks[name]) for name, title in PLAIN.items() if tasks.get(name)]
    for name, title in CONDITIONED.items():
        if found := tasks.get(name):
            rows.append((title, "auto", found["auto"]))
            rows += [("  sweep", f"fraction {f}", roll) for f, roll in found["sweep"].items()]
            rows.append(("  best of sweep", "seen after", found["best"]))
    if two := tasks.get("two_stage"):
        rows.append((TITLES["two_stage"], "auto", two["auto"]))
    if planned := tasks.get("plan"):
        rows.append((TITLES["plan"], "auto", planned))
    return rows


TARGETS_NOTE = (
    "auto: the best of the data's episode returns; fraction: between the worst and the best. The "
    "best of the sweep was chosen by looking at the environment."
)


def number(value: float | None, form: str = ",.0f") -> str:
    """A number, or a dash where there is none."""
    return "-" if value is None else format(value, form)


def mean_and_std(part: Mapping[str, float | None], form: str = ",.0f") -> str:
    """`mean ± std`, or a dash where nothing was measured."""
    if part["mean"] is None or part["std"] is None:
        return "-"
    return f"{part['mean']:{form}} ± {part['std']:{form}}"


def print_episodes(env_id: str, episodes: EpisodeResults, console: Console | None = None) -> None:
    """Print every episode of a policy, and their mean."""
    console = console or PlainConsole()
    scores = score(env_id, episodes.returns)
    table = Table(title=env_id, box=SIMPLE_HEAD, title_justify="left")
    for title in ("seed", "return", "score", "steps", "success"):
        table.add_column(title, justify="right")
    for i, seed in enumerate(episodes.seeds):
        table.add_row(
            str(seed),
            number(float(episodes.returns[i]), ",.1f"),
            number(None if scores is None else float(scores[i]), ".1f"),
            str(episodes.lengths[i]),
            "-" if episodes.successes is None else "yes" if episodes.successes[i] else "no",
        )
    if len(episodes.seeds):
        table.add_section()
        table.add_row(
            "mean",
            number(float(episodes.returns.mean()), ",.1f"),
            number(None if scores is None else float(scores.mean()), ".1f"),
            number(float(episodes.lengths.mean())),
            "-" if episodes.successes is None else f"{episodes.successes.mean():.0%}",
        )
    console.print(table)
    for failure in episodes.failures:
        console.print(f"seed {failure.seed} failed at step {failure.step}: {failure.error}")


def _in_terminal(content: NumberTable, *, labels: int) -> Table:
    """A table for the terminal; the first columns are labels, the others numbers."""
    table = Table(title=content.title, box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.title_justify = "left"
    for i, name in enumerate(content.head):
        table.add_column(name, justify="left" if i < labels else "right", no_wrap=True)
    for row in content.rows:
        table.add_row(*row)
    return table
