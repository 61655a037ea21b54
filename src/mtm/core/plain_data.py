"""Plain data from files that somebody may have edited: whatever is amiss is told with its place."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mtm.core.errors import DataError, MTMError

MALFORMED = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
"""What using plain data of another form than expected raises."""

SEAL = "sha256"
"""Where the digest of a file is, in it."""


@contextmanager
def expecting(place: object, kind: type[MTMError], cure: str) -> Iterator[None]:
    """Tell what goes wrong inside as damage to a file.

    Args:
        place: The file.
        kind: Of the error.
        cure: What to do about it.

    Raises:
        MTMError: Of that kind; one that is raised inside stays as it is, and faults of the data
            are told with their file.
    """
    try:
        yield
    except DataError as error:
        if str(place) in str(error):
            raise
        raise error.at(place) from error
    except MTMError:
        raise
    except MALFORMED as error:
        raise kind(f"{place} is damaged: {type(error).__name__}: {error}. {cure}") from error


def digest_of(plain: Mapping[str, Any]) -> str:
    """The SHA-256 of plain data, however they are laid out in their file."""
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def sealed(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Plain data with their digest."""
    return {**plain, SEAL: digest_of(plain)}


def unsealed(plain: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of `sealed`; what has no digest, of an earlier version, is as it is.

    Raises:
        ValueError: They are not what was written.
    """
    content = {key: value for key, value in plain.items() if key != SEAL}
    if SEAL in plain and plain[SEAL] != digest_of(content):
        raise ValueError(
            f"it is not what was written; if you edited it yourself, remove its {SEAL!r}"
        )
    return content


def read_object(file: Path) -> dict[str, Any]:
    """The JSON object in a file.

    Raises:
        ValueError: It cannot be read, is no JSON, or no object; see `expecting`.
    """
    try:
        return parse_object(file.read_bytes())
    except OSError as error:
        raise ValueError(f"it cannot be read ({error})") from error


def parse_object(content: bytes) -> dict[str, Any]:
    """The JSON object that is the content of a file.

    Raises:
        ValueError: It is no JSON, or no object; see `expecting`.
    """
    found = json.loads(content)
    if not isinstance(found, dict):
        raise ValueError(f"a JSON object is needed, got {type(found).__name__}")
    return found


def whole(table: dict[str, Any], key: str, least: int = 0) -> int:
    """A whole number in a table.

    Raises:
        ValueError: It is something else, or below the least.
    """
    value = table[key]
    if type(value) is not int or not least <= value < 1 << 63:
        raise ValueError(f"{key} must be a whole number of at least {least}, got {value!r}")
    return value


def text(table: dict[str, Any], key: str) -> str:
    """A text in a table.

    Raises:
        ValueError: It is something else.
    """
    if not isinstance(table[key], str):
        raise ValueError(f"{key} must be a text, got {table[key]!r}")
    return str(table[key])
