"""Episodes of the original research release: a pickle with a list of dicts of NumPy arrays.

A pickle is a program, so it is not run as one. The reader below knows the few names that a pickle
of arrays needs, and has a stand-in of its own for each, which checks what it is given. Any other
name is refused. Nothing is imported, and NumPy's own unpickling, which trusts what it is told, is
not called.
"""

from __future__ import annotations

import os
import pickle
import re
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from reprlib import repr as brief
from typing import IO, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from mtm.core.errors import DataError
from mtm.core.reading import AS_IT_IS, Reading
from mtm.data.columns import regroup
from mtm.data.environment_ids import ADROIT, ADROIT_STEPS, NAMES
from mtm.data.memory_limits import Allowance
from mtm.data.trajectories import Metadata, TrajectoryDataset

MODALITY_NAMES = {"observations": "states", "actions": "actions", "rewards": "rewards"}
"""What is taken from each episode, and what it is called here."""

NEEDED = ("observations", "actions")

GOAL_ACHIEVED = "goal_achieved"
"""Adroit's success of each step, which is what its rewards are here, as in the paper."""

DTYPES = re.compile(r"[<>=|]?([?]|b1|[iu][1248]|f[248])")
"""The kinds of numbers that are admitted: booleans, integers, floating point."""


EXPANSION = 16
"""Bytes in memory for a byte of a pickle: a small integer takes two there, and eight here."""


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
    left = Allowance(path, times=EXPANSION)
    for i, episode in enumerate(stored):
        _set_aside(i, episode, left)
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


def _set_aside(index: int, episode: Any, left: Allowance) -> None:
    """Count what an episode will take, before any of it is taken: it may be named many times."""
    if not isinstance(episode, dict):
        return
    infos = episode.get("env_infos")
    for place in (episode, infos if isinstance(infos, dict) else {}):
        for key in (*MODALITY_NAMES, GOAL_ACHIEVED):
            value = place.get(key)
            rows = value if isinstance(value, list) else [value]
            size = sum(row.array.size if isinstance(row, _Array) else 1 for row in rows)
            left.take(f"episode {index}: {key!r}", size, 8)


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
            return _Reader(_Bounded(file), encoding="latin1").load()
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
            raise RefusedError(f"it holds an array of dtype {brief(code)}")
        self.dtype = np.dtype(code)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        """NumPy's state: version, byte order, and what only structured types have."""
        order = state[1]
        if order not in ("<", ">", "=", "|"):
            raise RefusedError(f"it holds an array of byte order {brief(order)}")
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
        raise ValueError(f"an array cannot have shape {brief(shape)}")
    return np.frombuffer(data, dtype.dtype).reshape(shape, order=order)


class _Latin1:
    """Stands for `codecs.encode`, by which the protocols up to 2 write bytes."""

    def __new__(cls, text: Any, codec: Any) -> Any:
        """The bytes; no other codec than that one."""
        if not isinstance(text, str) or codec not in ("latin1", "latin-1"):
            raise RefusedError(f"it asks for the codec {brief(codec)}")
        return text.encode("latin1")

    def __setstate__(self, state: Any) -> None:
        """Without this, a pickle could set attributes of the class."""


class _Dict(dict[Any, Any]):
    """Stands for `collections.OrderedDict`."""

    def __init__(self, pairs: Any = ()) -> None:
        super().__init__(_with_plain_keys((key, value) for key, value in pairs))

    def __setstate__(self, state: Any) -> None:
        """Without this, a pickle could set attributes of the class."""


def _with_plain_keys(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    """A dict; to hash tuples of tuples of tuples, the same in each, would take for ever."""
    found = {}
    for key, value in pairs:
        if not isinstance(key, str | bytes | int | float | None):
            raise RefusedError(f"it has a key of type {type(key).__name__}")
        found[key] = value
    return found


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
    ("collections", "OrderedDict"): _Dict,
}
"""All that a pickle may name: (module, name), for NumPy 1 and 2."""


class _Bounded:
    """A file that gives no more bytes than it has, before memory for them is taken."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._left = file, os.fstat(file.fileno()).st_size
        self.readline = self._file.readline

    def read(self, count: int) -> bytes:
        """So many bytes.

        Raises:
            EOFError: There are not so many in the file.
        """
        if count > self._left:
            raise EOFError(f"{count:,} bytes are announced in a file of {self._left:,}")
        return self._file.read(count)


# The reader that is written in Python, not the one in C: that one takes as much memory as a damaged
# file tells it to, tens of gigabytes for a few wrong bytes.
class _Reader(pickle._Unpickler):
    """Reads a pickle that names nothing but the stand-ins."""

    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = dict(pickle._Unpickler.dispatch)
    read: Callable[[int], bytes]
    append: Callable[[Any], None]
    pop_mark: Callable[[], list[Any]]
    stack: list[Any]

    def find_class(self, module: str, name: str) -> Any:
        """The stand-in of a name."""
        if (module, name) not in STAND_INS:
            raise RefusedError(f"it names {module}.{name}")
        return STAND_INS[module, name]

    def get_extension(self, code: int) -> Any:
        """Refuse names that are given by a number."""
        raise RefusedError(f"it names extension {code}")

    def load_bytearray8(self) -> None:
        """Bytes that may be changed; Python would make room for them before it looks for them."""
        (size,) = struct.unpack("<Q", self.read(8))
        self.append(bytearray(self.read(size)))

    def load_setitem(self) -> None:
        """One entry of a dict."""
        value, key = self.stack.pop(), self.stack.pop()
        self.stack[-1].update(_with_plain_keys([(key, value)]))

    def load_setitems(self) -> None:
        """Some entries of a dict."""
        items = self.pop_mark()
        self.stack[-1].update(_with_plain_keys(zip(items[::2], items[1::2], strict=True)))

    def load_dict(self) -> None:
        """A dict with its entries."""
        items = self.pop_mark()
        self.append(_with_plain_keys(zip(items[::2], items[1::2], strict=True)))

    def load_sets(self) -> None:
        """Refuse sets: hashing what is in them can take for ever, and arrays need none."""
        raise RefusedError("it holds a set")


_Reader.dispatch |= {
    pickle.BYTEARRAY8[0]: _Reader.load_bytearray8,
    pickle.SETITEM[0]: _Reader.load_setitem,
    pickle.SETITEMS[0]: _Reader.load_setitems,
    pickle.DICT[0]: _Reader.load_dict,
    **dict.fromkeys((*pickle.EMPTY_SET, *pickle.FROZENSET), _Reader.load_sets),
}
