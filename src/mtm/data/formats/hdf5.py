"""HDF5, opened so that a file gives nothing but its own bytes.

HDF5 has three ways to show another file's bytes as one's own: external links, external storage, and
virtual data sets. In a file from elsewhere they would read whatever this user may read, so a file
that has any is refused. Every reader of HDF5 opens its files here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from h5py import h5d, h5g, h5l, h5o
from numpy.typing import NDArray

from mtm.core.errors import DataError
from mtm.data.memory_limits import Allowance

DAMAGE = (OSError, RuntimeError, LookupError, ValueError, TypeError, ArithmeticError, MemoryError)
"""What h5py raises when it meets a damaged file."""


@contextmanager
def opened(path: Path) -> Iterator[h5py.File]:
    """Open a file to read; what h5py raises inside is told as damage.

    Raises:
        DataError: The file is damaged, or shows bytes of other files.
    """
    try:
        with h5py.File(path, "r") as file:
            _refuse_other_files(path, file)
            yield file
    except DataError:
        raise
    except DAMAGE as error:
        raise DataError(
            f"{path} cannot be read as HDF5 ({error}); it is damaged or incomplete. Fetch it again."
        ) from error


def check_file(path: Path) -> None:
    """Look at a file that a library is about to read as a whole.

    Raises:
        DataError: As `opened`, or its arrays claim more memory than they may.
    """
    allowance = Allowance(path)
    with opened(path) as file:

        def look(name: str, item: Any) -> None:
            if isinstance(item, h5py.Dataset):
                allowance.take(f"array {name!r}", *(item.shape or ()), item.dtype.itemsize)

        file.visititems(look)


def read_array(path: Path, key: str | bytes, item: h5py.Dataset, left: Allowance) -> NDArray[Any]:
    """An array with a row of numbers per step.

    Raises:
        DataError: It is something else, or claims more memory than there is for it.
    """
    if isinstance(key, bytes):  # what h5py makes of a name that is no text
        raise DataError(f"{path}: an array is called {key!r}; the file is damaged. Fetch it again.")
    if item.dtype.kind not in "fiub" or not item.shape:
        raise DataError(
            f"{path}: {key!r} holds {item.dtype} of shape {item.shape}; a row of numbers per "
            "step is needed."
        )
    left.take(f"array {key!r}", *item.shape, item.dtype.itemsize)
    values: NDArray[Any] = item[()]
    return values


def read_attributes(file: h5py.File, left: Allowance) -> dict[str, Any]:
    """The attributes of a file as plain values.

    Raises:
        DataError: One claims more memory than there is for it.
    """
    found = {}
    for key in file.attrs:
        stored = file.attrs.get_id(key)
        left.take(f"attribute {key!r}", *(stored.shape or ()), stored.dtype.itemsize)
        found[key] = _plain(file.attrs[key])
    return found


def _refuse_other_files(path: Path, file: h5py.File) -> None:
    """Raise a `DataError` if anything in a file is kept in another one."""
    groups, seen = [(b"", file.id)], {h5o.get_info(file.id).addr}  # groups may hold each other
    while groups:
        before, group = groups.pop()
        for name in list(group):
            place, kind, what = before + name, group.links.get_info(name).type, None
            if kind == h5l.TYPE_HARD:
                item = h5o.open(group, name)
                if isinstance(item, h5d.DatasetID):
                    what = _kept_elsewhere(item.get_create_plist())
                elif isinstance(item, h5g.GroupID) and h5o.get_info(item).addr not in seen:
                    seen.add(h5o.get_info(item).addr)
                    groups.append((place + b"/", item))
            elif kind != h5l.TYPE_SOFT:  # those stay within the file
                what = "an external link"
            if what is not None:
                raise DataError(
                    f"{path}: {place.decode(errors='replace')!r} is {what}: its values lie in "
                    "another file. Only what a file holds itself is read; copy everything into one."
                )


def _kept_elsewhere(layout: Any) -> str | None:
    """How a data set is kept in other files, if it is."""
    if layout.get_layout() == h5d.VIRTUAL:
        return "a virtual data set"
    return "kept in external storage" if layout.get_external_count() else None


def _plain(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    return value.decode(errors="replace") if isinstance(value, bytes) else value
