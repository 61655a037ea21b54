"""What loads a data set again: on another day, from another directory."""

from __future__ import annotations

from dataclasses import dataclass

from mtm.core.reading import Reading


@dataclass(frozen=True)
class Origin:
    """What `mtm.load_dataset` was given, so that it means the same from anywhere.

    Attributes:
        spec: An absolute path, or `PREFIX:NAME`; a path within a name is absolute too.
        reading: How the data were read.
    """

    spec: str
    reading: Reading
