"""LeRobot's data sets, format v3, from a folder or a hub.

    meta/info.json                            features, their shapes, frames a second
    meta/episodes/chunk-XXX/file-XXX.parquet  a row per episode: length, and file of frames
    data/chunk-XXX/file-XXX.parquet           a row per frame; many episodes, each in one file
    videos/...                                left out

A feature of numbers is a modality. `observation.state` is `states`, `action` is `actions`,
`next.reward` is `rewards`, or `next.success` if there is none; `observation.NAME` is `NAME` of role
state, `action.NAME` is `NAME` of role action. Bookkeeping, and what `mtm relabel` wrote beside the
originals, is read only if it is named as a column. Images, videos and texts are left out.

A data set that `mtm` wrote has `meta/mtm.json`, which says what LeRobot has no word for.
"""

from __future__ import annotations

import math
import re
import string
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mtm.core.errors import DataError, unknown
from mtm.core.plain_data import expecting, read_object, text, whole
from mtm.core.reading import AS_IT_IS, Reading
from mtm.data.columns import OFFSETS, PRESENT, TERMINALS, columns_to_read, dataset_of
from mtm.data.episode_bounds import as_flags
from mtm.data.formats import lerobot_hub, parquet
from mtm.data.memory_limits import Allowance
from mtm.data.metadata import Metadata
from mtm.data.modalities import Modality
from mtm.data.trajectories import TrajectoryDataset

INFO = "meta/info.json"
EPISODES = "meta/episodes"
OWN = "meta/mtm.json"
VERSION = "v3."
"""How the version of the format begins."""

EPISODE = "episode_index"
BOOKKEEPING = ("timestamp", "frame_index", EPISODE, "index", "task_index", "subtask_index")
DONE, TRUNCATED, SUCCESS, REWARD = "next.done", "next.truncated", "next.success", "next.reward"
PREDICTED, EXPECTED_ERROR, PRESENT_MARK = "predicted.", "expected_error.", "present."
"""What comes before the name of a feature in columns of ours beside it."""

NAMES = {"observation.state": "states", "action": "actions", REWARD: "rewards", SUCCESS: "rewards"}
"""Modalities of features that LeRobot has words for."""

NUMBERS = re.compile(r"float(16|32|64)|u?int(8|16|32|64)|bool")
"""Kinds of features that are read."""

LARGEST_TEXT = 1 << 26
"""Bytes of a JSON file that is read."""

CURE = "Fetch it again, or mend it with LeRobot's own tools."


@dataclass(frozen=True)
class Info:
    """What `meta/info.json` says, checked.

    Attributes:
        features: Shapes of the features of numbers.
        left_out: Features that are images, videos or texts.
        data_path: Template of the files of frames.
        episodes: How many there are.
        frames: Of all episodes.
        notes: Frames a second, and the robot.
    """

    features: Mapping[str, tuple[int, ...]]
    left_out: tuple[str, ...]
    data_path: str
    episodes: int
    frames: int
    notes: Mapping[str, str]


def is_lerobot(path: Path) -> bool:
    """Whether a folder holds a data set of LeRobot's format v3."""
    try:
        return (path / "meta").is_dir() and _version(path).startswith(VERSION)
    except DataError:
        return False


def load_named(name: str, reading: Reading = AS_IT_IS) -> Iterator[TrajectoryDataset]:
    """Read a folder, or a data set of a hub (`OWNER/NAME` or `OWNER/NAME@REVISION`).

    Raises:
        DataError: There is no such data set, or it is damaged; the message says where.
        MissingExtraError: pyarrow is not installed, or for a hub huggingface_hub.
    """
    folder = Path(name).expanduser()
    if not folder.exists():
        folder = lerobot_hub.fetch(name)
    yield from load_folder(folder, reading, f"lerobot:{name}")


