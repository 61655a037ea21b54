"""Writing a data set in LeRobot's format v3, so that LeRobot itself loads it.

The only modality of role state is `observation.state`, the only action `action`, the only reward
`next.reward`; several of a role are `observation.NAME` and `action.NAME`. LeRobot knows no gaps:
where a value is absent there is NaN, or -1 for a class, and `present.FEATURE` says where it is not.
Notes on steps are features of their own. `meta/mtm.json` holds what LeRobot has no word for.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from mtm.core.errors import DataError, require
from mtm.data.formats.lerobot import (
    DONE,
    EPISODE,
    EPISODES,
    EXPECTED_ERROR,
    INFO,
    OWN,
    PREDICTED,
    PRESENT_MARK,
    REWARD,
    TRUNCATED,
)
from mtm.data.formats.lerobot_stats import Statistics, aggregate, statistics
from mtm.data.modalities import Modality
from mtm.data.trajectories import ABSENT_CLASS, TrajectoryDataset

EXTRA = "parquet"
FPS = "fps"
"""Note of the metadata: steps of a second."""
TASK = "task"
"""Note of the metadata: what was to be done, in words."""

DATA_PATH = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
CHUNK_FILES = 1000
FILE_BYTES = 100 << 20
ROWS_TOGETHER = 1 << 15
"""Frames that are written together."""
EPISODES_TOGETHER = 1000

ONLY = {"state": "observation.state", "action": "action", "reward": REWARD}
"""Role -> what the only modality of it is called."""
SUFFIXES = {"_expected_error": EXPECTED_ERROR, "_predicted": PREDICTED}
"""How notes on a modality end -> what stands before the feature."""

Columns = dict[str, NDArray[Any]]


def write_folder(dataset: TrajectoryDataset, notes: Mapping[str, NDArray[Any]], root: Path) -> None:
    """Write episodes with notes on their steps; some at a time are in memory.

    Args:
        dataset: Whose metadata has the note `fps`.
        notes: Arrays with a row per step.
        root: A folder, which is made.

    Raises:
        DataError: The rate is not known, or two features would have the same name.
        MissingExtraError: pyarrow is not installed.
    """
    fps = _fps(dataset)
    named = _feature_names(dataset, notes)
    totals: dict[str, Statistics] = {}
    features: dict[str, Any] = {}
    with _Frames(root) as frames, _Rows(root / EPISODES / "chunk-000/file-000.parquet") as rows:
        for index, columns in enumerate(_episodes(dataset, notes, named, fps)):
            stats = {name: statistics(values) for name, values in columns.items()}
            totals = {name: aggregate(totals.get(name), s) for name, s in stats.items()}
            features = features or {name: _declared(v) for name, v in columns.items()}
            begin, end = int(columns["index"][0]), int(columns["index"][-1]) + 1
            place = frames.add(columns)
            rows.add(_episode_row(index, begin, end, _task(dataset), place, stats))
    _write_tasks(root, _task(dataset))
    _write_json(root / INFO, _info(dataset, features, fps))
    _write_json(root / "meta/stats.json", {n: _listed(s) for n, s in totals.items()})
    own = {
        "modalities": {named[m.name]: m.to_json() for m in dataset.modalities},
        "metadata": dataset.metadata.to_json(),
    }
    _write_json(root / OWN, own)


def _fps(dataset: TrajectoryDataset) -> float:
    said = dataset.metadata.notes.get(FPS)
    try:
        fps = float(said or "nan")
    except ValueError:
        fps = float("nan")
    if not 0 < fps < 1e9:
        raise DataError(
            f"{dataset.metadata.source}: LeRobot needs to know how many steps a second has; the "
            f"data {'do not say it' if said is None else f'say {said!r}'}. Give it: --fps 50 on "
            "the command line, metadata.notes['fps'] in Python."
        )
    return fps


def _task(dataset: TrajectoryDataset) -> str:
    metadata = dataset.metadata
    return metadata.notes.get(TASK) or metadata.env_id or metadata.source


def _feature_names(dataset: TrajectoryDataset, notes: Mapping[str, NDArray[Any]]) -> dict[str, str]:
    """Modality or note -> the name of its feature."""
    roles = Counter(m.role for m in dataset.modalities)
    named = {m.name: _feature_name(m, roles[m.role] == 1) for m in dataset.modalities}
    for key in notes:
        named[key] = key.replace("/", ".")
        for ending, before in SUFFIXES.items():
            if key.endswith(ending):
                name = key.removesuffix(ending)
                named[key] = before + (named.get(name) or _usual(name) or name)
    taken = Counter([*named.values(), *_bookkeeping(1, 0, 0, 1.0), DONE, TRUNCATED])
    twice = [name for name, count in taken.items() if count > 1]
    if twice:
        raise DataError(
            f"{dataset.metadata.source}: two features would be called {twice[0]!r}, one of them a "
            "modality. Give the modality another name (--reading.columns)."
        )
    return named


def _feature_name(m: Modality, alone: bool) -> str:
    if alone and m.role in ONLY:
        return ONLY[m.role]
    before = {"state": "observation.", "action": "action."}.get(m.role, "")
    return _usual(m.name) or before + m.name.replace("/", ".")


def _usual(name: str) -> str | None:
    """LeRobot's word for a modality that has one."""
    return {"states": ONLY["state"], "actions": ONLY["action"], "rewards": REWARD}.get(name)


