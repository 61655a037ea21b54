"""The folder of a collection, whenever a process is killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from mtm.core.errors import ConfigError
from mtm.research.collect.folder import Folder


def test_a_kill_before_the_first_word_leaves_a_folder_of_ours(tmp_path: Path) -> None:
    (tmp_path / ".collection.json.host-1.tmp").write_text("{")
    (tmp_path / ".lock").touch()
    assert Folder(tmp_path, {"seed": 0}, ("*.hdf5",), overwrite=False).results is None


def test_a_kill_while_it_is_cleared_leaves_nothing_that_says_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Folder(tmp_path, {"seed": 0}, ("*.hdf5",), overwrite=False).finish({})
    for name in ("expert.hdf5", "medium.hdf5"):
        (tmp_path / name).touch()
    unlink = Path.unlink

    def killed(path: Path, missing_ok: bool = False) -> None:
        if path.suffix == ".hdf5":
            raise KeyboardInterrupt
        unlink(path, missing_ok)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", killed)
        with pytest.raises(KeyboardInterrupt):
            Folder(tmp_path, {"seed": 0}, ("*.hdf5",), overwrite=True)
    with pytest.raises(ConfigError, match="no collection.json. Give another --out, or --overwrite"):
        Folder(tmp_path, {"seed": 0}, ("*.hdf5",), overwrite=False)
    assert Folder(tmp_path, {"seed": 0}, ("*.hdf5",), overwrite=True).results is None
