"""Settings from plain data and back to what differs; faults are reported all at once.

This module imports neither torch nor numpy: the command line is built from it.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from mtm.core.errors import ConfigError, unknown

_Config = TypeVar("_Config")


def raise_if(faults: list[str]) -> None:
    """Raise a `ConfigError` of these faults, if there are any."""
    if faults:
        listed = "\n".join(f"  - {fault}" for fault in faults)
        raise ConfigError(f"the settings have {len(faults)} fault(s):\n{listed}")


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
    faults: list[str] = []
    plain = _merge(asdict(base), data)  # type: ignore[call-overload]
    config = _from_plain(type(base), plain, "", faults)
    raise_if(faults)
    return config


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _merge(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in changes.items():
        old = merged.get(key)
        nested = isinstance(old, Mapping) and isinstance(value, Mapping) and key != "mask_weights"
        merged[key] = _merge(old, value) if nested else value  # type: ignore[arg-type]
    return merged


def _from_plain(
    cls: type[_Config], data: Mapping[str, Any], prefix: str, faults: list[str]
) -> _Config:
    """Build a dataclass from plain data, collecting unknown keys and wrong types."""
    hints = get_type_hints(cls)
    known = {f.name for f in fields(cls)}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for key, value in data.items():
        if key not in known:
            faults.append(unknown("setting", f"{prefix}{key}", (f"{prefix}{k}" for k in known)))
        elif is_dataclass(hints[key]) and isinstance(hints[key], type):
            if isinstance(value, Mapping):
                values[key] = _from_plain(hints[key], value, f"{prefix}{key}.", faults)
            else:
                faults.append(f"{prefix}{key} must be a table of settings, got {value!r}")
        else:
            try:
                values[key] = _convert(hints[key], value)
            except (TypeError, ValueError):
                wanted = str(hints[key]).removeprefix("<class '").removesuffix("'>")
                faults.append(f"{prefix}{key} must be {wanted}, got {value!r}")
    return cls(**values) if not faults else cls()


def _convert(hint: Any, value: Any) -> Any:
    """`value` as the type says, where JSON cannot tell (tuples, floats written as integers)."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return _check(value in arguments, value)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        return _convert(next(a for a in arguments if a is not type(None)), value)
    if origin is tuple:
        _check(isinstance(value, list | tuple), value)
        if arguments[-1] is Ellipsis:
            return tuple(_convert(arguments[0], v) for v in value)
        return tuple(_convert(a, v) for a, v in zip(arguments, value, strict=True))
    if origin is dict:
        _check(isinstance(value, Mapping), value)
        return {str(k): _convert(arguments[1], v) for k, v in value.items()}
    if hint is float:
        _check(isinstance(value, int | float) and not isinstance(value, bool), value)
        return float(value)
    return _check(isinstance(value, hint) and not (hint is int and isinstance(value, bool)), value)


def _check(good: bool, value: Any) -> Any:
    if not good:
        raise TypeError
    return value
