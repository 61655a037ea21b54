"""What can go wrong for a user. Each message says what, the value, what is allowed, the cure."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable
from types import ModuleType


class MTMError(Exception):
    """Base of every error that `mtm` raises on purpose; the command line prints it bare."""


class DataError(MTMError, ValueError):
    """The data cannot be used as they are."""


class ConfigError(MTMError, ValueError):
    """A setting, or a combination of settings, is not allowed."""


class RunError(MTMError, RuntimeError):
    """A run directory or a checkpoint cannot be read, written or continued."""


class MissingExtraError(MTMError, ImportError):
    """An optional dependency is needed and not installed."""


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