def load_folder(
    root: Path, reading: Reading = AS_IT_IS, source: str | None = None
) -> Iterator[TrajectoryDataset]:
    """Read a folder, file by file, so that one at a time is in memory.

    Raises:
        DataError: As `load_named`.
        MissingExtraError: pyarrow is not installed.
    """
    info = read_info(root)
    rows = _episodes(root, info)
    own, said = _own(root)
    if info.left_out and not reading.columns:
        warnings.warn(
            f"{root}: {', '.join(info.left_out)} left out: images, videos and texts are no "
            "modalities yet.",
            stacklevel=3,
        )
    metadata = said or Metadata()
    notes = {**metadata.notes, **info.notes}
    changes = {"source": source or root.name, "notes": notes}
    ends = np.flatnonzero(np.diff(rows["chunk"]) | np.diff(rows["file"])) + 1
    for place in np.split(rows, ends):
        file = _data_file(root, info, int(place["chunk"][0]), int(place["file"][0]))
        part = _load_file(file, info, place, reading, own)
        yield part.with_metadata(env_id=metadata.env_id, horizon=metadata.horizon, **changes)


def read_info(root: Path) -> Info:
    """What a data set says of itself.

    Raises:
        DataError: It is no data set of LeRobot's, of another version, or damaged.
    """
    version = _version(root)
    if not version.startswith(VERSION):
        raise DataError(
            f"{root / INFO}: codebase_version is {version!r}, v3.0 is read. Convert it: python -m "
            "lerobot.scripts.convert_dataset_v21_to_v30 --repo-id=OWNER/NAME. Or name the "
            "folder without lerobot:, and its Parquet files are read as they are."
        )
    with expecting(root / INFO, DataError, CURE):
        plain = read_object(root / INFO)
        features = plain["features"]
        if not isinstance(features, dict) or not features:
            raise ValueError(f"features must be an object, got {features!r}")
        shapes = {name: _shape(name, f) for name, f in features.items() if _is_number(f)}
        fps = plain["fps"]
        if isinstance(fps, bool) or not isinstance(fps, int | float) or not 0 < fps < 1e9:
            raise ValueError(f"fps must be a number above 0, got {fps!r}")
        notes = {"fps": f"{fps:g}"}
        if plain.get("robot_type") is not None:
            notes["robot_type"] = text(plain, "robot_type")
        return Info(
            shapes,
            tuple(name for name in features if name not in shapes),
            _checked_template(text(plain, "data_path")),
            whole(plain, "total_episodes", 1),
            whole(plain, "total_frames", 1),
            notes,
        )


def _version(root: Path) -> str:
    file = root / INFO
    if not file.is_file():
        raise DataError(
            f"{root} is no data set of LeRobot's: there is no {INFO}. Name the folder that holds "
            "meta/ and data/, or OWNER/NAME of one on a hub."
        )
    if file.stat().st_size > LARGEST_TEXT:
        raise DataError(f"{file} has {file.stat().st_size:,} bytes, at most {LARGEST_TEXT:,}.")
    with expecting(file, DataError, CURE):
        return text(read_object(file), "codebase_version")


def _is_number(feature: Any) -> bool:
    return NUMBERS.fullmatch(text(dict(feature), "dtype")) is not None


def _shape(name: str, feature: Any) -> tuple[int, ...]:
    shape = tuple(feature["shape"])
    if not shape or not all(type(n) is int and 0 < n < 1 << 31 for n in shape):
        raise ValueError(f"feature {name!r} has the shape {shape}; positive numbers are needed")
    return shape


def _checked_template(template: str) -> str:
    """A template that fills to a path within the folder, and to nothing else."""
    fields = {"chunk_index", "file_index"}
    for _, field, form, conversion in string.Formatter().parse(template):
        plain = field in fields and not conversion and re.fullmatch(r"(0?\d{1,2}d)?", form or "")
        if field is not None and not plain:
            raise ValueError(
                f"data_path is {template!r}; it may hold {{chunk_index}} and {{file_index}}, such "
                "as data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
            )
    path = PurePosixPath(template.replace("\\", "/"))
    if (
        path.is_absolute()
        or ".." in path.parts
        or ":" in path.parts[0]
        or path.suffix != ".parquet"
    ):
        raise ValueError(
            f"data_path is {template!r}; it must name .parquet files within the data set's folder"
        )
    return template


