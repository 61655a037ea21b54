"""What whole episodes show: clocks that stand still, copies, values that are no numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import numpy as np

from mtm.data.column_checks import (
    LARGEST_SCALES,
    TIMES_USUAL,
    check_columns,
    episodes_of,
    is_clock,
    measure,
    unit_of,
)
from mtm.data.faults import CERTAIN, LEAVE_OUT, Fault
from mtm.data.modalities import Modality
from mtm.data.trajectories import TrajectoryDataset

LOST = 2.5
"""A time step of so many usual ones is a gap."""
OTHER_RATE = 1.5
"""An episode whose usual time step is so many times that of the others has another rate."""
SMALLEST = 1e-9
"""Magnitudes below count as zero."""


def check_episodes(dataset: TrajectoryDataset) -> Iterator[Fault]:
    """All checks of this file and of `column_checks`, which need no model."""
    yield from no_numbers(dataset)
    for m in dataset.modalities:
        if is_clock(m):
            yield from _clock(dataset, m)
    yield from _copies(dataset)
    yield from check_columns(dataset)


def no_numbers(dataset: TrajectoryDataset) -> Iterator[Fault]:
    """Gaps that hold NaN, which were read as absent: the first of each episode and modality."""
    origin = dataset.metadata.origin
    if origin is not None and origin.reading.nan_is_absent:
        return  # the user said that they are gaps
    for m in dataset.modalities:
        if m.kind != "continuous" or m.name not in dataset.present:
            continue
        for e, values, known in episodes_of(dataset, m):
            faulty = np.isnan(values) & ~known[:, None]
            if faulty.any():
                step = int(faulty.any(axis=1).argmax())
                count = int(faulty.any(axis=1).sum())
                yield Fault(
                    "no number",
                    f"the value is NaN, as in {count:,} step(s) of this episode.",
                    "Repair the values, leave the episode out, or read NaN as gaps "
                    "(--reading.nan-is-absent).",
                    episode=e,
                    step=step,
                    modality=m.name,
                    feature=int(faulty[step].argmax()),
                    weight=CERTAIN,
                )


def check_files(dataset: TrajectoryDataset, files: Sequence[str]) -> Iterator[Fault]:
    """Units that differ between files: a feature that is many times larger in one than in others.

    Args:
        dataset: All files together.
        files: The file of each episode.
    """
    of, names = np.array(files), list(dict.fromkeys(files))
    if len(names) < 2:
        return
    for m in dataset.modalities:
        if m.kind != "continuous" or m.role not in ("state", "action") or is_clock(m):
            continue
        scale = np.log(np.maximum(measure(dataset, m).scale, SMALLEST))  # (E, F)
        middle = np.array([np.median(scale[of == name], axis=0) for name in names])
        within = np.abs(scale - middle[[names.index(name) for name in files]])
        off = middle - np.median(middle, axis=0)
        limit = np.maximum(TIMES_USUAL * np.median(within, axis=0), np.log(LARGEST_SCALES))
        if len(names) == 2:  # the middle lies between them
            off, limit = 2 * off, limit
        for number, f in zip(*np.nonzero(np.abs(off) >= limit), strict=True):
            if middle[:, f].min() <= np.log(2 * SMALLEST):
                continue  # it is zero in some file
            ratio = float(np.exp(off[number, f]))
            yield Fault(
                "unit",
                f"magnitudes in this file are {ratio:.3g} times those of the others"
                f"{unit_of(ratio)}.",
                "Convert the file to the unit of the others.",
                file=names[number],
                modality=m.name,
                feature=int(f),
                weight=LEAVE_OUT if len(names) > 2 else 0.0,
            )


def _clock(dataset: TrajectoryDataset, m: Modality) -> Iterator[Fault]:
    """Time that stands still, goes back, leaps, or runs at another rate."""
    middle = np.full(dataset.num_episodes, np.nan)
    for e, values, known in episodes_of(dataset, m):
        ticks = np.diff(values[known, 0])
        if len(ticks):
            middle[e] = np.median(ticks)
    usual = float(np.nanmedian(middle)) if np.isfinite(middle).any() else 0.0
    for e, values, known in episodes_of(dataset, m):
        ticks = np.diff(values[known, 0])
        if not len(ticks):
            continue
        steps = np.flatnonzero(known)[1:]
        back, lost = ticks <= 0, ticks > LOST * max(usual, 1e-12)
        place = {"episode": e, "modality": m.name}
        if back.any():
            first = int(back.argmax())
            yield Fault(
                "time",
                f"time goes from {values[known, 0][first]:.6g} to {values[known, 0][first + 1]:.6g}"
                f"; {int(back.sum()):,} step(s) of this episode do not go forward.",
                "Sort by time, remove repeated rows; large stamps need the seconds since the "
                "beginning of the episode, as numbers have 24 bits.",
                step=int(steps[first]),
                weight=2 * LEAVE_OUT,
                **place,  # type: ignore[arg-type]
            )
        elif usual > 0 and max(middle[e] / usual, usual / middle[e]) > OTHER_RATE:
            yield Fault(
                "time",
                f"the usual time step is {middle[e]:.4g}, of all episodes {usual:.4g}.",
                "Resample to one rate, or leave the episode out: dynamics are per step.",
                step=0,
                weight=2 * LEAVE_OUT,
                **place,  # type: ignore[arg-type]
            )
        elif usual > 0 and lost.any():
            first = int(lost.argmax())
            yield Fault(
                "time",
                f"{ticks[first]:.4g} pass before this step, usual are {usual:.4g}; so at "
                f"{int(lost.sum()):,} step(s) of this episode.",
                "Steps were lost: cut the episode there, or leave it out.",
                step=int(steps[first]),
                weight=LEAVE_OUT * min(1 + float(lost.mean()), TIMES_USUAL),
                **place,  # type: ignore[arg-type]
            )


def _copies(dataset: TrajectoryDataset) -> Iterator[Fault]:
    """Episodes that are equal in everything but the clock."""
    streams = [m for m in dataset.modalities if not is_clock(m)]
    seen: dict[bytes, int] = {}
    for e, (start, end) in enumerate(zip(dataset.starts, dataset.ends, strict=True)):
        digest = hashlib.sha256()
        for m in streams:
            values = np.array(dataset.arrays[m.name][start:end])
            if m.name in dataset.present:
                known = np.asarray(dataset.present[m.name][start:end])
                values[~known] = 0
                digest.update(known.tobytes())
            digest.update(values.tobytes())
        first = seen.setdefault(digest.digest(), e)
        if first != e and end - start > 1:
            yield Fault(
                "copy",
                f"the episode is a copy of episode {first}.",
                "Leave one of them out: a copy counts twice in training, and may be held out and "
                "trained on at once.",
                episode=e,
                step=0,
                weight=2 * LEAVE_OUT,
            )
