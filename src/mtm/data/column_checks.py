"""What the numbers of an episode show by themselves: stuck, jumping, saturated, in other units.

Each check measures every feature in every episode, and compares an episode with the others: what is
usual in this data set is no fault. Usual is what nine episodes of ten do not exceed.

Letters: E episodes, F features.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mtm.data.faults import CERTAIN, LEAVE_OUT, Fault
from mtm.data.modalities import BoolArray, IntArray, Modality
from mtm.data.trajectories import TrajectoryDataset

Floats = NDArray[np.float64]

TIME_NAMES = ("t", "time", "times", "stamp", "timestamp", "timestamps", "time_stamp")
"""Modalities of one number that are clocks."""

USUAL = 0.9
"""The share of the episodes that do not exceed what is usual."""
SHORTEST_STUCK = 5
"""Repeats of a value, in a feature that hardly ever repeats one, that are a stuck sensor."""
TIMES_USUAL = 3.0
"""So many times what is usual is a fault."""
JUMP = 4.0
"""A change is a jump if it is so many times the usual largest change of an episode."""
CLIPPED = 0.02
"""The share of the episodes that reach the end of a sensor's range, where it clips."""
SATURATED = 0.5
"""The share of an episode's steps that are at a limit, at least, to be told."""
MOSTLY_SATURATED = 0.05
"""The share of all steps at a limit that deserves a look."""
LARGEST_SCALES = 8.0
"""A feature that is so many times larger or smaller in an episode may be in another unit."""
SAME_RATIO = 2.5
"""Magnitudes and changes of another unit have the same ratio to the usual ones, up to this."""
FEWEST_EPISODES = 5
"""With fewer nothing is usual, and only what never changes is told."""

UNITS = {57.29578: "degrees and radians", 1000.0: "metres and millimetres, or grams and kilograms"}
UNITS |= {100.0: "metres and centimetres", 9.80665: "g and m/s²", 3.6: "km/h and m/s"}
"""Ratios that units have."""
NEAR_UNIT = 0.4
"""How far the logarithm of a ratio may be off: episodes differ by nature."""


@dataclass(frozen=True)
class Measured:
    """A modality in every episode.

    Attributes:
        run: The most repeats of a value in a row, (E, F), and where they begin.
        change: The largest change from a step to the next, (E, F), and where it is.
        scale: What nine tenths of the magnitudes do not exceed, (E, F).
        limit: The share of the steps at a limit, (E, F), and where their longest stretch
            begins. A limit is the least or the greatest value of all; of states, where several
            episodes reach it and leave it again. What stays there is not stuck.
    """

    run: IntArray
    run_at: IntArray
    change: Floats
    change_at: IntArray
    scale: Floats
    limit: Floats
    limit_at: IntArray


def is_clock(m: Modality) -> bool:
    """Whether a modality is a time stamp."""
    return m.name.lower() in TIME_NAMES and m.kind == "continuous" and m.size == 1


def check_columns(dataset: TrajectoryDataset) -> Iterator[Fault]:
    """Everything that these checks find in states and actions."""
    for m in dataset.modalities:
        if m.kind != "continuous" or m.role not in ("state", "action") or is_clock(m):
            continue
        measured = measure(dataset, m)
        if m.role == "action":
            yield from _saturated_everywhere(dataset, m, measured)
        if dataset.num_episodes >= FEWEST_EPISODES:
            yield from _stuck(dataset, m, measured)
            yield from _jumps(m, measured)
            yield from _units(dataset, m, measured)
            if m.role == "action":
                yield from _saturated(m, measured)


