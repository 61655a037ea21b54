"""What is recorded: episodes in a list, one along its time, and a window of it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mtm.core.errors import DataError
from mtm.data.modalities import BoolArray, IntArray, Modality
from mtm.data.returns import reward_of
from mtm.data.trajectories import TrajectoryDataset
from mtm.evaluation.studio.faults import bad_request
from mtm.evaluation.studio.workspace import Workspace

LONGEST_WINDOW = 256
"""Steps of a window."""
MOST_LISTED = 200
"""Episodes on a page of the list."""
MOST_DRAWN = 1 << 18
"""Steps of an episode that are read for its timeline; of a longer one, evenly spaced ones."""
MOST_STRETCHES = 500
"""Absent stretches of a modality that are told apart; beyond, neighbours are joined."""


def data_summary(workspace: Workspace, run: int, data: int) -> dict[str, Any]:
    """What is known of a data set without reading it."""
    dataset, source = workspace.data(data), workspace.sources[data]
    lacking = workspace.lacking(run, data)
    own = workspace.is_own(run, data)
    held_out = workspace.held_out(run, data) if own else None
    split: dict[str, Any] = {"state": "pending" if own else "none", "held_out": None}
    if held_out is not None:
        count = int(held_out.sum())
        split = {"state": "ready" if count else "none", "held_out": count}
    rest = None if split["held_out"] is None else dataset.num_episodes - split["held_out"]
    return {
        "id": data,
        "name": source.name,
        "spec": source.spec,
        "episodes": dataset.num_episodes,
        "steps": dataset.num_steps,
        "longest": int(dataset.lengths.max()),
        "own": own,
        "split": split | {"training": rest},
        "lacking": lacking,
    }


def list_episodes(
    workspace: Workspace, run: int, data: int, offset: int, count: int, side: str
) -> dict[str, Any]:
    """A page of the list of episodes; only these are read."""
    dataset = workspace.data(data)
    own = workspace.is_own(run, data)
    held_out = workspace.held_out(run, data) if own else None
    numbers: IntArray = np.arange(dataset.num_episodes)
    if side != "all" and held_out is not None:
        numbers = np.flatnonzero(held_out == (side == "held-out"))
    elif side != "all" and not own:
        numbers = numbers[:0]
    shown = numbers[offset : offset + count]
    pending = own and held_out is None
    return {
        "total": len(numbers),
        "offset": offset,
        "split": "pending" if pending else "ready" if own else "none",
        "episodes": [
            _summary(dataset, int(e)) | {"side": side_of(own, held_out, int(e))} for e in shown
        ],
    }


def side_of(own: bool, held_out: BoolArray | None, episode: int) -> str | None:
    """Whether an episode was held out, trained on, or is of other data; None if not yet known."""
    if not own:
        return "other"
    if held_out is None:
        return None
    return "held-out" if held_out[episode] else "training"


def timeline(
    workspace: Workspace, run: int, data: int, episode: int, points: int
) -> dict[str, Any]:
    """Rewards, or else returns, along an episode, and where modalities are absent."""
    seen, dataset = workspace.episode(run, data, episode), workspace.data(data)
    length = int(seen.lengths[0])
    stride = -(-length // MOST_DRAWN)
    name, values, known = _drawn(dataset, seen, episode, stride)
    edges = np.unique(np.linspace(0, -(-length // stride), min(points, length) + 1).astype(int))
    found: dict[str, Any] = {"steps": (edges[:-1] * stride).tolist()}
    found |= (
        {"mean": [], "low": [], "high": []} if values is None else _buckets(values, known, edges)
    )
    absent = {}
    for m in workspace.run(run).modalities:
        if m.name not in seen.names:
            absent[m.name] = [[0, length]]
        elif m.name in seen.present:
            absent[m.name] = _stretches(~seen.present[m.name][::stride], stride, length)
    about = {"episode": episode, "length": length, "name": name, "unit": None}
    return {**about, **found, "absent": absent}


def window_slice(length: int, start: int, steps: int) -> slice:
    """The steps of a window, cut at the episode's end.

    Raises:
        StudioError: It begins beyond the end.
    """
    if start >= length:
        raise bad_request(f"start is {start}; the episode has the steps 0 to {length - 1}.")
    return slice(start, min(start + steps, length))


def window(
    workspace: Workspace, run: int, data: int, episode: int, start: int, length: int
) -> dict[str, Any]:
    """The recorded values of some steps, and which there are."""
    seen = workspace.episode(run, data, episode)
    steps = window_slice(int(seen.lengths[0]), start, length)
    values, present = {}, {}
    for m in workspace.run(run).modalities:
        array, known = values_of(seen, m, steps)
        values[m.name], present[m.name] = as_json(m, array, known), as_row(known)
    return {
        "episode": episode,
        "start": start,
        "length": steps.stop - steps.start,
        "values": values,
        "present": present,
    }


def values_of(seen: TrajectoryDataset, m: Modality, steps: slice) -> tuple[NDArray[Any], BoolArray]:
    """Copies of the values of a modality, (S, *shape), and where there are any, (S,)."""
    count = steps.stop - steps.start
    if m.name not in seen.names:
        kind = np.int64 if m.kind == "discrete" else np.float32
        return np.zeros((count, *m.shape), kind), np.zeros(count, bool)
    known = seen.present[m.name][steps] if m.name in seen.present else np.ones(count, bool)
    return np.array(seen.arrays[m.name][steps]), np.array(known)


def as_json(m: Modality, values: NDArray[Any], said: BoolArray) -> list[Any]:
    """Values, (S, *shape), as lists: numbers flat, classes plain, None where nothing is said."""
    if m.kind == "discrete":
        return [int(v) if s else None for v, s in zip(values, said, strict=True)]
    flat = values.reshape(len(values), m.size).astype(np.float64)
    said = said & np.isfinite(flat).all(axis=1)  # a network that diverged says nothing
    return [row if s else None for row, s in zip(flat.tolist(), said, strict=True)]


def as_row(marks: BoolArray) -> str:
    """Booleans, (S,), as a string of 0 and 1."""
    return "".join("1" if mark else "0" for mark in marks)


def _summary(dataset: TrajectoryDataset, episode: int) -> dict[str, Any]:
    """Length, return and absences of an episode, of which only these are read."""
    steps = slice(int(dataset.starts[episode]), int(dataset.ends[episode]))
    absent = {}
    for name, known in dataset.present.items():
        share = 1 - float(np.mean(known[steps]))
        if share > 0:
            absent[name] = share
    ended = dataset.terminated
    return {
        "episode": episode,
        "length": steps.stop - steps.start,
        "return": _sum_of_rewards(dataset, steps, absent),
        "terminated": None if ended is None else bool(ended[episode]),
        "absent": absent,
    }


def _sum_of_rewards(
    dataset: TrajectoryDataset, steps: slice, absent: dict[str, float]
) -> float | None:
    try:
        name = reward_of(dataset).name
    except DataError:
        return None
    if name in absent or steps.stop - steps.start > MOST_DRAWN:
        return None
    return float(np.sum(dataset.arrays[name][steps], dtype=np.float64))


def _drawn(
    dataset: TrajectoryDataset, seen: TrajectoryDataset, episode: int, stride: int
) -> tuple[str | None, NDArray[Any] | None, BoolArray]:
    """What a timeline shows: its name, values and where they are known, every `stride` steps."""
    try:
        name = reward_of(dataset).name
        holder = dataset
        steps = slice(int(dataset.starts[episode]), int(dataset.ends[episode]), stride)
    except DataError:
        returns = [m for m in seen.modalities if m.role == "return" and m.size == 1]
        if not returns:
            return None, None, np.zeros(0, bool)
        name, holder, steps = returns[0].name, seen, slice(None, None, stride)
    values = np.array(holder.arrays[name][steps], np.float64).reshape(-1)
    known = holder.present.get(name)
    return name, values, np.ones(len(values), bool) if known is None else np.array(known[steps])


def _buckets(
    values: NDArray[Any], known: BoolArray, edges: IntArray
) -> dict[str, list[float | None]]:
    """Mean, least and largest of the known values from edge to edge; None where there is none."""
    first = edges[:-1]
    counts = np.add.reduceat(known.astype(np.int64), first)
    found = {
        "mean": np.add.reduceat(np.where(known, values, 0.0), first) / np.maximum(counts, 1),
        "low": np.minimum.reduceat(np.where(known, values, np.inf), first),
        "high": np.maximum.reduceat(np.where(known, values, -np.inf), first),
    }
    return {
        key: [float(v) if n else None for v, n in zip(array, counts, strict=True)]
        for key, array in found.items()
    }


def _stretches(absent: BoolArray, stride: int, length: int) -> list[list[int]]:
    """Where something is absent, as [first, one past the last]."""
    change = np.flatnonzero(np.diff(np.concatenate([[False], absent, [False]]).astype(np.int8)))
    pairs = np.minimum(change.reshape(-1, 2) * stride, length)
    while len(pairs) > MOST_STRETCHES:  # the narrowest gaps between them are closed
        narrow = np.argsort(pairs[1:, 0] - pairs[:-1, 1])[: len(pairs) - MOST_STRETCHES]
        keep = np.ones(len(pairs), bool)
        keep[narrow + 1] = False
        ends = np.append(np.flatnonzero(keep)[1:] - 1, len(pairs) - 1)
        pairs = np.stack([pairs[keep, 0], pairs[ends, 1]], axis=1)
    return [[int(a), int(b)] for a, b in pairs]
