"""Files from the web: checked, gone on with where they broke off, never half there.

    TARGET.part  what has arrived; the next attempt, even in another process, goes on from there
    TARGET.lock  empty; held by the one process that downloads, and left behind
    TARGET       appears in one step, whole and with the right SHA-256

A second process that wants the same file waits for the first and then finds it there. A process
that dies frees its lock, however it dies.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import IO

from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from mtm.core.atomic_write import flush_directory, make_directory
from mtm.core.errors import DataError
from mtm.core.escaping import shown
from mtm.core.progress import progress_console

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

TIMEOUT = 30.0
"""Seconds of silence after which a server is given up."""

CHUNK = 1 << 18
LOCK_POLL = 0.2


class MirrorError(Exception):
    """One server did not deliver the file; another may."""


def fetch(
    target: Path, urls: Sequence[str], *, size: int, sha256: str, timeout: float = TIMEOUT
) -> Path:
    """Download a file unless it is there; the mirrors are tried in turn.

    Args:
        target: Where the file goes; its folder is made if need be.
        urls: Mirrors of the file, http or https.
        size: Its length in bytes.
        sha256: Its checksum, in hexadecimal.
        timeout: Seconds of silence after which a server is given up.

    Returns:
        `target`.

    Raises:
        DataError: No mirror delivered it (the message lists what went wrong with each), or it
            cannot be written.
    """
    try:
        make_directory(target.parent)
        with _lock(_beside(target, ".lock")):
            if not target.is_file():  # else another process fetched it while this one waited
                part = _beside(target, ".part")
                _fetch_from_any(urls, part, target, size, sha256, timeout)
                part.replace(target)
                flush_directory(target.parent)
    except OSError as error:
        raise DataError(
            f"{target} cannot be written: {error}. It needs a folder that can be written to and "
            f"{size / 1e6:,.1f} MB of free disk."
        ) from error
    return target


def _fetch_from_any(
    urls: Sequence[str], part: Path, target: Path, size: int, sha256: str, timeout: float
) -> None:
    faults = []
    with _progress_bar(target.name, size) as show:
        for url in urls:
            try:
                return _fetch_from_one(url, part, size, sha256, timeout, show)
            except MirrorError as fault:
                faults.append(f"\n  {url}: {fault}")
    raise DataError(
        f"{target.name} ({size / 1e6:,.1f} MB) could not be downloaded:{''.join(faults)}\n"
        f"Try again later (what has arrived is kept), or put the file at {target} by hand."
    )


def _fetch_from_one(
    url: str, part: Path, size: int, sha256: str, timeout: float, show: Callable[[int], None]
) -> None:
    """Complete `part` from one mirror; it is deleted if the checksum is wrong."""
    while True:
        resumed = _receive(url, part, size, timeout, show)
        found = _sha256(part)
        if found == sha256:
            return
        part.unlink()
        if not resumed:
            raise MirrorError(f"what it holds has the SHA-256 {found}, not {sha256}")
        # The beginning may have come from elsewhere: once more, all of it from this mirror.


def _receive(url: str, part: Path, size: int, timeout: float, show: Callable[[int], None]) -> bool:
    """Append to `part` until it has all bytes; returns whether earlier ones were kept."""
    have = part.stat().st_size if part.is_file() else 0
    if have >= size:
        return True
    with _open(url, have, timeout) as response:
        have = first = _first_byte(response, have, size)
        with part.open("ab" if first else "wb") as file:
            while have <= size and (chunk := _read(response, have, size)):
                file.write(chunk)
                have += len(chunk)
                show(have)
            file.flush()
            os.fsync(file.fileno())
    if have < size:
        raise MirrorError(f"the connection was cut after {have:,} of {size:,} bytes")
    return first > 0


def _open(url: str, have: int, timeout: float) -> HTTPResponse:
    """Ask for the bytes from `have` on."""
    headers = {"User-Agent": "masked-trajectory-models"}
    if have:
        headers["Range"] = f"bytes={have}-"
    try:
        request = urllib.request.Request(url, headers=headers)
        response: HTTPResponse = _web().open(request, timeout=timeout)
        return response
    except urllib.error.HTTPError as error:
        error.close()
        if have and error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            return _open(url, 0, timeout)
        raise MirrorError(f"HTTP {error.code} {error.reason}") from error
    except (OSError, HTTPException, ValueError) as error:
        raise MirrorError(_reason(error)) from error


def _web() -> urllib.request.OpenerDirector:
    """Opens http and https and nothing else, also where a server redirects to."""
    web = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler,
        urllib.request.HTTPHandler,
        urllib.request.HTTPSHandler,
        urllib.request.HTTPRedirectHandler,
        urllib.request.HTTPErrorProcessor,
        urllib.request.HTTPDefaultErrorHandler,
        urllib.request.UnknownHandler,
    ):
        web.add_handler(handler())
    return web


def _first_byte(response: HTTPResponse, have: int, size: int) -> int:
    """Where the answer begins: at `have`, or at 0 if the server does not do parts."""
    first = 0
    if response.status == HTTPStatus.PARTIAL_CONTENT:
        stated = response.headers.get("Content-Range", "")
        if not re.match(rf"bytes {have}-", stated):
            raise MirrorError(f"asked for the bytes from {have:,} on, it sent {stated!r}")
        first = have
    if response.length is not None and first + response.length != size:
        raise MirrorError(
            f"what it holds has {first + response.length:,} bytes, not {size:,}: another file"
        )
    return first


def _read(response: HTTPResponse, have: int, size: int) -> bytes:
    try:
        return response.read1(CHUNK)
    except (OSError, HTTPException) as error:
        raise MirrorError(f"{_reason(error)} after {have:,} of {size:,} bytes") from error


def _reason(error: Exception) -> str:
    """What to tell of an error; urllib wraps the one that matters, and some say nothing."""
    inner = getattr(error, "reason", error)
    return str(inner).strip() or type(inner).__name__


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _beside(target: Path, suffix: str) -> Path:
    return target.with_name(target.name + suffix)


@contextmanager
def _progress_bar(name: str, size: int) -> Iterator[Callable[[int], None]]:
    """A bar on standard error, if that is a terminal; yields a function of the bytes so far."""
    console = progress_console(stderr=True)
    bar = Progress(
        TextColumn(shown(name), markup=False),
        BarColumn(bar_width=24),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=console.quiet or not console.is_terminal,
    )
    task = bar.add_task("", total=size)
    with bar:
        yield lambda have: bar.update(task, completed=have)


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Hold a lock file, after whoever holds it now. Closing the file frees it."""
    with path.open("ab") as file:
        while not _try_lock(file):
            time.sleep(LOCK_POLL)
        yield


def _try_lock(file: IO[bytes]) -> bool:
    try:
        if sys.platform == "win32":
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # what the two systems call "somebody has it"
        return False
    return True
