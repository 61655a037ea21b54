"""The folder of a collection: new, under way, or finished.

OUT/collection.json     settings, versions, results; `finished` says whether all is done
OUT/under-way/          what a later sitting needs to go on; gone when finished
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mtm.core.atomic_write import unfinished, write_atomically
from mtm.core.errors import ConfigError, RunError
from mtm.core.locks import LOCK, held
from mtm.core.versions import versions

VERSIONS_OF = ("stable-baselines3", "gymnasium", "mujoco", "dm_control")


@contextmanager
def held_folder(path: Path) -> Iterator[None]:
    """Keep other collections out of a folder; one that is no collection's is left as it is.

    Raises:
        ConfigError: It is a file, or holds something else.
        RunError: Another process collects there.
    """
    if path.exists() and not path.is_dir():
        raise ConfigError(f"--out {path} is a file; give a folder.")
    existed, had_lock = path.exists(), (path / LOCK).exists()
    try:
        with held(path, "collecting"):
            yield
    finally:
        if not had_lock and not (path / "collection.json").exists():  # nothing came of it
            (path / LOCK).unlink(missing_ok=True)
            if not existed and path.is_dir() and not any(path.iterdir()):
                path.rmdir()


class Folder:
    """Opens the folder of a collection, or goes on with one that has the same settings.

    Args:
        path: The folder.
        settings: What is collected; plain data.
        patterns: What the collection will write, as file patterns.
        overwrite: Remove what an earlier collection left.

    Raises:
        ConfigError: The folder holds another collection, or files that would be replaced.
    """

    def __init__(
        self,
        path: Path,
        settings: Mapping[str, Any],
        patterns: Sequence[str],
        *,
        overwrite: bool,
    ) -> None:
        self.path, self.settings = path, dict(settings)
        self.work = path / "under-way"
        self._file = path / "collection.json"
        if path.exists() and not path.is_dir():
            raise ConfigError(f"--out {path} is a file; give a folder.")
        if overwrite:
            self._clear(patterns)
        earlier = self._read()
        if earlier is None:
            self._refuse_to_replace(patterns)
            self._refuse_foreign()
            self.work.mkdir(parents=True, exist_ok=True)
            self._write({}, finished=False)
        elif earlier["settings"] != self.settings:
            raise ConfigError(
                f"{path} holds a collection with other settings: "
                f"{_differences(earlier['settings'], self.settings)}. Give the same settings, "
                "another --out, or --overwrite."
            )
        self.results: dict[str, Any] | None = None
        if earlier is not None and earlier["finished"]:
            self.results = earlier["results"]
            shutil.rmtree(self.work, ignore_errors=True)
        else:
            self.work.mkdir(exist_ok=True)

    def finish(self, results: Mapping[str, Any]) -> None:
        """Write the results down, and remove what was kept for going on."""
        self._write(results, finished=True)
        shutil.rmtree(self.work)
        self.results = dict(results)

    def _refuse_foreign(self) -> None:
        """Raise a `ConfigError` if the folder holds anything that is not a collection's."""
        if not self.path.is_dir():
            return
        mine = {self.work, self.path / LOCK, *unfinished(self._file)}
        if set(self.path.iterdir()) - mine:
            raise ConfigError(f"{self.path} exists and is not a collection; choose another --out.")

    def _write(self, results: Mapping[str, Any], *, finished: bool) -> None:
        content = {
            "finished": finished,
            "settings": self.settings,
            "versions": versions(VERSIONS_OF),
            "results": dict(results),
        }
        write_atomically(self._file, json.dumps(content, indent=2).encode())

    def _read(self) -> dict[str, Any] | None:
        if not self._file.exists():
            return None
        try:
            content: dict[str, Any] = json.loads(self._file.read_text())
            _ = content["settings"].items(), content["finished"], content["results"]
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise RunError(
                f"{self._file} is not what a collection writes ({error!r}). Give another --out, or "
                "--overwrite."
            ) from error
        return content

    def _clear(self, patterns: Sequence[str]) -> None:
        self._file.unlink(missing_ok=True)  # first: it must not speak of files that are gone
        for pattern in patterns:
            for file in self.path.glob(pattern):
                file.unlink()
        shutil.rmtree(self.work, ignore_errors=True)

    def _refuse_to_replace(self, patterns: Sequence[str]) -> None:
        found = sorted(file.name for pattern in patterns for file in self.path.glob(pattern))
        if found:
            raise ConfigError(
                f"{self.path} holds {found[0]}, which this would replace, but no collection.json. "
                "Give another --out, or --overwrite."
            )


def _differences(earlier: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{key} was {earlier.get(key)!r}, now {now.get(key)!r}"
        for key in {**earlier, **now}
        if earlier.get(key) != now.get(key)
    )