def _episodes(
    dataset: TrajectoryDataset,
    notes: Mapping[str, NDArray[Any]],
    named: Mapping[str, str],
    fps: float,
) -> Iterator[Columns]:
    """The columns of each episode: feature -> (length, *shape)."""
    written = 0
    for index in range(dataset.num_episodes):
        steps = slice(int(dataset.starts[index]), int(dataset.ends[index]))
        length = steps.stop - steps.start
        values = dataset.episode(index)
        columns: Columns = {
            named[m.name]: np.ma.filled(values[m.name], ABSENT_CLASS) for m in dataset.modalities
        }
        for name, known in dataset.present.items():
            columns[PRESENT_MARK + named[name]] = np.array(known[steps])
        columns |= {named[key]: np.array(note[steps]) for key, note in notes.items()}
        ends = np.arange(length) == length - 1
        columns[DONE] = ends
        if dataset.terminated is not None:
            columns[TRUNCATED] = ends & ~dataset.terminated[index]
        yield columns | _bookkeeping(length, index, written, fps)
        written += length


def _bookkeeping(length: int, episode: int, first: int, fps: float) -> Columns:
    time = np.arange(length)
    return {
        "timestamp": (time / fps).astype(np.float32),
        "frame_index": time,
        EPISODE: np.full(length, episode),
        "index": first + time,
        "task_index": np.zeros(length, np.int64),
    }


_P = TypeVar("_P", bound="_Pending")


class _Pending:
    """What is written to Parquet some at a time; the rest at the end, unless there was an error."""

    _writer: Any = None

    def __enter__(self: _P) -> _P:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self._flush()
        if self._writer is not None:
            self._writer.close()

    def _flush(self) -> None:
        """Write what is pending."""
        raise NotImplementedError


class _Frames(_Pending):
    """The files of frames: one after the other, none much larger than LeRobot's own."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._pending: list[Any] = []
        self._rows = self._bytes = self._file = 0

    def add(self, columns: Columns) -> tuple[int, int]:
        """Take the frames of an episode; returns the chunk and the file that they get into."""
        table = _table(columns)
        if self._bytes and self._bytes + table.nbytes > FILE_BYTES:
            self._flush()
            self._writer.close()
            self._writer, self._bytes, self._file = None, 0, self._file + 1
        self._pending.append(table)
        self._rows += len(table)
        self._bytes += table.nbytes
        if self._rows >= ROWS_TOGETHER:
            self._flush()
        return divmod(self._file, CHUNK_FILES)

    def _flush(self) -> None:
        if not self._pending:
            return
        table = require("pyarrow", extra=EXTRA).concat_tables(self._pending)
        if self._writer is None:
            chunk, file = divmod(self._file, CHUNK_FILES)
            place = self._root / DATA_PATH.format(chunk_index=chunk, file_index=file)
            self._writer = _opened(place, table.schema)
        self._writer.write_table(table)
        self._pending, self._rows = [], 0


class _Rows(_Pending):
    """A file with a row per episode, written some at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pending: list[dict[str, Any]] = []

    def add(self, row: dict[str, Any]) -> None:
        """Take one more episode."""
        self._pending.append(row)
        if len(self._pending) >= EPISODES_TOGETHER:
            self._flush()

    def _flush(self) -> None:
        if not self._pending:
            return
        pyarrow = require("pyarrow", extra=EXTRA)
        schema = None if self._writer is None else self._writer.schema
        table = pyarrow.Table.from_pylist(self._pending, schema=schema)
        if self._writer is None:
            self._writer = _opened(self._path, table.schema)
        self._writer.write_table(table)
        self._pending = []


