"""What can go wrong for a user. Each message says what, the value, what is allowed, the cure."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable, Sequence
from types import ModuleType

MOST_LISTED = 20
"""Faults that a message lists; `DataError.faults` holds all."""


class MTMError(Exception):
    """Base of every error that `mtm` raises on purpose; the command line prints it bare."""


class DataError(MTMError, ValueError):
    """The data cannot be used as they are.

    Args:
        *faults: Everything that is wrong; the message lists the first of many.
    """

    def __init__(self, *faults: str) -> None:
        super().__init__(_listed(faults))
        self.faults = faults

    def at(self, place: object) -> DataError:
        """The same faults, each told with where it is: a file, say."""
        return DataError(*(f"{place}: {fault}" for fault in self.faults))


class ConfigError(MTMError, ValueError):
    """A setting, or a combination of settings, is not allowed."""


class RunError(MTMError, RuntimeError):
    """A run directory or a checkpoint cannot be read, written or continued."""


class MissingExtraError(MTMError, ImportError):
    """An optional dependency is needed and not installed."""


def _listed(faults: Sequence[str]) -> str:
    if len(faults) == 1:
        return faults[0]
    lines = [f"{len(faults):,} faults:", *(f"  - {fault}" for fault in faults[:MOST_LISTED])]
    if len(faults) > MOST_LISTED:
        lines.append(f"  ... and {len(faults) - MOST_LISTED:,} more")
    return "\n".join(lines)


def unknown(what: str, name: str, allowed: Iterable[str]) -> str:
    """Say that `name` is not known, which names are near, and which are allowed."""
    allowed = sorted(allowed)
    near = difflib.get_close_matches(name, allowed, n=3, cutoff=0.5)
    hint = f" Did you mean {' or '.join(repr(n) for n in near)}?" if near else ""
    return f"unknown {what} {name!r}.{hint} Allowed: {', '.join(allowed) or 'none'}."


def require(module: str, *, extra: str) -> ModuleType:
    """Import an optional dependency, or say which line installs it.

    Raises:
        MissingExtraError: `module` is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"{module} is not installed; it comes with an extra of mtm. Run: "
            f'pip install "masked-trajectory-models[{extra}]"'
        ) from error