def _episodes(root: Path, info: Info) -> NDArray[Any]:
    """A row for each episode, in order: its length, and the file of its frames."""
    files = sorted((root / EPISODES).glob("*/*.parquet"))
    if not files:
        raise DataError(f"{root / EPISODES} holds no Parquet files; {CURE}")
    names = {"index": EPISODE, "length": "length", "chunk": "data/chunk_index"}
    names |= {"file": "data/file_index"}
    left = Allowance(root / EPISODES)
    found: list[NDArray[Any]] = []
    for file in files:
        there = parquet.column_names(file)
        if lacking := [name for name in names.values() if name not in there]:
            raise DataError(f"{file}: {unknown('column', lacking[0], there)} {CURE}")
        columns = parquet.read_columns(file, list(names.values()), left)
        rows = np.zeros(len(columns[EPISODE]), [(key, np.int64) for key in names])
        for key, name in names.items():
            column = columns[name]
            if column.dtype.kind not in "iu" or column.ndim > 1 or (column < 0).any():
                raise DataError(f"{file}: column {name!r} needs whole numbers from 0 up. {CURE}")
            if column.max(initial=0) > np.iinfo(np.int64).max or name + PRESENT in columns:
                raise DataError(f"{file}: column {name!r} has a null or a huge number. {CURE}")
            rows[key] = column
        found.append(rows)
    table = np.sort(np.concatenate(found), order="index")
    _check_episodes(root, info, table)
    return table


def _check_episodes(root: Path, info: Info, rows: NDArray[Any]) -> None:
    """See that every episode is listed once, and that their lengths add up."""
    where = root / EPISODES
    listed, counts = np.unique(rows["index"], return_counts=True)
    faults = [
        f"{where}: episode {index} is listed {count} times."
        for index, count in zip(listed[counts > 1], counts[counts > 1], strict=True)
    ]
    if len(listed) != info.episodes or (len(listed) and listed[-1] >= info.episodes):
        lost = np.setdiff1d(np.arange(min(info.episodes, len(listed) + 1)), listed)
        named = f", episode {lost[0]} is missing" if len(lost) else ""
        faults.append(
            f"{where} lists {len(listed):,} episodes, {INFO} says {info.episodes:,}{named}."
        )
    if (rows["length"] < 1).any():
        at = int(rows["index"][np.argmax(rows["length"] < 1)])
        faults.append(f"{where}: episode {at} has no frames.")
    total = sum(rows["length"].tolist())
    if not faults and total != info.frames:
        faults.append(f"{where}: episodes have {total:,} frames, {INFO} says {info.frames:,}.")
    if faults:
        raise DataError(*(f"{fault} {CURE}" for fault in faults))


def _data_file(root: Path, info: Info, chunk: int, file: int) -> Path:
    path = root / info.data_path.format(chunk_index=chunk, file_index=file)
    if not path.is_file():
        raise DataError(
            f"{path} is missing; {root / EPISODES} says that there are frames in it. {CURE}"
        )
    return path


def _load_file(
    file: Path, info: Info, rows: NDArray[Any], reading: Reading, own: Mapping[str, Modality]
) -> TrajectoryDataset:
    """The episodes of a file of frames, without metadata."""
    there = parquet.column_names(file)
    if lacking := [name for name in (EPISODE, *info.features) if name not in there]:
        raise DataError(f"{file}: {unknown('column', lacking[0], there)} {CURE}")
    names = [name for name in there if name in info.features and name != EPISODE]
    chosen = columns_to_read(str(file), names, replace(reading, episode=None), _beside(names))
    marks = {name: PRESENT_MARK + name for name in chosen if PRESENT_MARK + name in names}
    flags = [name for name in (DONE, TRUNCATED) if name in names]
    read = dict.fromkeys([*chosen, EPISODE, *marks.values(), *flags])
    columns = parquet.read_columns(file, list(read), Allowance(file))
    _check_frames(file, rows, columns[EPISODE])
    arrays = {name: _shaped(file, name, info, columns[name], own.get(name)) for name in chosen}
    arrays |= {n + PRESENT: v for n in chosen if (v := columns.get(n + PRESENT)) is not None}
    arrays |= {name + PRESENT: columns[mark] for name, mark in marks.items()}
    arrays[OFFSETS] = np.append(0, np.cumsum(rows["length"]))
    if len(flags) == 2:
        done, cut = (as_flags(file, name, columns[name]) for name in flags)
        arrays[TERMINALS] = done & ~cut
    return dataset_of(str(file), arrays, _named(chosen, reading, own), Metadata(file.name))