def _opened(path: Path, schema: Any) -> Any:
    path.parent.mkdir(parents=True, exist_ok=True)
    return require("pyarrow.parquet", extra=EXTRA).ParquetWriter(path, schema)


def _table(columns: Columns) -> Any:
    pyarrow = require("pyarrow", extra=EXTRA)
    return pyarrow.table({name: _column(pyarrow, values) for name, values in columns.items()})


def _column(pyarrow: Any, values: NDArray[Any]) -> Any:
    """An array as LeRobot keeps it: one number alone, rows as lists of a fixed length."""
    shape = _declared_shape(values)
    column = pyarrow.array(values.reshape(-1))
    if shape == (1,):
        return column
    if len(shape) == 1:
        return pyarrow.FixedSizeListArray.from_arrays(column, shape[0])
    for size in reversed(shape):  # what LeRobot takes for arrays of more axes
        bounds = pyarrow.array(np.arange(0, len(column) + 1, size, dtype=np.int32))
        column = pyarrow.ListArray.from_arrays(bounds, column)
    return column


def _declared_shape(values: NDArray[Any]) -> tuple[int, ...]:
    return values.shape[1:] or (1,)


def _declared(values: NDArray[Any]) -> dict[str, Any]:
    """What `info.json` says of a feature."""
    return {"dtype": values.dtype.name, "shape": list(_declared_shape(values)), "names": None}


def _episode_row(
    index: int,
    begin: int,
    end: int,
    task: str,
    place: tuple[int, int],
    stats: Mapping[str, Statistics],
) -> dict[str, Any]:
    row: dict[str, Any] = {
        EPISODE: index,
        "tasks": [task],
        "length": end - begin,
        "data/chunk_index": place[0],
        "data/file_index": place[1],
        "dataset_from_index": begin,
        "dataset_to_index": end,
        "meta/episodes/chunk_index": 0,
        "meta/episodes/file_index": 0,
    }
    for name, of_feature in stats.items():
        row |= {f"stats/{name}/{key}": value for key, value in _listed(of_feature).items()}
    return row


def _listed(stats: Statistics) -> dict[str, list[Any]]:
    return {key: value.tolist() for key, value in stats.items()}


def _info(dataset: TrajectoryDataset, features: dict[str, Any], fps: float) -> dict[str, Any]:
    return {
        "codebase_version": "v3.0",
        "robot_type": dataset.metadata.notes.get("robot_type"),
        "total_episodes": dataset.num_episodes,
        "total_frames": dataset.num_steps,
        "total_tasks": 1,
        "chunks_size": CHUNK_FILES,
        "data_files_size_in_mb": FILE_BYTES >> 20,
        "video_files_size_in_mb": 200,
        "fps": int(fps) if fps.is_integer() else fps,
        "splits": {"train": f"0:{dataset.num_episodes}"},
        "data_path": DATA_PATH,
        "video_path": None,
        "features": features,
    }


def _write_tasks(root: Path, task: str) -> None:
    """The table of tasks, whose index is the text, as pandas reads it."""
    pyarrow = require("pyarrow", extra=EXTRA)
    kinds = {"task_index": ("int64", "int64"), "task": ("unicode", "object")}
    said = {
        "index_columns": ["task"],
        "column_indexes": [],
        "columns": [
            {"name": n, "field_name": n, "pandas_type": p, "numpy_type": k, "metadata": None}
            for n, (p, k) in kinds.items()
        ],
        "pandas_version": "2.0.0",
    }
    table = pyarrow.table({"task_index": pyarrow.array([0]), "task": pyarrow.array([task])})
    table = table.replace_schema_metadata({"pandas": json.dumps(said)})
    with _opened(root / "meta/tasks.parquet", table.schema) as writer:
        writer.write_table(table)


def _write_json(path: Path, plain: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(plain, indent=4) + "\n")
