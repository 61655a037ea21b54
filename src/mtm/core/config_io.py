"""Settings from plain data and back to what differs; faults are reported all at once.

Every part of the settings checks itself when it is made, and reports its faults. Where it is made
alone, they are raised. Where many are made together, from a file or a command line, they are
gathered and raised at the end.

This module imports neither torch nor numpy: the command line is built from it.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields, is_dataclass, replace
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from mtm.core.errors import ConfigError, unknown

_Config = TypeVar("_Config")


_gathered: ContextVar[list[str] | None] = ContextVar("gathered", default=None)
"""The faults so far, where somebody gathers them."""


def report(faults: Sequence[str]) -> None:
    """Leave faults to whoever gathers them (see `gathering`), or raise a `ConfigError` of them."""
    gathered = _gathered.get()
    if gathered is not None:
        gathered += faults
    elif faults:
        listed = "\n".join(f"  - {fault}" for fault in faults)
        raise ConfigError(f"the settings have {len(faults)} fault(s):\n{listed}")


@contextmanager
def gathering() -> Iterator[None]:
    """Gather the faults of all settings that are made inside.

    Raises:
        ConfigError: At the end, listing all of them.
    """
    if _gathered.get() is not None:  # somebody outside of this gathers them
        yield
        return
    faults: list[str] = []
    before = _gathered.set(faults)
    try:
        yield
    finally:
        _gathered.reset(before)
    report(list(dict.fromkeys(faults)))


def differences(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> list[str]:
    """What differs between two plain settings, a line each: `model.width: 128 -> 256`."""
    found = []
    for key in sorted(set(old) | set(new)):
        before, after = old.get(key), new.get(key)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            found += differences(before, after, f"{prefix}{key}.")
        elif _plain(before) != _plain(after):
            found.append(f"{prefix}{key}: {before} -> {after}")
    return found


def from_plain(data: Mapping[str, Any], base: _Config) -> _Config:
    """Settings of the kind of `base` from plain data; what is not mentioned comes from `base`.

    Raises:
        ConfigError: Listing every unknown key, value of a wrong type, and fault.
    """
    with gathering():
        return _from_plain(base, data, "")


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _from_plain(base: _Config, data: Mapping[str, Any], prefix: str) -> _Config:
    """Some settings of a dataclass replaced; unknown keys and wrong types are reported."""
    hints = get_type_hints(type(base))
    known = [f.name for f in fields(base)]  # type: ignore[arg-type]
    faults: list[str] = []
    values: dict[str, Any] = {}
    for key, value in data.items():
        if key not in known:
            faults.append(unknown("setting", f"{prefix}{key}", (f"{prefix}{k}" for k in known)))
        elif is_dataclass(getattr(base, key)):
            if isinstance(value, Mapping):
                values[key] = _from_plain(getattr(base, key), value, f"{prefix}{key}.")
            else:
                faults.append(f"{prefix}{key} must be a table of settings, got {value!r}")
        else:
            try:
                values[key] = _convert(hints[key], value)
            except (TypeError, ValueError, OverflowError):
                wanted = str(hints[key]).removeprefix("<class '").removesuffix("'>")
                faults.append(f"{prefix}{key} must be {wanted}, got {value!r}")
    report(faults)
    # Beside a value that is no value, the others cannot be judged.
    return base if faults else replace(base, **values)  # type: ignore[type-var]


def _convert(hint: Any, value: Any) -> Any:
    """`value` as the type says, where JSON cannot tell (tuples, floats written as integers)."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return _check(value in arguments, value)
    if origin in (typing.Union, types.UnionType):
        for argument in arguments:
            try:
                return _convert(argument, value)
            except (TypeError, ValueError, OverflowError):
                continue
        raise TypeError
    if origin is tuple:
        _check(isinstance(value, list | tuple), value)
        if arguments[-1] is Ellipsis:
            return tuple(_convert(arguments[0], v) for v in value)
        return tuple(_convert(a, v) for a, v in zip(arguments, value, strict=True))
    if origin is dict:
        _check(isinstance(value, Mapping), value)
        return {str(k): _convert(arguments[1], v) for k, v in value.items()}
    if hint is type(None):
        return _check(value is None, value)
    if hint is float:
        _check(isinstance(value, int | float) and not isinstance(value, bool), value)
        return float(value)
    return _check(isinstance(value, hint) and not (hint is int and isinstance(value, bool)), value)


def _check(good: bool, value: Any) -> Any:
    if not good:
        raise TypeError
    return value
