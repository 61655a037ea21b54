"""What people look at after training: tables of what was measured."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from mtm import checkpoint
from mtm.run import Run

CAPABILITIES = {
    "fd": "forward dynamics: the next state",
    "id": "inverse dynamics: the action between states",
    "bc": "behaviour cloning: the action now",
    "rcbc": "return-conditioned: the action now",
}


def print_held_out(run: Run, console: Console | None = None) -> None:
    """Print the held-out errors of a run's last checkpoint, beside what guessing would give."""
    console = console or Console(highlight=False)
    state = checkpoint.load(run.path / "checkpoints").state
    console.print(f"\n{run.path}: step {state.step:,}, {state.seconds:.0f} s of training")
    metrics = state.validation
    if not metrics:
        console.print("nothing was measured on held-out episodes at this step")
        return
    table = Table(
        title="held-out error, normalised (1.0: as good as the mean)", title_justify="left"
    )
    table.add_column("question")
    table.add_column("mask")
    table.add_column("error", justify="right")
    table.add_column("copying the last state", justify="right")
    for name, summary in CAPABILITIES.items():
        if name in metrics:
            baseline = f"{metrics['fd_copy_last']:.4f}" if name == "fd" else ""
            table.add_row(summary, name, f"{metrics[name]:.4f}", baseline)
    for m in run.modalities:
        for part in ("hidden", "visible"):
            if f"{m.name}/{part}" in metrics:
                table.add_row(
                    f"reconstruction of {part} {m.name}",
                    run.description.train.mask,
                    f"{metrics[f'{m.name}/{part}']:.4f}",
                    "",
                )
    console.print(table)
