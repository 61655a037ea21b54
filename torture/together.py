"""Two at once: one clear refusal or both correct, never a mixture."""

from __future__ import annotations

import random
import tempfile
import time
import warnings
from collections.abc import Callable, Collection
from pathlib import Path

from mtm.core.errors import RunError
from mtm.evaluation.evaluate import weights_digest
from mtm.runs.run import load_run
from torture.kill import material
from torture.outcomes import Row, timed
from torture.verbs import SAVE_EVERY, Material, Verb, train_words
from torture.warm import Warm
from torture.whole import digests, half_written, strays

CASES = 5
"""Of each pair."""

STEPS = 40
"""Of a training that is read meanwhile."""


def together(
    warm: Warm,
    cases: int = CASES,
    only: Collection[str] = (),
    say: Callable[[Row], None] = lambda row: None,
) -> list[Row]:
    """Verbs twice into one place; with `train`, also what is done beside a training."""
    rows = []

    def done(row: Row) -> None:
        say(row)
        rows.append(row)

    with material(warm, only) as known:
        for name, verb in known.items():
            row = Row("together", f"{name}, twice into one place")
            with timed(row):
                _twice(warm, verb, cases, row)
            done(row)
    if only and "train" not in only:
        return rows
    with tempfile.TemporaryDirectory(prefix="mtm-together-") as name:
        made = Material.make(Path(name), warm)
        row = Row("together", "a run is read while it is trained")
        with timed(row):
            _read_meanwhile(warm, made, Path(name) / "read", row)
        done(row)
        row = Row("together", "a store is converted while it is trained on")
        with timed(row):
            for case in range(cases):
                _convert_meanwhile(warm, made, Path(name) / f"convert-{case}", row)
        done(row)
    return rows


def _twice(warm: Warm, verb: Verb, cases: int, row: Row) -> None:
    rng = random.Random(verb.name)
    with tempfile.TemporaryDirectory(prefix="mtm-together-") as name:
        verb.before(Path(name))
        alone = warm.run(*verb.job(Path(name)))
        wanted = verb.result(Path(name))
    for _ in range(cases):
        with tempfile.TemporaryDirectory(prefix="mtm-together-") as name:
            folder = Path(name)
            verb.before(folder)
            first = warm.start(*verb.job(folder))
            time.sleep(rng.choice([0, rng.uniform(0, alone.seconds)]))
            second = warm.start(*verb.job(folder))
            ends = [warm.wait(child) for child in (first, second)]
            faults = [f"exit code {e.code}: {e.said[-300:]}" for e in ends if e.is_foreign]
            if all(end.code for end in ends):
                faults.append(f"both were refused: {[end.said[-200:] for end in ends]}")
            elif verb.result(folder) != wanted:
                faults.append("the result is not that of one alone")
            faults += half_written(folder)
            faults += [f"{stray} was left behind" for stray in strays(folder)]
            if faults:
                row.broke(str(faults))
            else:
                row.held("both correct" if not any(e.code for e in ends) else "one refused")


def _read_meanwhile(warm: Warm, made: Material, out: Path, row: Row) -> None:
    """Load a run again and again while it is trained: whole checkpoints, ever newer ones."""
    child = warm.start(train_words(made.data, out, STEPS))
    newest, seen = 0, set()
    until = time.monotonic() + 120
    while newest < STEPS and time.monotonic() < until:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                run = load_run(out)
        except RunError as error:
            early = "no checkpoint" in str(error) or "no directory" in str(error)
            early = early or "no config.json" in str(error)
            if newest or not early:
                row.broke(f"after step {newest}: {error}")
        except Warning as warning:
            row.broke(f"after step {newest}: {warning}")
        else:
            if run.step < newest:
                row.broke(f"step {run.step} was read after {newest}")
            newest = run.step
            seen.add((newest, weights_digest(run.model)))
            row.held("whole")
    ended = warm.wait(child)
    if ended.code or len(seen) != len({step for step, _ in seen}):
        row.broke(f"exit code {ended.code}; steps and weights {sorted(seen)}")


def _convert_meanwhile(warm: Warm, made: Material, folder: Path, row: Row) -> None:
    """Train on a store while it is converted."""
    folder.mkdir()
    store = folder / "store"
    ended = warm.run(["data", "convert", str(made.data), str(store)])
    assert ended.code == 0, ended.said
    last = f"checkpoints/step-{2 * SAVE_EVERY:09d}/*.safetensors"
    children = [
        warm.start(train_words(store, folder / "run", 2 * SAVE_EVERY)),
        warm.start(["data", "convert", str(store), str(folder / "other")]),
    ]
    ends = [warm.wait(child) for child in children]
    faults = [f"exit code {e.code}: {e.said[-300:]}" for e in ends if e.code]
    if not faults and digests(folder / "run", last) != digests(made.run, last):
        faults.append("the weights are not those of a training alone")
    if not faults and digests(folder / "other", "*.bin") != digests(store, "*.bin"):
        faults.append("the store is not the same")
    if faults:
        row.broke(str(faults))
    else:
        row.held("both correct")
