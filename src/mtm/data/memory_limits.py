"""How much memory the values of a file may take; what claims more is refused before any is taken.

A few bytes can claim terabytes: a header that says 10^12 rows, a data set of HDF5 none of whose
chunks were written, a pickle that names the same array a thousand times. Two bounds hold, of all
values of a file together:

- `SMALL` + `MOST_TIMES` the file's size. Deflate, of which `.npz` and HDF5 are made, cannot pack
  more than 1,032 bytes into one.
- The memory that the machine has left.
"""

from __future__ import annotations

import math
from pathlib import Path

from mtm.core.errors import DataError
from mtm.core.system import available_memory

SMALL = 1 << 26
"""Bytes that any file may claim: constant columns cost next to nothing on disk."""

MOST_TIMES = 1100
"""Bytes in memory for a byte of a file that may be compressed."""


class Allowance:
    """The bytes that are left for the values of a file.

    Args:
        path: The file, or the folder of a data set of several files.
        times: Bytes in memory for a byte on disk; `MOST_TIMES` if not given.
    """

    def __init__(self, path: Path, *, times: int | None = None) -> None:
        files = path.rglob("*") if path.is_dir() else (path,)
        self._size = sum(file.stat().st_size for file in files if file.is_file())
        self._path = path
        self._of_file = SMALL + (times or MOST_TIMES) * self._size
        self._of_machine = available_memory()
        self._taken = 0

    def take(self, what: str, *counts: int) -> None:
        """Set the memory of some values aside.

        Args:
            what: They are, as `member 'states'`.
            *counts: Whose product is their bytes.

        Raises:
            DataError: There is not so much left.
        """
        claimed = math.prod(int(count) for count in counts)
        self._taken += claimed
        if claimed < 0 or self._taken > self._of_file:
            raise DataError(
                f"{self._path}: {what} claims {claimed:,} bytes, a file of {self._size:,} bytes "
                f"may claim {self._of_file:,} in all; it is damaged, or made to exhaust memory. "
                "Fetch it again, or cut it into several files."
            )
        if self._of_machine is not None and self._taken > self._of_machine:
            raise DataError(
                f"{self._path}: {what} brings its values to {self._taken:,} bytes, this machine "
                f"has {self._of_machine:,} left. Cut it into several files in a folder, and make a "
                "store of them with `mtm data convert`, which needs memory for one at a time."
            )
