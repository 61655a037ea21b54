"""Everything that reads, each as a function that makes one bad input and has it read.

What is made bad was read before as it was: of what is refused anyway, nothing would be learned.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from torture.fuzz_data import Case, file_case, make_files, odd_case
from torture.fuzz_folders import (
    exorl_case,
    lerobot_case,
    make_folders,
    minari_case,
    store_case,
    streams_case,
)
from torture.fuzz_runs import (
    asked,
    bytes_case,
    checkpoint_case,
    evaluation_case,
    json_case,
    make_runs,
    result_case,
    settings_case,
    used_export,
)
from torture.fuzz_words import command_line_case, predict_case
from torture.requests import serve_case, studio_case


def prepare(base: Path) -> None:
    """Make sound files of every kind."""
    make_files(base)
    make_folders(base)
    make_runs(base)


KINDS: dict[str, Callable[[Path, Path], Case]] = {
    ".npz": file_case("a.npz"),
    ".npz, odd arrays": odd_case(".npz"),
    "HDF5": file_case("a.hdf5"),
    "HDF5, odd arrays": odd_case(".hdf5"),
    "robomimic": file_case("robomimic.hdf5"),
    "Parquet": file_case("a.parquet"),
    "Parquet, odd columns": odd_case(".parquet"),
    "RLDS": file_case("rlds.parquet"),
    "pickle": file_case("a.pkl"),
    "pickle, odd arrays": odd_case(".pkl"),
    "Minari": minari_case,
    "LeRobot": lerobot_case,
    "ExORL": exorl_case,
    "tables to align": streams_case,
    "store": store_case,
    "settings": settings_case,
    "config.json": json_case("config.json", asked),
    "state.json": json_case("checkpoints/*/state.json", asked),
    "checkpoint": checkpoint_case,
    "evaluation.json": evaluation_case,
    "result.json": result_case,
    "packed run": bytes_case("run.mtm", asked),
    "policy.json": bytes_case("export", used_export),
    "command line": command_line_case,
    "predict": predict_case,
    "serve": serve_case,
    "studio": studio_case,
}
"""Name -> a function of the sound files' folder and one to work in, which gives the case."""

DATA_FILES = (
    *(".npz", "HDF5", "HDF5, odd arrays", "robomimic", "Parquet", "RLDS", "Minari", "LeRobot"),
    "ExORL",
)
"""Kinds that libraries in C read."""
