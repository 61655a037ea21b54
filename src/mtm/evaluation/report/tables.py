"""Tables in the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from mtm.control.rollout import EpisodeResults
from mtm.control.scores import score
from mtm.runs import checkpoint
from mtm.runs.run import Run

CAPABILITIES = {
    "fd": "forward dynamics",
    "id": "inverse dynamics",
    "bc": "behaviour cloning",
    "rcbc": "return-conditioned",
}


PLAIN = {"bc": "behaviour cloning", "iql": "IQL", "cql": "CQL", "td3_bc": "TD3+BC"}
"""Policies that act without a target."""

CONDITIONED = {"rcbc": "return-conditioned", "dt": "Decision Transformer"}
"""Policies that ask for a return, at several targets."""


def print_held_out(run: Run, console: Console | None = None) -> None:
    """Print the held-out errors of a run's last checkpoint."""
    console = console or Console(highlight=False)
    state = checkpoint.load(run.path / "checkpoints", optimizer=False).state
    console.print(f"\n{run.path}: step {state.step:,}, {state.seconds:.0f} s of training")
    metrics = state.validation
    if not metrics:
        console.print("nothing was measured on held-out episodes at this step")
        return
    table = Table(title="error on held-out episodes, normalised: 1 is as good as the mean")
    table.box, table.title_justify = SIMPLE_HEAD, "left"
    table.add_column("mask")
    table.add_column("predicted")
    table.add_column("error", justify="right")
    for name, summary in CAPABILITIES.items():
        if name in metrics:
            what = "the next state" if name == "fd" else "the action"
            table.add_row(f"{name} ({summary})", what, f"{metrics[name]:.4f}")
        if name == "fd" and "fd_copy_last" in metrics:
            table.add_row("", "copying the last state instead", f"{metrics['fd_copy_last']:.4f}")
    for m in run.modalities:
        for part in ("hidden", "visible"):
            if f"{m.name}/{part}" in metrics:
                error = f"{metrics[f'{m.name}/{part}']:.4f}"
                table.add_row(run.description.train.mask, f"{part} {m.name}", error)
    console.print(table)


def print_evaluation(result: Mapping[str, Any], console: Console | None = None) -> None:
    """Print what `mtm.evaluation.evaluate.evaluate` measured."""
    console = console or Console(highlight=False)
    tasks = result["tasks"]
    console.print(f"\n{result['run']}: step {result['step']:,}, data {result['data']}")
    if tasks.get("fd") or tasks.get("id"):
        console.print(_offline_table(tasks))
    rolls = rolls_of(tasks)
    if rolls:
        console.print(_acting_table(rolls))
        console.print(TARGETS_NOTE)


def _offline_table(tasks: Mapping[str, Any]) -> Table:
    table = Table(title="prediction error on held-out episodes", box=SIMPLE_HEAD)
    table.title_justify = "left"
    table.add_column("capability")
    for title in ("normalised", "raw units", "copying the last state"):
        table.add_column(title, justify="right")
    for name in ("fd", "id"):
        if tasks.get(name):
            e = tasks[name]
            copy = number(e["copy_last"], ".4f") if "copy_last" in e else ""
            normalized = number(e["normalized"], ".4f")
            table.add_row(CAPABILITIES[name], normalized, f"{e['raw']:.4g}", copy)
    return table


def rolls_of(tasks: Mapping[str, Any]) -> list[tuple[str, str, Mapping[str, Any]]]:
    """(policy, target, roll), in the order to print."""
    rows = [(title, "-", tasks[name]) for name, title in PLAIN.items() if tasks.get(name)]
    for name, title in CONDITIONED.items():
        if found := tasks.get(name):
            rows.append((title, "auto", found["auto"]))
            rows.append((title, "fixed", found["fixed"]))
            rows += [("  sweep", f"fraction {f}", roll) for f, roll in found["sweep"].items()]
            rows.append(("  best of sweep", "seen after", found["best"]))
    if two := tasks.get("two_stage"):
        rows.append(("two-stage", "auto", two["auto"]))
        rows.append(("two-stage", "fixed", two["fixed"]))
    return rows


TARGETS_NOTE = (
    "auto: the 95 % quantile of the data's episode returns; fixed: the best of them; fraction: "
    "between the worst and the best. The best of the sweep was chosen by looking at the "
    "environment."
)


def _acting_table(rows: list[tuple[str, str, Mapping[str, Any]]]) -> Table:
    episodes = rows[0][2]["episodes"]
    title = f"acting: mean and standard deviation over {episodes} episodes"
    table = Table(title=title, box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.title_justify = "left"
    table.add_column("policy", no_wrap=True)
    table.add_column("target", no_wrap=True)
    for title in ("asked", "return", "score", "steps"):
        table.add_column(title, justify="right", no_wrap=True)
    for policy, chosen, roll in rows:
        table.add_row(
            policy,
            chosen,
            number(roll["target"]),
            mean_and_std(roll["return"]),
            mean_and_std(roll["score"], ".1f"),
            number(roll["length"]["mean"]),
        )
    return table


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
    console = console or Console(highlight=False)
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
