"""Files that appear whole: what killed processes left goes, what others still write stays."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mtm.core import atomic_write
from mtm.core.atomic_write import HOST, appearing, make_directory, write_atomically


@pytest.fixture
def gone() -> int:
    """The id of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_what_killed_processes_left_of_a_file_is_removed(tmp_path: Path, gone: int) -> None:
    for name in (f".a.json.{HOST}-{gone}.tmp", f".a.json.{HOST}-{os.getppid()}.tmp"):
        (tmp_path / name).write_text("{")
    (tmp_path / f".a.json.elsewhere-{gone}.tmp").write_text("{")  # nobody can say here
    (tmp_path / f".b.json.{HOST}-{gone}.tmp").write_text("{")
    write_atomically(tmp_path / "a.json", b"{}")
    assert {path.name for path in tmp_path.iterdir()} == {
        "a.json",
        f".a.json.{HOST}-{os.getppid()}.tmp",
        f".a.json.elsewhere-{gone}.tmp",
        f".b.json.{HOST}-{gone}.tmp",
    }


def test_directories_are_flushed_with_the_names_in_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed = []
    real = atomic_write.flush_directory
    monkeypatch.setattr(
        atomic_write, "flush_directory", lambda path: (flushed.append(path), real(path))
    )
    with appearing(tmp_path / "new" / "store") as folder:
        (folder / "part").mkdir(parents=True)
        (folder / "part" / "file").write_text("")
    # The parent of what was made, all that appears, and at last the folder of its name.
    assert flushed == [tmp_path, folder, folder / "part", tmp_path / "new"]
    flushed.clear()
    make_directory(tmp_path / "new" / "a" / "b")
    make_directory(tmp_path / "new" / "a" / "b")
    assert set(flushed) == {tmp_path / "new", tmp_path / "new" / "a"}
