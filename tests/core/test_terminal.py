"""Names from paths and files are shown on the terminal as they are, and steer nothing."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
from rich.table import Table

from mtm.cli import main
from mtm.core.escaping import shown
from mtm.core.progress import StepProgress
from mtm.core.terminal import PlainConsole

EVIL = "x[/red][bold]:smile:\x1b]0;owned\x07\x1b[2J\u202e"
SEEN = r"x[/red][bold]:smile:\x1b]0;owned\x07\x1b[2J\u202e"


def test_control_characters_are_written_out() -> None:
    assert shown(EVIL) == SEEN
    assert shown("ü 漢 ■ 🙂\n\tnext") == "ü 漢 ■ 🙂\n\tnext"
    assert shown("a\rb\x9b2J\ud800") == r"a\rb\x9b2J\ud800"


def test_consoles_take_text_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    console = PlainConsole()
    console.print(EVIL, soft_wrap=True)
    table = Table(title=EVIL, box=None)
    table.add_column(EVIL, no_wrap=True)
    table.add_row(EVIL)
    console.print(table)
    with StepProgress(EVIL, 2, 0, console) as progress:
        progress.say(EVIL)
        progress.at(2, EVIL)
    out = capsys.readouterr().out
    assert out.count(SEEN) == 5
    assert "\x1b" not in out


def test_verbs_show_names_of_files_and_environments(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x[/red]\x1b[2J.hdf5"
    path.parent.mkdir()
    with h5py.File(path, "w") as file:
        file.attrs["env_id"] = EVIL
        file.attrs["note"] = EVIL
        file["observations"] = np.arange(12.0).reshape(6, 2)
        file["terminals"] = np.arange(6) % 3 == 2
    for verb in ("info", "validate"):
        assert main(["data", verb, str(path)]) == 0
    assert main(["data", "convert", str(path), str(tmp_path / "s[/red]\x1b[2J")]) == 0
    assert main(["data", "info", str(tmp_path / "none[/red]\x1b[2J.npz")]) == 2
    assert main(["train", "--data", str(path), "--out", str(path), "--preset", "tiny"]) == 2
    said = capsys.readouterr()
    assert "\x1b" not in said.out + said.err
    assert r"x[/red]\x1b[2J.hdf5" in said.out
    assert r"none[/red]\x1b[2J.npz" in said.err
