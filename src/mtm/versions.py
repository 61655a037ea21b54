"""Which versions of other packages are installed."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import metadata


def installed(names: Iterable[str]) -> dict[str, str]:
    """Name -> version of those that are installed; the others may be extras not needed here."""
    found = {}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
