"""A list of episodes and files to leave out, as a file that people can read and edit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from mtm.core.atomic_write import write_atomically
from mtm.core.errors import DataError
from mtm.core.plain_data import expecting, read_object, whole
from mtm.core.reading import AS_IT_IS, Reading
from mtm.data.loading import DataSpec, load_parts
from mtm.data.trajectories import TrajectoryDataset

KEYS = {"episodes", "of", "files"}


@dataclass(frozen=True)
class LeftOut:
    """What to leave out of a data set.

    Attributes:
        episodes: Their numbers, counted over all files but those that are left out.
        of: How many episodes there are, counted likewise: numbers mean nothing in other data.
        files: Files of a directory that are left out whole.
    """

    episodes: tuple[int, ...]
    of: int
    files: tuple[str, ...] = ()

    @classmethod
    def read(cls, file: Path) -> LeftOut:
        """The list in a file.

        Raises:
            DataError: It is no such list; the message says why.
        """
        cure = (
            'It should hold {"episodes": [3, 17], "of": 60, "files": []}, as mtm doctor --without '
            "FILE writes it."
        )
        with expecting(file, DataError, cure):
            content = read_object(file)
            foreign = sorted(content.keys() - KEYS)
            if foreign:
                raise ValueError(f"unknown key {foreign[0]!r}, allowed are {sorted(KEYS)}")
            of, episodes, files = whole(content, "of", 1), content["episodes"], content["files"]
            if not isinstance(episodes, list) or any(
                type(e) is not int or not 0 <= e < of for e in episodes
            ):
                raise ValueError(f"episodes must be whole numbers from 0 to {of - 1}")
            if not isinstance(files, list) or not all(isinstance(f, str) for f in files):
                raise ValueError(f"files must be names, got {files!r}")
            return cls(tuple(sorted(set(episodes))), of, tuple(files))

    def write(self, file: Path) -> None:
        """Write the list.

        Raises:
            RunError: It could not be written.
        """
        write_atomically(file, (json.dumps(asdict(self), indent=1) + "\n").encode())

    def parts(self, spec: DataSpec, reading: Reading = AS_IT_IS) -> Iterator[TrajectoryDataset]:
        """What is left of a data set, file by file.

        Raises:
            DataError: As `load_parts`; also if the data have another number of episodes, or none is
                left.
        """
        seen, kept = 0, 0
        for part in load_parts(spec, reading, self.files):
            numbers = seen + np.arange(part.num_episodes)
            chosen = np.flatnonzero(~np.isin(numbers, self.episodes))
            seen, kept = seen + part.num_episodes, kept + len(chosen)
            if len(chosen):
                yield part if len(chosen) == part.num_episodes else part.subset(chosen)
        if seen != self.of:
            raise DataError(
                f"the list of what to leave out was made for {self.of:,} episodes, {spec} has "
                f"{seen:,} now: its numbers mean other episodes. Make it again: mtm doctor {spec} "
                "--without FILE"
            )
        if not kept:
            raise DataError(f"all {seen:,} episodes of {spec} are left out; nothing remains.")
