"""Episodes of the original research release: a pickle with a list of dicts of NumPy arrays.

A pickle is a program, so it is not run as one. The reader below knows the few names that a pickle
of arrays needs, and has a stand-in of its own for each, which checks what it is given. Any other
name is refused. Nothing is imported, and NumPy's own unpickling, which trusts what it is told, is
not called.
"""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mtm.core.errors import DataError
from mtm.core.reading import AS_IT_IS, Reading
from mtm.data.columns import regroup
from mtm.data.environment_ids import ADROIT, ADROIT_STEPS, NAMES
from mtm.data.trajectories import Metadata, TrajectoryDataset

MODALITY_NAMES = {"observations": "states", "actions": "actions", "rewards": "rewards"}
"""What is taken from each episode, and what it is called here."""

NEEDED = ("observations", "actions")

GOAL_ACHIEVED = "goal_achieved"
"""Adroit's success of each step, which is what its rewards are here, as in the paper."""

DTYPES = re.compile(r"[<>=|]?([?]|b1|[iu][1248]|f[248])")
"""The kinds of numbers that are admitted: booleans, integers, floating point."""


class RefusedError(Exception):
    """The pickle asks for something that a file of arrays does not need."""


def load_file(path: Path, reading: Reading = AS_IT_IS) -> TrajectoryDataset:
    """Read a pickle with a list of episodes: `observations, actions, rewards`.

    Where an episode has `goal_achieved`, or `env_infos` has it, that is the reward. Other entries
    are left alone. The environment is taken from a word of the file's name, or from the name of its
    folder, if that is one of Adroit's: door, pen, hammer, relocate.

    Raises:
        DataError: The file is damaged, is not such a list, or is refused because it names anything
            but plain containers and arrays of numbers; the message says what. No such thing is run.
    """
    stored = _read(path)
    if not isinstance(stored, list):
        raise DataError(f"{path}: a list of episodes is needed, what it holds is {_kind(stored)}.")
    try:
        episodes = [_episode(i, episode) for i, episode in enumerate(stored)]
        longest = max((len(episode["actions"]) for episode in episodes), default=0)
        dataset = TrajectoryDataset.from_episodes(
            episodes, metadata=_metadata(path, longest), nan_is_absent=reading.nan_is_absent
        )
        return regroup(dataset, reading)
    except DataError as error:
        raise error.at(path) from error


def _metadata(path: Path, longest: int) -> Metadata:
    words = [*re.split(r"[^a-z]+", path.stem.lower()), path.resolve().parent.name.lower()]
    task = next((word for word in words if word in ADROIT), None)
    if task is None:
        return Metadata(source=path.name)
    # Demonstrations by people go on for longer than an episode of the environment does.
    horizon = max(ADROIT_STEPS[task], longest)
    return Metadata(source=path.name, env_id=f"{NAMES[task]}-v1", horizon=horizon)


def _episode(index: int, episode: Any) -> dict[str, NDArray[Any]]:
    if not isinstance(episode, dict):
        raise DataError(f"episode {index} is {_kind(episode)}, a dict of arrays is needed.")
    if missing := [key for key in NEEDED if key not in episode]:
        raise DataError(
            f"episode {index} lacks {' and '.join(missing)}; it holds "
            f"{', '.join(map(str, episode)) or 'nothing'}."
        )
    arrays = {
        name: _numbers(index, key, episode[key])
        for key, name in MODALITY_NAMES.items()
        if key in episode
    }
    for place in (episode, episode.get("env_infos")):
        if isinstance(place, dict) and GOAL_ACHIEVED in place:
            arrays["rewards"] = _numbers(index, GOAL_ACHIEVED, place[GOAL_ACHIEVED])
    if "rewards" in arrays and arrays["rewards"].shape[1:] == (1,):
        arrays["rewards"] = arrays["rewards"][:, 0]
    return arrays


def _numbers(index: int, key: str, value: Any) -> NDArray[Any]:
    """An array from an array, or from a list of numbers or of arrays, one per step."""
    if isinstance(value, _Array) and value.array.ndim > 0:
        return value.array
    if isinstance(value, list):
        rows = [row.array if isinstance(row, _Array) else row for row in value]
        if all(isinstance(row, np.ndarray | bool | int | float) for row in rows):
            try:
                return np.asarray(rows)
            except (ValueError, OverflowError) as error:
                raise DataError(
                    f"episode {index}: {key!r} is not a regular array ({error})."
                ) from error
    raise DataError(f"episode {index}: {key!r} is {_kind(value)}, numbers per step are needed.")