def measure(dataset: TrajectoryDataset, m: Modality) -> Measured:
    """Look at a modality, an episode at a time."""
    low, high = np.full(m.size, np.inf), np.full(m.size, -np.inf)
    for chunk in dataset.chunks(m.name):
        flat = chunk.reshape(len(chunk), -1)
        low, high = np.minimum(low, flat.min(axis=0)), np.maximum(high, flat.max(axis=0))
    reached = np.zeros((2, m.size))  # in how many episodes the least, and the greatest value
    for _, values, known in episodes_of(dataset, m):
        at = [values[known] == end for end in (low, high)]
        # A sensor that is dead all along shows nothing of where its range ends.
        reached += [here.any(axis=0) & ~(here.all(axis=0) & (m.role != "action")) for here in at]
    # A command at its end is clipped; a sensor may be dead.
    fewest = 1 if m.role == "action" else max(CLIPPED * dataset.num_episodes, 3)
    ends = zip(reached, (low, high), strict=True)
    low, high = (np.where(count >= fewest, end, np.nan) for count, end in ends)
    shape = (dataset.num_episodes, m.size)
    found = Measured(*(np.zeros(shape, kind) for kind in (int, int, float, int, float, float, int)))
    for e, values, known in episodes_of(dataset, m):
        if known.sum() < 2:
            continue
        both = (known[1:] & known[:-1])[:, None]
        difference = np.where(both, np.abs(np.diff(values, axis=0)), 0)
        limited = (values == low) | (values == high)
        same = (np.diff(values, axis=0) == 0) & both & ~limited[1:]
        found.run[e], found.run_at[e] = _longest_run(same)
        found.change[e] = difference.max(axis=0)
        found.change_at[e] = difference.argmax(axis=0) + 1
        here = values[known]
        found.scale[e] = np.quantile(np.abs(here), 0.9, axis=0)
        found.limit[e] = limited[known].mean(axis=0)
        found.limit_at[e] = _longest_run(limited)[1]
    return found


def episodes_of(dataset: TrajectoryDataset, m: Modality) -> Iterator[tuple[int, Floats, BoolArray]]:
    """Number, values (S, F) and presence (S,) of each episode."""
    for e, (start, end) in enumerate(zip(dataset.starts, dataset.ends, strict=True)):
        values = np.asarray(dataset.arrays[m.name][start:end], np.float64)
        present = dataset.present.get(m.name)
        known = np.ones(end - start, bool) if present is None else np.asarray(present[start:end])
        yield e, values.reshape(len(values), -1), known


def unit_of(ratio: float) -> str:
    """The units that differ by about this ratio, if there are some, to be told as a guess."""
    factor = max(ratio, 1 / ratio)
    off, names = min((abs(np.log(factor / known)), names) for known, names in UNITS.items())
    return f", perhaps {names}" if off < NEAR_UNIT else ""


def _stuck(dataset: TrajectoryDataset, m: Modality, found: Measured) -> Iterator[Fault]:
    usual = np.quantile(found.run, USUAL, axis=0)
    limit = np.maximum(TIMES_USUAL * usual, SHORTEST_STUCK)
    for e, f, weight, also in _heavy(found.run / limit):
        steps, whole = int(found.run[e, f]) + 1, int(dataset.lengths[e])
        how = "in all steps of the episode" if steps == whole else f"for {steps:,} steps"
        yield Fault(
            "stuck",
            f"the value is the same {how}; the usual longest is {int(usual[f]) + 1:,}{also}.",
            "Repair the sensor or the driver. Leave the episode out, or mark these values absent.",
            **_place(e, int(found.run_at[e, f]), m, f, weight),
        )


def _jumps(m: Modality, found: Measured) -> Iterator[Fault]:
    usual = np.quantile(found.change, USUAL, axis=0)
    ratio = np.divide(found.change, usual, out=np.zeros_like(found.change), where=usual > 0)
    for e, f, weight, also in _heavy(ratio / JUMP):
        yield Fault(
            "jump",
            f"the value changes by {found.change[e, f]:.4g} in one step; the usual largest change "
            f"is {usual[f]:.4g}{also}.",
            "Look for lost steps, a wrapped angle, or two recordings in one episode; cut there, or "
            "leave the episode out.",
            **_place(e, int(found.change_at[e, f]), m, f, weight),
        )


