"""What a process does to files: counted, to end it before one of them; watched, for power cuts.

What survives a power cut is what was flushed. So whatever gets its final name must have been, with
all that it holds, and so must the folder that it is in, before the process says that it is done.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = frozenset(("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link"))
UNIMPORTANT = ("/proc/", "/dev/", "/tmp/mtm-torture-")


class FileEvents:
    """Counts what this process does to files, from now on.

    Args:
        last: End the process by SIGKILL before this one, counted from 1; None: never.
        watch: Note what is renamed before it was flushed.
    """

    def __init__(self, last: int | None, *, watch: bool) -> None:
        self.count = 0
        self._last = last
        self._active = True
        self._flushed: dict[tuple[int, int], tuple[int, int]] = {}
        self._renamed: dict[tuple[int, int], str] = {}  # by the folder, which is to be flushed
        self._unflushed: list[str] = []
        sys.addaudithook(self._on_audit)
        self._fsync, self._mkdir = os.fsync, os.mkdir
        self._rename, self._replace = os.rename, os.replace
        os.fsync = self._on_fsync  # type: ignore[assignment]  # it has no audit event
        if watch:
            os.rename = self._watching(self._rename)  # type: ignore[assignment]
            os.replace = self._watching(self._replace)  # type: ignore[assignment]
            os.mkdir = self._on_mkdir  # type: ignore[assignment]

    def stop(self) -> None:
        """Count no more."""
        self._active = False
        os.fsync, os.mkdir = self._fsync, self._mkdir
        os.rename, os.replace = self._rename, self._replace

    def notes(self) -> dict[str, Any]:
        """What was counted and noted."""
        named = (name for name in self._renamed.values() if Path(name).exists())
        late = [f"the folder of {name} was not flushed" for name in named]
        return {"events": self.count, "unflushed": self._unflushed + late}

    def _on_audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._active:
            return
        if event == "open":
            path, _, flags = arguments
            if not isinstance(flags, int) or not flags & WRITING:
                return
            if isinstance(path, str | bytes) and os.fsdecode(path).startswith(UNIMPORTANT):
                return
        elif event not in CHANGES:
            return
        self._happens()

    def _happens(self) -> None:
        self.count += 1
        if self.count == self._last:
            os.killpg(0, signal.SIGKILL)

    def _on_fsync(self, file: Any) -> None:
        self._happens()
        self._fsync(file)
        found = os.fstat(file if isinstance(file, int) else file.fileno())
        self._flushed[found.st_dev, found.st_ino] = (found.st_size, found.st_mtime_ns)
        self._renamed.pop((found.st_dev, found.st_ino), None)

    def _on_mkdir(self, path: Any, *more: Any, **options: Any) -> None:
        self._mkdir(path, *more, **options)
        self._named(Path(path))

    def _named(self, path: Path) -> None:
        """Expect that the folder of a new name is flushed from now on."""
        if not os.fspath(path.absolute()).startswith(UNIMPORTANT) and not _is_temporary(path):
            folder = path.parent.stat()
            self._renamed[folder.st_dev, folder.st_ino] = str(path)

    def _watching(self, rename: Callable[..., None]) -> Callable[..., None]:
        def watched(source: Any, target: Any, **more: Any) -> None:
            path = Path(source)
            for file in () if _is_temporary(Path(target)) else (path, *path.rglob("*")):
                found = file.stat()
                now = (found.st_size, found.st_mtime_ns)
                if self._flushed.get((found.st_dev, found.st_ino)) != now:
                    self._unflushed.append(f"{file} got the name {target} before it was flushed")
            rename(source, target, **more)
            self._named(Path(target))

        return watched


def _is_temporary(path: Path) -> bool:
    """Whether a place has no final name yet, nor has what it lies in."""
    return any(part.startswith(".") for part in path.parts)
