"""HDF5 files that are written: a full disk is an error, where the library would crash.

The library keeps what it could not write and tries again whenever something is closed; a process
that goes on after that ends by a signal. So it is told that all was written, and the error is
raised afterwards, from here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Any

import h5py


@contextmanager
def hdf5_output(path: Path, **options: Any) -> Iterator[h5py.File]:
    """A new HDF5 file, flushed to the disk at the end.

    Args:
        path: The file.
        **options: Of h5py.File.

    Raises:
        OSError: It could not be written.
    """
    with FileIO(path, "w+") as raw:
        output = _Output(raw)
        try:
            with h5py.File(output, "w", **options) as file:
                yield file
        except Exception:
            output.check()  # rather than what came of it
            raise
        output.check()
        os.fsync(raw.fileno())


class _Output:
    """A file that takes whatever is written, and remembers the first error of it.

    h5py calls these methods, as those of any file in Python.
    """

    def __init__(self, raw: FileIO) -> None:
        self._raw = raw
        self._place = self._end = 0
        self._error: OSError | None = None

    def check(self) -> None:
        """Raise the first error, if there was one."""
        if self._error is not None:
            raise self._error

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a place."""
        begin = {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self._end}[whence]
        self._place = begin + offset
        return self._place

    def tell(self) -> int:
        """The place."""
        return self._place

    def read(self, size: int = -1) -> bytes:
        """Bytes from the place on."""
        buffer = bytearray(self._end - self._place if size < 0 else size)
        return bytes(buffer[: self.readinto(buffer)])

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer from the place on; with zeros where nothing could be written."""
        self._raw.seek(self._place)
        view = memoryview(buffer).cast("B")
        count = min(len(view), max(self._end - self._place, 0))
        done = 0
        while done < count and (found := self._raw.readinto(view[done:count])):
            done += found
        view[done:count] = bytes(count - done)
        self._place += count
        return count

    def write(self, data: Any) -> int:
        """Write all of some bytes, or remember why not."""
        view = memoryview(data).cast("B")
        if self._error is None:
            try:
                self._raw.seek(self._place)
                done = 0
                while done < len(view):
                    done += self._raw.write(view[done:])
            except OSError as error:
                self._error = error
        self._place += len(view)
        self._end = max(self._end, self._place)
        return len(view)

    def truncate(self, size: int | None = None) -> int:
        """Cut off, or extend."""
        self._end = self._place if size is None else size
        if self._error is None:
            try:
                self._raw.truncate(self._end)
            except OSError as error:
                self._error = error
        return self._end

    def flush(self) -> None:
        """Nothing waits to be written here."""
