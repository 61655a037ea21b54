"""Held-out curves of the preset `paper` beside those of the original code, on the same data.

    python -m benchmarks.beside_original --reference PATH --data FILE

Both are trained for the same steps, with the preset's share of warm-up, on the same episodes and
segments, and measured on the same held-out ones; seeds differ in the split, the weights and the
masks. At the preset's size a step takes seconds on two cores: hours for each seed. A smaller
`--width` and `--batch-size` show the same sooner.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from mtm.core.config import TrainConfig, preset
from mtm.research.experiments.provenance import here
from mtm.training.trackers import read_metrics
from mtm.training.train import train

SHOWN = {
    "loss": "held-out loss",
    "fd": "forward dynamics",
    "id": "inverse dynamics",
    "rcbc": "return-conditioned",
}
"""Metric -> title."""
OURS, ITS = "this library, preset paper", "the original code"
COLORS = {OURS: "#d9480f", ITS: "#1c7ed6"}

Curve = list[dict[str, float]]


def main() -> None:
    """Train both with every seed, print where they end, and draw the curves."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--reference", type=Path, required=True, help="a checkout of the original")
    parser.add_argument("--data", required=True)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--every", type=int, default=100, help="steps between measurements")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--width", type=int, default=preset("paper").model.width)
    parser.add_argument("--batch-size", type=int, default=preset("paper").batch_size)
    parser.add_argument("--out", type=Path, default=Path("runs/beside-original"))
    arguments = parser.parse_args()
    console = Console(highlight=False)
    curves: dict[str, dict[int, Curve]] = {OURS: {}, ITS: {}}
    for seed in arguments.seeds:
        config = settings(arguments, seed)
        console.print(f"seed {seed}: {OURS} ...")
        curves[OURS][seed] = _ours(arguments.data, config, arguments.out / f"ours-{seed}")
        console.print(f"seed {seed}: {ITS} ...")
        curves[ITS][seed] = _its(arguments.reference, arguments.data, config)
        result = {"curves": curves, "settings": config.to_json(), "about": here()}
        (arguments.out / "beside_original.json").write_text(json.dumps(result, indent=2))
    console.print(_table(curves))
    _picture(curves).savefig(arguments.out / "beside_original.png", dpi=110)
    console.print(str(arguments.out))


def settings(arguments: argparse.Namespace, seed: int) -> TrainConfig:
    """The preset, with the share of its warm-up in fewer steps."""
    paper = preset("paper")
    warmup = round(arguments.steps * paper.optimizer.warmup_steps / paper.steps)
    return replace(
        paper,
        steps=arguments.steps,
        batch_size=arguments.batch_size,
        seed=seed,
        validate_every=arguments.every,
        checkpoint_every=arguments.steps,
        log_every=arguments.every,
        model=replace(paper.model, width=arguments.width),
        optimizer=replace(paper.optimizer, warmup_steps=warmup),
    )


def _ours(data: str, config: TrainConfig, folder: Path) -> Curve:
    train(data, config, folder, overwrite=True)
    rows = [row for row in read_metrics(folder / "metrics.csv") if "val/loss" in row]
    return [{"step": row["step"], **{n: row[f"val/{n}"] for n in SHOWN}} for row in rows]


def _its(path: Path, data: str, config: TrainConfig) -> Curve:
    program = [sys.executable, "-m", "benchmarks.original_training", str(path), "--data", data]
    plain = json.dumps(config.to_json())
    done = subprocess.run(
        [*program, "--settings", plain], stdout=subprocess.PIPE, text=True, check=True
    )
    rows: Curve = json.loads(done.stdout.splitlines()[-1])
    return [{name: row[name] for name in ("step", *SHOWN)} for row in rows]


def _table(curves: Mapping[str, Mapping[int, Curve]]) -> Table:
    table = Table("held-out error at the end", *curves, box=SIMPLE_HEAD)
    for metric, title in SHOWN.items():
        cells = []
        for by_seed in curves.values():
            ends = [curve[-1][metric] for curve in by_seed.values()]
            cells.append(f"{np.mean(ends):.4f} ({' / '.join(f'{e:.4f}' for e in ends)})")
        table.add_row(title, *cells)
    return table


def _picture(curves: Mapping[str, Mapping[int, Curve]]) -> Figure:
    figure = Figure(figsize=(3.6 * len(SHOWN), 3.2), layout="constrained")
    panels: Sequence[object] = figure.subplots(1, len(SHOWN))
    for axes, (metric, title) in zip(panels, SHOWN.items(), strict=True):
        for whose, by_seed in curves.items():
            for i, curve in enumerate(by_seed.values()):
                steps, errors = zip(*((r["step"], r[metric]) for r in curve), strict=True)
                axes.plot(  # type: ignore[attr-defined]
                    steps, errors, color=COLORS[whose], alpha=0.7, label="" if i else whose
                )
        axes.set_title(title)  # type: ignore[attr-defined]
        axes.set_xlabel("steps")  # type: ignore[attr-defined]
        axes.set_yscale("log")  # type: ignore[attr-defined]
    panels[0].legend(fontsize=8, frameon=False)  # type: ignore[attr-defined]
    return figure


if __name__ == "__main__":
    main()
