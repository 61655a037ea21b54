"""Locks: one holder at a time. That they end with their holder is tested where they are used."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from mtm.cli import main
from mtm.core.errors import RunError
from mtm.core.locks import held, locked
from mtm.evaluation.report.page import write_report


def test_one_holder_at_a_time(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    with locked(file, wait=False) as mine:
        assert mine
        with locked(file, wait=False) as another:
            assert not another
    with locked(file, wait=False) as mine:
        assert mine


def test_waiting_for_the_holder(tmp_path: Path) -> None:
    order, held = [], threading.Event()

    def wait() -> None:
        held.wait()
        with locked(tmp_path / "lock"):
            order.append("second")

    thread = threading.Thread(target=wait)
    thread.start()
    with locked(tmp_path / "lock"):
        held.set()
        thread.join(0.2)
        assert thread.is_alive()
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_what_cannot_be_locked_is_told(tmp_path: Path) -> None:
    (tmp_path / "lock").mkdir()
    with pytest.raises(RunError, match="lock cannot be locked"), locked(tmp_path / "lock"):
        pass


def test_a_directory_has_one_writer(tmp_path: Path) -> None:
    with held(tmp_path / "a" / "b", "collecting"):
        said = "another process is collecting in .*b. Wait for its end"
        with pytest.raises(RunError, match=said), held(tmp_path / "a" / "b", "collecting"):
            pass
    with held(tmp_path / "a" / "b", "collecting"):
        pass
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot make the directory"), held(tmp_path / "file", ""):
        pass


def test_collections_and_reports_keep_to_the_lock(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("gymnasium", reason="the extra `sim` is not installed")
    words = ["collect", "--env", "Pendulum-v1", "--steps", "10", "--out", str(tmp_path / "out")]
    with held(tmp_path / "out", "collecting"):
        for more in ([], ["--explore"]):
            assert main([*words, *more]) == 2
            assert "another process is collecting in" in capsys.readouterr().err
    with (
        held(tmp_path / "report", ""),
        pytest.raises(RunError, match="another process is writing a report"),
    ):
        write_report(None, tmp_path / "report")  # type: ignore[arg-type]


def test_a_folder_of_something_else_gets_no_lock(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    words = ["collect", "--env", "Pendulum-v1", "--steps", "10", "--out", str(tmp_path)]
    assert main([*words, "--explore"]) == 2
    assert [file.name for file in tmp_path.iterdir()] == ["notes.txt"]