def _beside(names: Collection[str]) -> tuple[str, ...]:
    """Features that are no modalities unless they are named."""
    ours = [n for n in names if n.startswith((PREDICTED, EXPECTED_ERROR, PRESENT_MARK))]
    success = (SUCCESS,) if REWARD in names else ()
    return (*BOOKKEEPING, DONE, TRUNCATED, *success, *ours)


def _named(chosen: Sequence[str], reading: Reading, own: Mapping[str, Modality]) -> Reading:
    """How to read features under our names, with the roles that theirs imply."""
    columns = reading.columns_of()
    if not columns:
        for feature in chosen:
            hint = own.get(feature)
            name = hint.name if hint else _modality_name(feature)
            columns[feature if name in columns else name] = (feature,)
    firsts = {name: parts[0] for name, parts in columns.items()}
    said = {name: own[first].role for name, first in firsts.items() if first in own}
    implied = {name: "action" for name, first in firsts.items() if first.startswith("action")}
    implied |= {name: "reward" for name, first in firsts.items() if first in (REWARD, SUCCESS)}
    return replace(
        reading, columns={**columns}, roles=implied | said | dict(reading.roles), episode=None
    )


def _modality_name(feature: str) -> str:
    known = NAMES.get(feature)
    return known or re.sub(r"^(observation|action)\.(?=.)", "", feature)


def _check_frames(file: Path, rows: NDArray[Any], found: NDArray[Any]) -> None:
    """See that a file holds the episodes that it should, each whole and in order."""
    expected = np.repeat(rows["index"], rows["length"]) if _fits(rows, found) else None
    if expected is not None and np.array_equal(expected, found.reshape(-1)):
        return
    for row in rows:
        count = int((found == row["index"]).sum())
        if count != row["length"]:
            raise DataError(
                f"{file}: episode {row['index']} has {count:,} frames, {EPISODES} says "
                f"{row['length']:,}. {CURE}"
            )
    raise DataError(
        f"{file}: its episodes are not in one piece each and in order, or there are others than "
        f"the {len(rows):,} that {EPISODES} lists. {CURE}"
    )


def _fits(rows: NDArray[Any], found: NDArray[Any]) -> bool:
    """Whether there are as many frames as there should be, before an array of them is made."""
    return bool(sum(rows["length"].tolist()) == found.size == len(found))


def _shaped(
    file: Path, name: str, info: Info, values: NDArray[Any], own: Modality | None
) -> NDArray[Any]:
    """The values of a feature in the shape that it is said to have; a reward is one number."""
    shape = info.features[name]
    if math.prod(values.shape[1:]) != math.prod(shape):
        raise DataError(
            f"{file}: feature {name!r} has the shape {values.shape[1:] or (1,)} in a frame, {INFO} "
            f"says {shape}. {CURE}"
        )
    is_one = shape == (1,) and (values.dtype.kind != "f" or name == REWARD)
    if own is not None and own.size == math.prod(shape):
        return values.reshape(len(values), *own.shape)
    return values.reshape(len(values), *(() if is_one else shape))


def _own(root: Path) -> tuple[dict[str, Modality], Metadata | None]:
    """What `mtm` wrote of the modalities and their metadata, if it wrote the data set."""
    file = root / OWN
    if not file.is_file() or file.stat().st_size > LARGEST_TEXT:
        return {}, None
    with expecting(file, DataError, f"Remove it, and the names in {INFO} are taken."):
        plain = read_object(file)
        found = {str(n): Modality.from_json(m) for n, m in dict(plain["modalities"]).items()}
        return found, Metadata.from_json(plain["metadata"])
