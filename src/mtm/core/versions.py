"""Which versions something was made with."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from importlib import metadata

from mtm import __version__

EVERYWHERE = ("torch", "numpy", "safetensors", "lightning-fabric")


def versions(more: Iterable[str] = ()) -> dict[str, str]:
    """Name -> version of Python, mtm and what it computes with.

    Args:
        more: Packages besides; those that are not installed are left out.
    """
    found = {"python": platform.python_version(), "mtm": __version__}
    for name in (*EVERYWHERE, *more):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