def _units(dataset: TrajectoryDataset, m: Modality, found: Measured) -> Iterator[Fault]:
    used = np.maximum(found.scale, 1e-12)
    middle = np.median(used, axis=0)
    off = np.log(used / np.maximum(middle, 1e-12))
    off[:, middle < 1e-9] = 0
    usual = np.quantile(np.abs(off), USUAL, axis=0)
    # In another unit changes are larger too; an episode that goes elsewhere changes as others do.
    changes = np.maximum(found.change, 1e-12)
    moved = np.log(changes / np.median(changes, axis=0))
    # One that ends early has not moved much yet.
    early = (dataset.lengths < np.median(dataset.lengths) / 2)[:, None] & (off < 0)
    alike = (np.abs(moved - off) < np.log(SAME_RATIO)) & ~early
    distance = np.where(alike, np.abs(off), 0)
    limit = np.maximum(TIMES_USUAL * usual, np.log(LARGEST_SCALES))
    for e, f, weight, also in _heavy(distance / limit):
        ratio = float(np.exp(off[e, f]))
        near = unit_of(ratio)
        yield Fault(
            "unit",
            f"magnitudes are {ratio:.3g} times the usual ones ({found.scale[e, f]:.4g} against "
            f"{middle[f]:.4g}){near}{also}.",
            "Convert to one unit, or leave the episode out.",
            **_place(e, 0, m, f, weight),
        )


def _saturated(m: Modality, found: Measured) -> Iterator[Fault]:
    usual = np.quantile(found.limit, USUAL, axis=0)
    limit = np.maximum(TIMES_USUAL * usual, SATURATED)
    for e, f, weight, also in _heavy(found.limit / limit):
        yield Fault(
            "saturated",
            f"{found.limit[e, f]:.0%} of the steps are at the limit; usual are {usual[f]:.0%}"
            f"{also}.",
            "Look whether the command was clipped when it was recorded; leave the episode out if "
            "the robot did something else.",
            **_place(e, int(found.limit_at[e, f]), m, f, weight),
        )


def _saturated_everywhere(
    dataset: TrajectoryDataset, m: Modality, found: Measured
) -> Iterator[Fault]:
    weights = dataset.lengths / dataset.num_steps
    share = weights @ found.limit
    for f in np.flatnonzero(share > MOSTLY_SATURATED):
        e = int(found.limit[:, f].argmax())
        yield Fault(
            "saturated",
            f"{share[f]:.0%} of all steps are at the least or the greatest value; most in this "
            f"episode, {found.limit[e, f]:.0%}.",
            "Usual for a policy that pushes as it can. If the recorder clipped what was commanded, "
            "record the command as it was executed.",
            **_place(e, int(found.limit_at[e, f]), m, int(f), 0.0),
        )


def _heavy(ratio: Floats) -> Iterator[tuple[int, int, float, str]]:
    """Episodes at 1 and above: their worst feature, its weight, and how many are like it."""
    for e in np.flatnonzero((ratio >= 1).any(axis=1)):
        f, others = int(ratio[e].argmax()), int((ratio[e] >= 1).sum()) - 1
        also = f"; so are {others} more feature(s)" if others else ""
        yield int(e), f, float(min(LEAVE_OUT * ratio[e, f], CERTAIN)), also


def _place(e: int, step: int, m: Modality, f: int, weight: float) -> dict[str, Any]:
    return {"episode": e, "step": step, "modality": m.name, "feature": f, "weight": weight}


def _longest_run(same: BoolArray) -> tuple[IntArray, IntArray]:
    """The longest stretch of `True` in each column of (S, F), and where it begins."""
    length, longest = np.zeros(same.shape[1], np.int64), np.zeros(same.shape[1], np.int64)
    begin = np.zeros(same.shape[1], np.int64)
    for step, row in enumerate(same):
        length = np.where(row, length + 1, 0)
        longer = length > longest
        longest, begin = (
            np.where(longer, length, longest),
            np.where(longer, step - length + 1, begin),
        )
    return longest, begin
