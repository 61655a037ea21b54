"""`.npz`: flat arrays, one per modality.

`offsets`, a column of episodes, or `terminals` and `timeouts` as in D4RL, mark the episodes;
`NAME_present` holds booleans that say where modality NAME is present; `max_episode_steps` is a
single number. As in HDF5, `infos/NAME` is no modality unless it is named as a column.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from mtm.core.errors import DataError
from mtm.core.reading import AS_IT_IS, Reading
from mtm.data.columns import INFOS, as_horizon, dataset_of
from mtm.data.memory_limits import Allowance
from mtm.data.trajectories import Metadata, TrajectoryDataset

HORIZON = "max_episode_steps"

NPY = ".npy"
"""How the members of the archive are called that are arrays."""


def load_file(path: Path, reading: Reading = AS_IT_IS) -> TrajectoryDataset:
    """Read an `.npz` of flat arrays; object arrays are refused, never unpickled.

    Raises:
        DataError: The file is damaged, or does not say where episodes end.
    """
    arrays = read_members(path)
    single = {key: arrays.pop(key) for key in list(arrays) if np.ndim(arrays[key]) == 0}
    horizon = as_horizon(path, single.pop(HORIZON).item() if HORIZON in single else None)
    for key, value in single.items():
        if value.dtype.kind != "U":
            raise DataError(f"{path}: {key!r} is a single number; a row per step is needed.")
    notes = {key: str(value) for key, value in single.items()}
    asked = [column for columns in reading.columns_of().values() for column in columns]
    arrays = {k: a for k, a in arrays.items() if k in asked or not k.startswith(INFOS)}
    metadata = Metadata(path.name, notes.pop("env_id", None), horizon, notes)
    return dataset_of(str(path), arrays, reading, metadata)


def read_members(path: Path, keys: Iterable[str] | None = None) -> dict[str, NDArray[Any]]:
    """The arrays of an `.npz`, all or some; object arrays are refused, never unpickled.

    A header is believed only if the archive has as many bytes as it speaks of.

    Raises:
        DataError: The file is damaged, lacks one that is asked for, holds something else than
            arrays of numbers, or claims more memory than it may. The message names the member.
    """
    here = "the archive"
    try:
        with zipfile.ZipFile(path) as archive:
            sizes = {info.filename: info.file_size for info in archive.infolist()}
            names = list(sizes) if keys is None else [f"{key}{NPY}" for key in keys]
            allowance, arrays = Allowance(path), {}
            for name in names:
                here = f"member {name!r}"
                if not name.endswith(NPY):
                    raise ValueError("it is no array")
                if name not in sizes:
                    listed = ", ".join(n.removesuffix(NPY) for n in sizes) or "nothing"
                    raise ValueError(f"it is not there; the archive holds {listed}")
                with archive.open(name) as file:
                    _check_header(here, file, sizes[name], allowance)
                with archive.open(name) as file:
                    arrays[name.removesuffix(NPY)] = npy.read_array(file, allow_pickle=False)
            return arrays
    except DataError:
        raise
    except Exception as error:  # a damaged archive can raise whatever its decoders do
        raise DataError(
            f"{path} cannot be read: {here}: {error or type(error).__name__}. Only plain arrays of "
            "numbers are allowed in it; fetch it again if it is damaged."
        ) from error


def _check_header(what: str, file: IO[bytes], size: int, allowance: Allowance) -> None:
    """Raise unless a member has the bytes that its header speaks of, and there is room for them."""
    version = npy.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"it has version {version} of the format of arrays")
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, _, dtype = read(file)
    if dtype.hasobject:
        raise ValueError(f"it holds objects ({dtype}), which would have to be unpickled")
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != size - file.tell():
        raise ValueError(
            f"its header speaks of {dtype} of shape {shape}, and {size - file.tell():,} bytes "
            "follow it"
        )
    allowance.take(what, *shape, dtype.itemsize)