def _kind(value: Any) -> str:
    if isinstance(value, _Array):
        return f"an array of shape {value.array.shape}"
    return f"of type {type(value).__name__}"


def _read(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            return _Reader(file, encoding="latin1").load()
    except RefusedError as error:
        raise DataError(
            f"{path} is refused: {error}. Only plain containers and NumPy arrays of numbers are "
            "read from a pickle; convert it to .npz or .hdf5 where you trust it."
        ) from error
    except Exception as error:  # a damaged pickle can raise whatever its operations do
        raise DataError(
            f"{path} cannot be read as a pickle ({type(error).__name__}: {error}); it is damaged "
            "or incomplete. Fetch it again."
        ) from error


class _Dtype:
    """Stands for `numpy.dtype`."""

    def __init__(self, code: Any, *_: Any) -> None:
        if not isinstance(code, str) or not DTYPES.fullmatch(code):
            raise RefusedError(f"it holds an array of dtype {code!r}")
        self.dtype = np.dtype(code)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        """NumPy's state: version, byte order, and what only structured types have."""
        order = state[1]
        if order not in ("<", ">", "=", "|"):
            raise RefusedError(f"it holds an array of byte order {order!r}")
        self.dtype = self.dtype.newbyteorder(order)


class _Array:
    """Stands for `numpy.ndarray` and for what makes an empty one."""

    def __init__(self, *_: Any) -> None:
        self.array: NDArray[Any] = np.zeros(0)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        """NumPy's state: version, shape, dtype, whether columns come first, bytes."""
        _, shape, dtype, columns_first, data = state
        self.array = _array(data, dtype, shape, "F" if columns_first else "C")


class _ArrayFromBuffer(_Array):
    """Stands for the maker of arrays of protocol 5."""

    def __init__(self, data: Any, dtype: Any, shape: Any, order: Any, axes: Any = None) -> None:
        self.array = _array(data, dtype, shape, "F" if order == "F" else "C")
        if axes is not None:
            self.array = self.array.transpose(axes)


class _Scalar(_Array):
    """Stands for the maker of NumPy's scalars."""

    def __init__(self, dtype: Any, data: Any) -> None:
        self.array = _array(data, dtype, (), "C")


def _array(data: Any, dtype: Any, shape: Any, order: Literal["C", "F"]) -> NDArray[Any]:
    """The array of these bytes, which it shares."""
    if isinstance(data, str):  # written by Python 2
        data = data.encode("latin1")
    if not isinstance(data, bytes | bytearray) or not isinstance(dtype, _Dtype):
        raise ValueError("an array needs bytes and a dtype")
    if not isinstance(shape, tuple) or any(not isinstance(n, int) or n < 0 for n in shape):
        raise ValueError(f"an array cannot have shape {shape!r}")
    return np.frombuffer(data, dtype.dtype).reshape(shape, order=order)


class _Latin1:
    """Stands for `codecs.encode`, by which the protocols up to 2 write bytes."""

    def __new__(cls, text: Any, codec: Any) -> Any:
        """The bytes; no other codec than that one."""
        if not isinstance(text, str) or codec not in ("latin1", "latin-1"):
            raise RefusedError(f"it asks for the codec {codec!r}")
        return text.encode("latin1")

    def __setstate__(self, state: Any) -> None:
        """Without this, a pickle could set attributes of the class."""


STAND_INS: dict[tuple[str, str], type] = {
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy.core.multiarray", "scalar"): _Scalar,
    ("numpy._core.multiarray", "scalar"): _Scalar,
    ("numpy.core.numeric", "_frombuffer"): _ArrayFromBuffer,
    ("numpy._core.numeric", "_frombuffer"): _ArrayFromBuffer,
    ("_codecs", "encode"): _Latin1,
    ("collections", "OrderedDict"): dict,
}
"""All that a pickle may name: (module, name), for NumPy 1 and 2."""


# The reader that is written in Python, not the one in C: that one takes as much memory as a damaged
# file tells it to, tens of gigabytes for a few wrong bytes.
class _Reader(pickle._Unpickler):
    """Reads a pickle that names nothing but the stand-ins."""

    def find_class(self, module: str, name: str) -> Any:
        """The stand-in of a name."""
        if (module, name) not in STAND_INS:
            raise RefusedError(f"it names {module}.{name}")
        return STAND_INS[module, name]

    def get_extension(self, code: int) -> Any:
        """Refuse names that are given by a number."""
        raise RefusedError(f"it names extension {code}")
