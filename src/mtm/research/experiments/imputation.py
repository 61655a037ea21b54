"""Filling gaps: one model for every pattern, beside specialists of the same training time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mtm.core.config import TrainConfig
from mtm.research.experiments import pictures
from mtm.research.experiments.data import DataFacts, name_of
from mtm.research.experiments.over_seeds import Number, text
from mtm.research.experiments.result_tables import Drawing, Table, data_sets, over_seeds, record
from mtm.research.experiments.runner import Result
from mtm.research.experiments.scales import Scale
from mtm.research.experiments.spec import RunSpec
from mtm.research.experiments.verdicts import Claim, Comparison, claim
from mtm.research.imputation import gaps
from mtm.research.imputation.names import SPECIALISTS

TITLE = "Filling gaps, beside specialists"

DATA = {
    "smoke": ("builtin:stations",),
    "cpu": ("builtin:stations", "builtin:hopper"),
    "paper": ("builtin:stations", "builtin:hopper"),
}

TITLES = {
    "mtm-acts": "MTM",
    "mtm-gaps": "MTM, long segments",
    "mtm-smoothed": "MTM on a smoother",
    "saits": "SAITS",
    "brits": "BRITS",
    "csdi": "CSDI",
    "saits-own": "SAITS, own budget",
    "brits-own": "BRITS, own budget",
    "csdi-own": "CSDI, own budget",
    "kalman": "Kalman smoother",
    "interpolation": "interpolation",
}
"""Method -> how tables call it."""

QUICK = ("kalman", "interpolation")
"""Rivals whose training hardly takes time."""

RIVALS = {
    "mtm-acts": ("saits", "brits", "csdi", *QUICK),
    "mtm-gaps": QUICK,
    "mtm-smoothed": QUICK,
}
"""Ours -> what claims compare it with. The specialists have the seconds of the model that also
acts and predicts; those that only fill gaps take their own."""

SHOWN = ("steps-30", "steps-70", "block-20", "sensor-50")
"""Patterns in the picture."""

SHOWN_METHODS = (*RIVALS, *RIVALS["mtm-acts"])
"""Methods in the picture."""

SENSORS = 3
"""Sensors that the observed columns are dealt out to."""

HELD_OUT = 0.2
"""Share of the episodes, half of it to choose weights, half to report on: some sets have few."""

OWN_SEEDS = 1
"""Seeds of the specialists with their own budget, which is long."""

NETWORKS: dict[str, dict[str, Any]] = {
    "saits": {
        **{"n_layers": 2, "d_model": 128, "n_heads": 4, "d_k": 32, "d_v": 32, "d_ffn": 256},
        "dropout": 0.1,
    },
    "brits": {"rnn_hidden_size": 128},
    "csdi": {
        **{"n_layers": 4, "n_heads": 4, "n_channels": 32, "d_time_embedding": 128},
        **{"d_feature_embedding": 16, "d_diffusion_embedding": 128, "n_diffusion_steps": 50},
        "target_strategy": "mix",
    },
}
"""SAITS and BRITS of our model's width; CSDI of half its authors', for the time that it fills."""

SMALL: dict[str, dict[str, Any]] = {
    "saits": {"n_layers": 1, "d_model": 16, "n_heads": 2, "d_k": 8, "d_v": 8, "d_ffn": 16},
    "brits": {"rnn_hidden_size": 8},
    "csdi": {
        **{"n_layers": 1, "n_heads": 2, "n_channels": 8, "d_time_embedding": 8},
        **{"d_feature_embedding": 4, "d_diffusion_embedding": 8, "n_diffusion_steps": 5},
        "target_strategy": "mix",
    },
}
"""For the scale `smoke`."""


def for_gaps(train: TrainConfig) -> TrainConfig:
    """Settings of a model that only fills gaps: a window as long as what is asked about.

    Batches are smaller by nearly as much as segments are longer; a step still costs about twice as
    much, so there are half as many.
    """
    small = train.model.width < 128
    length = 16 if small else 64
    return replace(
        train,
        mask="random",
        visible_fraction=(0.1, 1.0),
        whole_modalities=0.25,
        steps=train.steps if small else train.steps // 2,
        batch_size=8 if small else 64,
        validation_fraction=HELD_OUT,
        model=replace(train.model, segment_length=length),
    )


def for_correcting(train: TrainConfig) -> TrainConfig:
    """Of these the settings of a network that corrects a smoother; the episodes are windows."""
    return replace(train, loss_on="hidden", validation_fraction=0.05)


def runs(scale: Scale, data: Sequence[str], seeds: int) -> list[RunSpec]:
    """Of every set and seed our model, and each rival with its seconds; some by their own rule."""
    listed = []
    for d in data:
        for seed in range(seeds):
            ours = _spec(scale, d, seed, "mtm-acts")
            listed.append(ours)
            others = ("mtm-gaps", "mtm-smoothed", "kalman", "interpolation")
            listed += [_spec(scale, d, seed, method) for method in others]
            listed += [_spec(scale, d, seed, name, (ours,)) for name in SPECIALISTS]
            if seed < OWN_SEEDS:
                listed += [_spec(scale, d, seed, f"{name}-own") for name in SPECIALISTS]
    return listed


def draw(results: Sequence[Result], out: Path) -> Drawing:
    """A table for errors, coverage and seconds each, and errors by pattern as a picture."""
    sets, titles = data_sets(results), _titles(results)
    patterns = list(dict.fromkeys(p for r in results for p in r.spec.settings["gaps"]["patterns"]))
    tables = [
        Table(
            "Error",
            ("data", "method", "seeds", *patterns),
            _errors(results, sets, titles, patterns),
        ),
        *(
            Table(
                f"Coverage of the {level} % intervals",
                ("data", "method", *patterns),
                _coverage(results, sets, titles, patterns, level),
            )
            for level in (50, 90)
        ),
        Table(
            "Seconds",
            ("data", "method", "to train", "to fill a thousand steps"),
            _seconds(results, sets, titles),
        ),
    ]
    panels = {
        d.name: {
            p: {titles[m]: pick(results, d, m, p, "error") for m in SHOWN_METHODS if m in titles}
            for p in SHOWN
            if p in patterns
        }
        for d in sets
    }
    picture = pictures.bars(
        out / "imputation.png",
        panels,
        ylabel="squared error, normalised",
        log=True,
    )
    records = [
        record(pick(results, d, m, p, what), data=d.name, method=title, pattern=p, measure=what)
        for d in sets
        for m, title in titles.items()
        for p in patterns
        for what in ("error", "coverage_50", "coverage_90", "seconds")
    ]
    records += [
        record(_training(results, d, m), data=d.name, method=title, pattern="", measure="training")
        for d in sets
        for m, title in titles.items()
    ]
    return Drawing(tables, records, _claims(results, sets, patterns), [picture], NOTES)


NOTES = (
    "Mean squared errors of lost values in units of the training data's variance, in windows of "
    "test episodes; all methods see the same windows with the same gaps. The observed columns are "
    f"dealt out to {SENSORS} sensors; actions are always known, to all methods.",
    "steps-30: 30 % of the steps, all sensors at once. readings-30: 30 % of the readings, each "
    "sensor by itself. block-20: all sensors for 20 steps on end. sensor-20: one sensor for 20 "
    "steps.",
    "SAITS, BRITS and CSDI are PyPOTS's; they are trained for as many seconds of wall clock as MTM "
    "of the same set and seed, their validation included, and keep their best weights. With their "
    "own budget they train for 100 epochs, or until 10 bring nothing.",
    "MTM on a smoother is a network of the same sizes that is shown what the Kalman smoother says "
    "and learns what that misses. Its seconds are its own, as are those of MTM with long segments, "
    "so that no claim compares them with the specialists.",
    "SAITS, BRITS, CSDI and MTM on a smoother are trained on gaps of the very patterns that are "
    "asked about. MTM is not: it has the settings of the model that acts, and short segments. That "
    "with long segments, of the window's length, is trained on random masks, and only for gaps.",
    "An interval of 50 % should hold half of the true values. MTM and the Kalman smoother state a "
    "variance, CSDI answers ten times; the others state nothing.",
    "No claim here is the paper's: it does not compare with methods that fill gaps.",
)


def pick(
    results: Sequence[Result], data: DataFacts, method: str, pattern: str, what: str
) -> Number | None:
    """A number of one pattern, over seeds."""
    mine = [r for r in results if r.data == data and r.spec.method == method]
    return over_seeds(mine, lambda value: value["patterns"].get(pattern, {}).get(what))


def _spec(
    scale: Scale, data: str, seed: int, method: str, needs: tuple[RunSpec, ...] = ()
) -> RunSpec:
    smoke = scale.preset == "tiny"
    window = 16 if smoke else 64
    asked = {
        "sensors": SENSORS,
        "window": window,
        "windows": 4 if smoke else 32,
        "patterns": gaps.fitting(gaps.PATTERNS, window),
    }
    config = replace(scale.train, seed=seed, validation_fraction=HELD_OUT)
    config = for_gaps(config) if method == "mtm-gaps" else config
    settings: dict[str, Any] = {"gaps": asked, "threads": scale.threads, "train": config.to_json()}
    if method == "mtm-smoothed":
        settings["lessons"] = 64 if smoke else 8192
        settings["corrector"] = for_correcting(for_gaps(config)).to_json()
    name = method.removesuffix("-own")
    if name in SPECIALISTS:
        settings["specialist"] = {
            "network": (SMALL if smoke else NETWORKS)[name],
            "window": window,
            "patterns": asked["patterns"],
            "batch_size": 8 if smoke else 32,
            "batches": 2 if smoke else 50,
            "validation_windows": 4 if smoke else 32,
            "epochs": 2 if smoke else 100,
            "patience": 1 if smoke else 10,
        }
    label = f"{name_of(data)} · {TITLES[method]}, gaps · seed {seed}"
    return RunSpec(method, data, seed, settings, label, needs)


def _training(results: Sequence[Result], data: DataFacts, method: str) -> Number | None:
    mine = [r for r in results if r.data == data and r.spec.method == method]
    return over_seeds(mine, lambda value: value["seconds"])


def _filling(results: Sequence[Result], data: DataFacts, method: str) -> Number | None:
    """Seconds to fill a thousand steps, the mean over patterns."""
    mine = [r for r in results if r.data == data and r.spec.method == method]

    def rate(value: Any) -> float:
        took = [found["seconds"] for found in value["patterns"].values()]
        return float(1000 * sum(took) / len(took) / (value["windows"] * length))

    length = mine[0].spec.settings["gaps"]["window"] if mine else 1
    return over_seeds(mine, rate)


def _titles(results: Sequence[Result]) -> dict[str, str]:
    """Of the methods with a result; of all, if none has one yet."""
    found = {r.spec.method for r in results if r.value is not None}
    return {m: title for m, title in TITLES.items() if m in found} or TITLES


def _errors(
    results: Sequence[Result],
    sets: Sequence[DataFacts],
    titles: Mapping[str, str],
    patterns: Sequence[str],
) -> list[list[str]]:
    rows = []
    for d in sets:
        for method, title in titles.items():
            numbers = [pick(results, d, method, p, "error") for p in patterns]
            seeds = str(max((len(n.values) for n in numbers if n), default=0))
            rows.append([d.name, title, seeds, *(text(n, ".4f") for n in numbers)])
    return rows


def _coverage(
    results: Sequence[Result],
    sets: Sequence[DataFacts],
    titles: Mapping[str, str],
    patterns: Sequence[str],
    level: int,
) -> list[list[str]]:
    """Only of methods that state intervals."""
    rows = []
    for d in sets:
        for method, title in titles.items():
            numbers = [pick(results, d, method, p, f"coverage_{level}") for p in patterns]
            if any(numbers):
                rows.append([d.name, title, *(text(n, ".2f") for n in numbers)])
    return rows


def _seconds(
    results: Sequence[Result], sets: Sequence[DataFacts], titles: Mapping[str, str]
) -> list[list[str]]:
    return [
        [
            d.name,
            title,
            text(_training(results, d, method), ".0f"),
            text(_filling(results, d, method), ".3f"),
        ]
        for d in sets
        for method, title in titles.items()
    ]


def _claims(
    results: Sequence[Result], sets: Sequence[DataFacts], patterns: Sequence[str]
) -> list[Claim]:
    """Ours beside rivals of the same seconds or hardly any; a case is a pattern of a set."""
    return [
        claim(
            f"{TITLES[ours]} fills gaps better than {TITLES[rival]}",
            [
                Comparison(
                    f"{d.name} {p}",
                    pick(results, d, ours, p, "error"),
                    pick(results, d, rival, p, "error"),
                    higher_is_better=False,
                )
                for d in sets
                for p in patterns
            ],
            "better",
        )
        for ours, rivals in RIVALS.items()
        for rival in rivals
    ]
