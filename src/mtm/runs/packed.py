"""A run in one file: a zip of `mtm.runs.bundle`, as plain as a zip can be.

Nothing in it is compressed, linked, encrypted, commented on or hidden between its members. What is
not so is refused before it is read, and nothing is written to the disk.
"""

from __future__ import annotations

import io
import stat
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path

from mtm.core.atomic_write import appearing, write_flushed
from mtm.core.errors import RunError
from mtm.runs.bundle import LARGEST_WEIGHTS, MOST_FILES, Files, check, largest

WRITTEN = (1980, 1, 1, 0, 0, 0)
"""The date of every member, so that the same run gives the same bytes."""

REGULAR_FILE = (stat.S_IFREG | 0o644) << 16

LOCAL_HEADER = 30
END = struct.Struct("<4s4H2LH")
"""The end of a zip: signature, two numbers of disks, members here and in all, bytes and place of
the directory, bytes of the comment."""


def write_packed(path: Path, files: Mapping[str, bytes]) -> None:
    """Write files of `mtm.runs.bundle.seal` as one; it appears whole or not at all.

    Raises:
        DataError: The place is taken.
        RunError: It cannot be written, or the run is too large for a plain zip.
    """
    for name, content in files.items():
        if len(content) > (most := largest(name) or 0):
            raise RunError(f"{name} has {len(content):,} bytes; a file holds up to {most:,}.")
    zipped = io.BytesIO()
    with zipfile.ZipFile(zipped, "w", zipfile.ZIP_STORED, allowZip64=False) as archive:
        for name, content in files.items():
            member = zipfile.ZipInfo(name, WRITTEN)
            member.create_system, member.external_attr = 3, REGULAR_FILE
            archive.writestr(member, content)
    try:
        with appearing(path) as temporary:
            write_flushed(temporary, zipped.getvalue())
    except OSError as error:
        raise RunError(f"could not write {path}: {error}.") from error


def read_packed(path: Path) -> Files:
    """The files of a packed run, checked.

    Raises:
        RunError: It is no packed run, or anything about it is not as `write_packed` makes it.
    """
    try:
        with path.open("rb") as file:
            _check_end(path, file)
            with zipfile.ZipFile(file) as archive:
                members = archive.infolist()
                _check_members(path, members, archive.start_dir)
                files = {member.filename: archive.read(member) for member in members}
    except (OSError, zipfile.BadZipFile, NotImplementedError, ValueError, EOFError) as error:
        raise RunError(f"{path} cannot be read as a packed run: {error}.") from error
    check(files, str(path))
    return files


def _check_end(path: Path, file: io.BufferedReader) -> None:
    """Look at the end, before anybody reads as many members as it claims."""
    size = file.seek(0, io.SEEK_END)
    if size < END.size or size > LARGEST_WEIGHTS + (1 << 27):
        raise RunError(f"{path} is not a packed run: it has {size:,} bytes. mtm pack writes one.")
    file.seek(-END.size, io.SEEK_END)
    signature, disk, first, here, count, length, place, comment = END.unpack(file.read(END.size))
    if signature != b"PK\5\6" or comment:
        raise RunError(
            f"{path} is not a packed run, or is cut off: it does not end as a plain zip does. "
            "mtm pack writes one."
        )
    if disk or first or here != count or not 0 < count <= MOST_FILES:
        raise RunError(f"{path} claims {count} members; a packed run has up to {MOST_FILES}.")
    if place + length + END.size != size:
        raise RunError(f"{path} holds {size:,} bytes, which its directory does not account for.")


def _check_members(path: Path, members: list[zipfile.ZipInfo], directory: int) -> None:
    """Refuse every member that is not a plain file with a name of ours, and gaps between them."""
    place, seen = 0, set()
    for member in sorted(members, key=lambda m: m.header_offset):
        name, most = member.orig_filename, largest(member.orig_filename)
        if most is None or name != member.filename:
            raise RunError(f"{path} holds {name!r}, which is no part of a packed run.")
        if name in seen:
            raise RunError(f"{path} holds {name} twice.")
        if member.compress_type != zipfile.ZIP_STORED or member.compress_size != member.file_size:
            raise RunError(f"{path}: {name} is compressed, which a packed run never is.")
        if member.file_size > most:
            raise RunError(f"{path}: {name} has {member.file_size:,} bytes; allowed are {most:,}.")
        plain = (REGULAR_FILE, 0, b"", b"")
        if (member.external_attr, member.flag_bits, member.extra, member.comment) != plain:
            raise RunError(f"{path}: {name} is a link, encrypted, or has attributes of its own.")
        if member.header_offset != place:
            raise RunError(f"{path} holds bytes before {name} that belong to no member.")
        seen.add(name)
        place += LOCAL_HEADER + len(name) + member.file_size
    if place != directory:
        raise RunError(f"{path} holds bytes after its members that belong to none.")
