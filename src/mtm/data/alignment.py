"""Sensors of several rates, each with its own time stamps, brought to one clock.

The clock of an episode begins with the last of its streams to begin, and ends with the first to
end. What a stream has at a tick is decided by its rule, and is absent where no sample is near
enough in time:

    hold          the last sample until the tick
    interpolate   the straight line between the sample before and the one after it
    absent        the nearest sample, if it is within half a period of the clock; else nothing
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from mtm.core.errors import ConfigError, DataError, unknown
from mtm.core.reading import AS_IT_IS, Reading
from mtm.data.columns import declare
from mtm.data.modalities import BoolArray
from mtm.data.trajectories import Metadata, TrajectoryDataset

Rule: TypeAlias = Literal["hold", "interpolate", "absent"]
RULES: tuple[Rule, ...] = get_args(Rule)

INTERVALS = 1.5
"""Tolerance, in median intervals between the samples of a stream, where none is given."""

MOST_TICKS = 1 << 28
"""Of all episodes together; more come of time stamps in another unit."""

Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True)
class Stream:
    """The samples of one sensor.

    Attributes:
        name: Of the modality that it becomes.
        file: Told in errors.
        episodes: A label per sample, (N,).
        times: Seconds, (N,), rising within an episode.
        values: (N,) or (N, width).
    """

    name: str
    file: str
    episodes: NDArray[Any]
    times: Floats
    values: NDArray[Any]

    def spans(self) -> dict[Any, slice]:
        """Episode -> its samples.

        Raises:
            DataError: A time stamp is no number or not above the one before it, or an episode is
                in two places; the message names the file, the episode and the step.
        """
        starts = np.flatnonzero(np.append(True, self.episodes[1:] != self.episodes[:-1]))
        ends = np.append(starts[1:], len(self.episodes))
        spans: dict[Any, slice] = {}
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            label = self.episodes[start].item()
            if label in spans:
                raise DataError(
                    f"{self.file}: episode {label} is in two places (rows {spans[label].start} and "
                    f"{start}); sort the rows by episode and time."
                )
            spans[label] = slice(start, end)
            self._check(label, self.times[start:end])
        return spans

    def _check(self, label: Any, times: Floats) -> None:
        at = f"{self.file}: episode {label}, step"
        if not (finite := np.isfinite(times)).all():
            step = int(np.argmin(finite))
            raise DataError(f"{at} {step}: the time stamp is {times[step]}; every row needs one.")
        rises = np.diff(times) > 0
        if not rises.all():
            step = int(np.argmin(rises)) + 1
            raise DataError(
                f"{at} {step}: the time stamp {times[step]:g} s is not above {times[step - 1]:g} s "
                "before it. Sort the rows, and remove those that are there twice."
            )


def align(
    streams: Sequence[Stream],
    clock: float,
    *,
    rules: Mapping[str, str] | None = None,
    tolerances: Mapping[str, float] | None = None,
    reading: Reading = AS_IT_IS,
    source: str = "memory",
) -> TrajectoryDataset:
    """Bring streams to one clock.

    Args:
        streams: Of one data set; an episode may lack some.
        clock: Ticks of a second.
        rules: Stream -> `hold`, `interpolate` or `absent`; classes are held, numbers interpolated
            where none is given.
        tolerances: Stream -> seconds that a sample may be away from a tick; one and a half of its
            median intervals where none is given.
        reading: Says roles.
        source: What the data are called.

    Raises:
        ConfigError: A rule or a tolerance is not allowed.
        DataError: Time stamps are at fault, or no two streams of an episode overlap.
    """
    rules, tolerances = rules or {}, tolerances or {}
    _check_settings(streams, clock, rules, tolerances)
    spans = {stream.name: stream.spans() for stream in streams}
    labels = list(dict.fromkeys(label for of_stream in spans.values() for label in of_stream))
    ticks = [_ticks(streams, spans, label, clock) for label in labels]
    if (count := sum(map(len, ticks))) > MOST_TICKS:
        raise DataError(
            f"{source}: {count:,} ticks in all, at most {MOST_TICKS:,}. Are the time stamps "
            "seconds? Else say their unit (--unit)."
        )
    arrays: dict[str, NDArray[Any]] = {}
    present: dict[str, BoolArray] = {}
    for stream in streams:
        rule = rules.get(stream.name) or default_rule(stream)
        within = tolerances.get(stream.name, default_tolerance(stream))
        if rule == "absent":
            within = min(within, 0.5 / clock)
        pieces = [
            _sampled(stream, spans[stream.name].get(label), at, rule, within * (1 + 1e-9))
            for label, at in zip(labels, ticks, strict=True)
        ]
        arrays[stream.name] = np.concatenate([values for values, _ in pieces])
        present[stream.name] = np.concatenate([known for _, known in pieces])
    return TrajectoryDataset.from_arrays(
        arrays,
        np.append(0, np.cumsum([len(at) for at in ticks])),
        modalities=declare(arrays, present, reading),
        present=present,
        metadata=Metadata(source=source, notes={"fps": f"{clock:g}"}),
    )


def default_rule(stream: Stream) -> Rule:
    """Classes are held: between two there is nothing."""
    return "hold" if stream.values.dtype.kind in "iub" else "interpolate"


def default_tolerance(stream: Stream) -> float:
    """Seconds, from the intervals between the samples of a stream."""
    same = stream.episodes[1:] == stream.episodes[:-1]
    intervals = np.diff(stream.times)[same]
    return INTERVALS * float(np.median(intervals)) if len(intervals) else 0.0


def _check_settings(
    streams: Sequence[Stream],
    clock: float,
    rules: Mapping[str, str],
    tolerances: Mapping[str, float],
) -> None:
    if not math.isfinite(clock) or clock <= 0:
        raise ConfigError(f"the clock is {clock} ticks a second; a number above 0 is needed.")
    kinds = {stream.name: default_rule(stream) for stream in streams}
    for name in (*rules, *tolerances):
        if name not in kinds:
            raise ConfigError(unknown("stream", name, kinds))
    for name, rule in rules.items():
        if rule not in RULES:
            raise ConfigError(unknown(f"rule of {name!r}:", rule, RULES))
        if rule == "interpolate" and kinds[name] == "hold":
            raise ConfigError(
                f"{name!r} holds integers, which are classes; between two there is nothing. Hold "
                "them, or store numbers as floating point."
            )
    for name, seconds in tolerances.items():
        if not math.isfinite(seconds) or seconds < 0:
            raise ConfigError(f"the tolerance of {name!r} is {seconds} s; 0 or more is needed.")


def _ticks(
    streams: Sequence[Stream], spans: Mapping[str, Mapping[Any, slice]], label: Any, clock: float
) -> Floats:
    """The clock of an episode: from the last stream to begin to the first to end."""
    there = [(s, s.times[spans[s.name][label]]) for s in streams if label in spans[s.name]]
    begin = max(times[0] for _, times in there)
    end = min(times[-1] for _, times in there)
    if end < begin:
        late = max(there, key=lambda found: found[1][0])[0]
        early = min(there, key=lambda found: found[1][-1])[0]
        raise DataError(
            f"{late.file}: episode {label}, step 0: begins at {begin:g} s, when {early.file} has "
            f"ended ({end:g} s). Are both in the same unit and of the same clock?"
        )
    count = math.floor((end - begin) * clock * (1 + 1e-12) + 1e-9) + 1
    if count > MOST_TICKS:
        raise DataError(
            f"{there[0][0].file}: episode {label} lasts {end - begin:g} s, {count:,} ticks. Are "
            "the time stamps seconds? Else say their unit (--unit)."
        )
    ticks: Floats = begin + np.arange(count) / clock
    return ticks


def _sampled(
    stream: Stream, span: slice | None, at: Floats, rule: str, within: float
) -> tuple[NDArray[Any], BoolArray]:
    """Values at ticks, and where there are any."""
    if span is None:
        shape = (len(at), *stream.values.shape[1:])
        return np.zeros(shape, stream.values.dtype), np.zeros(len(at), bool)
    times, values = stream.times[span], stream.values[span]
    slack = 1e-9 * max(1.0, float(np.abs(at).max(initial=0.0)))  # ticks are rounded
    after = np.searchsorted(times, at - slack)
    after = np.minimum(after, len(times) - 1)
    before = np.maximum(np.searchsorted(times, at + slack, side="right") - 1, 0)
    if rule == "hold":
        age = at - times[before]
        known: BoolArray = (age <= within + slack) & (age >= -slack)
        return values[before], known
    if rule == "absent":
        is_nearer = np.abs(times[after] - at) < np.abs(at - times[before])
        nearest = np.where(is_nearer, after, before)
        return values[nearest], np.abs(times[nearest] - at) <= within + slack
    apart = times[after] - times[before]
    share = np.where(apart > 0, (at - times[before]) / np.where(apart > 0, apart, 1.0), 0.0)
    share = share.reshape(-1, *(1,) * (values.ndim - 1))
    line = values[before] + share * (values[after] - values[before])
    gap = np.maximum(at - times[before], times[after] - at)
    return line.astype(values.dtype), gap <= within + slack
