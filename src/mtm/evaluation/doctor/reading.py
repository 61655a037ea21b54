"""Read whatever can be read of a data set, and tell the rest as faults."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mtm.core.errors import DataError
from mtm.core.reading import AS_IT_IS, Reading
from mtm.data import concatenate
from mtm.data.faults import CERTAIN, Fault
from mtm.data.loading import DataSpec, absolute, data_files, load, load_available
from mtm.data.origin import Origin
from mtm.data.trajectories import TrajectoryDataset
from mtm.data.verification import stored_faults

CURE = "Repair the file, or leave it out."
AS_TOLD = "As it says."
HAS_GAPS = Fault("no number", "", "")
"""Marks that NaN were read as gaps; each is told with its place later."""


@dataclass(frozen=True)
class Readable:
    """What could be read.

    Attributes:
        dataset: None if nothing could.
        files: The file of each episode; empty if there is one file, or none.
        faults: Of what could not be read, and what was odd about the rest.
        broken: Files that could not be read.
        reading: How it was read: with NaN as gaps where it could not be read otherwise.
    """

    dataset: TrajectoryDataset | None
    files: tuple[str, ...]
    faults: tuple[Fault, ...]
    broken: tuple[str, ...]
    reading: Reading


def read(spec: DataSpec, reading: Reading = AS_IT_IS) -> Readable:
    """Read a data set, a file at a time where it is a directory of files."""
    files = data_files(spec)
    faults: list[Fault] = []
    parts: dict[str, TrajectoryDataset] = {}
    names: tuple[str, ...] = ()
    with warnings.catch_warnings(record=True) as noticed:
        warnings.simplefilter("always")
        if not files:
            dataset = _one(spec, reading, faults)
        else:
            found = {name: _one(file, reading, faults, name) for name, file in files.items()}
            parts = {name: part for name, part in found.items() if part is not None}
            _take_out_unlike(parts, faults)
            dataset = concatenate.join(list(parts.values()), Path(spec).name) if parts else None
            names = tuple(n for n, part in parts.items() for _ in range(part.num_episodes))
    faults += [Fault("odd", str(notice.message), AS_TOLD) for notice in noticed]
    used = reading
    if any(fault.check == HAS_GAPS.check for fault in faults):
        used = replace(reading, nan_is_absent=True)
        faults = [fault for fault in faults if fault != HAS_GAPS]
    if dataset is not None:
        # The reading that the user named: what holds NaN is told by it, not hidden.
        dataset = dataset.with_metadata(origin=Origin(absolute(spec), reading))
        damage = list(stored_faults(dataset))
        faults += [Fault("damaged", text, "Copy or convert the store again.") for text in damage]
        dataset = None if damage else dataset
    broken = tuple(name for name in files if name not in parts)
    return Readable(dataset, names, tuple(faults), broken, used)


def _one(
    spec: DataSpec, reading: Reading, faults: list[Fault], file: str | None = None
) -> TrajectoryDataset | None:
    """One file or data set; with NaN as gaps if it cannot be read otherwise."""
    read_it = load if file is None else load_available
    try:
        return read_it(spec, reading)
    except DataError as error:
        told = error.faults
    if not reading.nan_is_absent:
        try:
            dataset = read_it(spec, replace(reading, nan_is_absent=True))
        except DataError as error:
            told = error.faults
        else:
            faults.append(HAS_GAPS)
            return dataset
    faults += [Fault("unreadable", text, CURE, file=file, weight=CERTAIN) for text in told]
    return None


def _take_out_unlike(parts: dict[str, TrajectoryDataset], faults: list[Fault]) -> None:
    """Take out files whose modalities have another shape or kind than in most of the files."""
    shapes = Counter((m.name, m.shape, m.kind) for part in parts.values() for m in part.modalities)
    for name, part in list(parts.items()):
        for m in part.modalities:
            usual = max((key for key in shapes if key[0] == m.name), key=lambda key: shapes[key])
            if (m.shape, m.kind) != usual[1:]:
                faults.append(
                    Fault(
                        "unlike",
                        f"modality {m.name!r} is {m.kind} of shape {m.shape}, but {usual[2]} of "
                        f"shape {usual[1]} in most files.",
                        CURE,
                        file=name,
                        modality=m.name,
                        weight=CERTAIN,
                    )
                )
                parts.pop(name, None)


def placed(faults: Sequence[Fault], files: Sequence[str]) -> list[Fault]:
    """Faults of episodes with the files that these are in."""
    return [
        replace(fault, file=files[fault.episode])
        if files and fault.file is None and fault.episode is not None
        else fault
        for fault in faults
    ]
