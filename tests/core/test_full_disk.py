"""A disk that is full or refuses to be written to: an error of ours, and nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from mtm.cli import main
from mtm.core.errors import DataError, RunError
from mtm.data import loading
from mtm.data.formats.store import write_store
from mtm.data.trajectories import TrajectoryDataset
from mtm.data.writing import write
from mtm.evaluation.report.page import write_report
from mtm.evaluation.report.video import Film
from mtm.research.experiments import pictures

resource = pytest.importorskip("resource", reason="limits of files are POSIX's")


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Let no file grow beyond so many bytes: writing fails in the middle, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture
def blocked(tmp_path: Path) -> Path:
    """A place where nothing can be made: below a file. (A folder without rights stops no root.)"""
    (tmp_path / "file").write_text("")
    return tmp_path / "file" / "out"


def test_a_store_that_does_not_fit_leaves_nothing(tmp_path: Path) -> None:
    data = TrajectoryDataset.from_arrays({"states": np.ones((5000, 8))}, [0, 5000])
    with files_of_at_most(10_000), pytest.raises(DataError, match="could not write .*too large"):
        write_store([data], tmp_path / "store", "log")
    assert list(tmp_path.iterdir()) == []
    write_store([data], tmp_path / "store", "log")


def test_an_hdf5_file_that_does_not_fit_leaves_nothing(tmp_path: Path) -> None:
    """The library itself ends the process by a signal."""
    data = TrajectoryDataset.from_arrays({"states": np.ones((5000, 8))}, [0, 5000])
    for size in (0, 1000, 10_000, 100_000):
        with files_of_at_most(size), pytest.raises(DataError, match="could not write .*too large"):
            write([(data, {})], tmp_path / "log.hdf5", "log")
        assert list(tmp_path.iterdir()) == []
    write([(data, {})], tmp_path / "log.hdf5", "log")
    assert loading.load(tmp_path / "log.hdf5").num_steps == 5000


@pytest.mark.parametrize(
    "words",
    [
        ["data", "convert", "builtin:sinusoids"],
        ["collect", "--env", "Pendulum-v1", "--steps", "10", "--out"],
        ["collect", "--env", "Pendulum-v1", "--steps", "10", "--explore", "--out"],
        ["reproduce", "length", "--scale", "smoke", "--data", "builtin:point-mass", "--out"],
    ],
)
def test_verbs_tell_that_a_place_cannot_be_written_to(
    blocked: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, str(blocked)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert str(blocked) in said


def test_a_report_tells_it_too(blocked: Path) -> None:
    with pytest.raises(RunError, match="cannot make the directory .*out"):
        write_report(None, blocked)  # type: ignore[arg-type]  # the place is looked at first


def test_a_picture_of_an_experiment_is_the_new_one_or_the_one_before(tmp_path: Path) -> None:
    file = tmp_path / "length.png"
    pictures.bars(file, {"hopper": {"4": {"MTM": None}}}, ylabel="score")
    before = file.read_bytes()
    with files_of_at_most(1000), pytest.raises(RunError, match=r"could not write .*length\.png"):
        pictures.bars(file, {"walker": {"8": {"MTM": None}}}, ylabel="score")
    assert file.read_bytes() == before
    assert list(tmp_path.iterdir()) == [file]


def test_a_film_is_the_new_one_or_the_one_before(tmp_path: Path) -> None:
    noise = np.random.default_rng(0)
    first, second = Film(tmp_path / "film.gif"), Film(tmp_path / "film.gif")
    for step in range(4):
        for film in (first, second):
            film(step, lambda: noise.integers(0, 256, (60, 60, 3), np.uint8))
    first.save()
    before = first.path.read_bytes()
    with files_of_at_most(1000), pytest.raises(RunError, match=r"could not write .*film\.gif"):
        second.save()
    assert first.path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [first.path]
