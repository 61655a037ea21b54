"""Forward dynamics many steps ahead: MTM beside MOPO's ensemble and a perceptron."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from mtm.research.baselines import agent_config
from mtm.research.experiments import capabilities, pictures, recipes
from mtm.research.experiments.data import DataFacts, name_of
from mtm.research.experiments.over_seeds import Number, text
from mtm.research.experiments.result_tables import Drawing, Table, data_sets, over_seeds, record
from mtm.research.experiments.runner import Result
from mtm.research.experiments.scales import Scale
from mtm.research.experiments.spec import RunSpec
from mtm.research.experiments.verdicts import Claim, Comparison, claim

TITLE = "Forward dynamics, many steps ahead"

DATA = capabilities.DATA

HORIZON = 50
"""Steps ahead."""

SHOWN = (1, 2, 5, 10, 20, 50)
"""Columns of the table."""

CLAIMED = (1, 10, 50)
"""Steps ahead that are judged."""

METHODS = {"mtm": "MTM", "ensemble": "MOPO's ensemble", "mlp": "MLP"}
COPIED = "copying the last state"


def runs(scale: Scale, data: Sequence[str], seeds: int) -> list[RunSpec]:
    """Of every set and seed, the MTM and the MLP of `capabilities`, and an ensemble."""
    listed = []
    history = scale.train.model.segment_length - 1
    wanted = {"horizon": HORIZON, "history": history}
    for d in data:
        for seed in range(seeds):
            for trained in (recipes.masked(scale, d, seed), recipes.mlp(scale, d, seed, "fd")):
                settings = {"open_loop": wanted, "threads": scale.threads}
                label = f"{trained.label}, {HORIZON} steps ahead"
                listed.append(RunSpec("open-loop", d, seed, settings, label, (trained,)))
            listed.append(_ensemble(scale, d, seed, wanted))
    return listed


def draw(results: Sequence[Result], out: Path) -> Drawing:
    """Errors against steps ahead."""
    sets = data_sets(results)
    rows, records = [], []
    panels: dict[str, dict[str, list[tuple[float, Number]]]] = {}
    for d in sets:
        curves = {title: _curve(results, d, name) for name, title in METHODS.items()}
        curves[COPIED] = _curve(results, d, "mtm", "copied")
        for title, curve in curves.items():
            by_step = dict(enumerate(curve, start=1))
            seeds = str(len(curve[0].values)) if curve else "0"
            rows.append([d.name, title, seeds, *(text(by_step.get(k), ".4f") for k in SHOWN)])
            records += [record(n, data=d.name, method=title, ahead=k) for k, n in by_step.items()]
        panels[d.name] = {
            title: [(float(k), n) for k, n in enumerate(curve, start=1)]
            for title, curve in curves.items()
        }
    columns = ("data", "method", "seeds", *(f"{k} ahead" for k in SHOWN))
    xlabel, ylabel = "steps ahead", "squared error, normalised"
    file = out / "dynamics.png"
    picture = pictures.lines(file, panels, xlabel=xlabel, ylabel=ylabel, log=True, log_y=True)
    notes = (
        "Mean squared errors in units of the training data's variance, on test episodes; 2 is a "
        "prediction that has nothing to do with the state. Recorded actions, predicted states.",
        "All begin at the same places. MTM and the MLP see the last states and actions that fit "
        "into their segment, the ensemble the current state, and predicts by the mean of its "
        "elites.",
        "MTM is the model of all capabilities; the MLP and the ensemble learn forward dynamics "
        "only. The ensemble trains as long as in MOPO at this scale.",
    )
    table = Table("Error", columns, rows)
    return Drawing([table], records, _claims(results, sets), [picture], notes)


def _ensemble(scale: Scale, data: str, seed: int, wanted: dict[str, int]) -> RunSpec:
    mopo = agent_config("mopo", scale.preset)
    settings = {
        "ensemble": {
            "dynamics": asdict(mopo.dynamics),
            "steps": mopo.mopo.dynamics_steps,
            "batch_size": mopo.batch_size,
        },
        "open_loop": wanted,
        "threads": scale.threads,
    }
    label = f"{name_of(data)} · MOPO's ensemble · seed {seed}"
    return RunSpec("ensemble", data, seed, settings, label)


def _of(results: Sequence[Result], data: DataFacts, name: str) -> list[Result]:
    """The measurements of a method on a data set."""
    return [
        r
        for r in results
        if r.data == data and name == (r.spec.needs[0].method if r.spec.needs else r.spec.method)
    ]


def _curve(
    results: Sequence[Result], data: DataFacts, name: str, what: str = "errors"
) -> list[Number]:
    """The errors at 1, 2, ... steps ahead."""
    mine = _of(results, data, name)
    length = max((len(r.value[what]) for r in mine if r.value is not None), default=0)
    found = [over_seeds(mine, lambda value, k=k: value[what][k]) for k in range(length)]  # type: ignore[misc]
    return [number for number in found if number is not None]


def _claims(results: Sequence[Result], sets: Sequence[DataFacts]) -> list[Claim]:
    def pairs(other: str, ahead: int) -> list[Comparison]:
        both = [(_curve(results, d, "mtm"), _curve(results, d, other)) for d in sets]
        return [
            Comparison(d.name, a[ahead - 1], b[ahead - 1], higher_is_better=False)
            for d, (a, b) in zip(sets, both, strict=True)
            if min(len(a), len(b)) >= ahead
        ]

    return [
        claim(f"{ahead} step(s) ahead, MTM predicts as well as {title}", pairs(name, ahead))
        for name, title in METHODS.items()
        if name != "mtm"
        for ahead in CLAIMED
    ]
