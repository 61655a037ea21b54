"""A verb's words as its settings: tyro, with dicts as `NAME=VALUE`, and all faults at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar, get_args

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from mtm.core.config_io import gathering, report

_Arguments = TypeVar("_Arguments")

_REGISTRY = ConstructorRegistry()


def parse(
    form: type[_Arguments], words: Sequence[str], prog: str, default: _Arguments | None = None
) -> _Arguments:
    """The settings that some words say.

    Args:
        form: A dataclass; it and its parts may hold dicts, which are written `NAME=VALUE`.
        words: Of the command line.
        prog: What the help calls the verb.
        default: What is not said.

    Raises:
        ConfigError: Listing every fault of the settings.
    """
    cli = partial(tyro.cli, form, args=list(words), prog=prog, registry=_REGISTRY)
    with gathering():
        arguments: _Arguments = cli() if default is None else cli(default=default)
    return arguments


@_REGISTRY.primitive_rule
def _pairs(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[dict[str, Any]] | None:
    """Dicts of numbers (`actions=0.9`), of words (`torque=action`), of several (`states=x,y`)."""
    if info.type_origin is not dict:
        return None
    kind = get_args(info.type)[1]
    if kind is float:
        return _spec("NAME=NUMBER", float, str)
    if kind is str:
        return _spec("NAME=VALUE", str, str)
    return _spec("NAME=VALUE,VALUE", lambda text: tuple(text.split(",")), ",".join)


def _spec(
    form: str, read: Callable[[str], Any], write: Callable[[Any], str]
) -> PrimitiveConstructorSpec[dict[str, Any]]:
    def from_words(words: list[str]) -> dict[str, Any]:
        pairs: dict[str, Any] = {}
        for word in words:
            name, _, text = word.partition("=")
            try:
                if not name or not text:
                    raise ValueError
                value = read(text)
            except ValueError:
                report([f"{word!r} is not of the form {form}"])
                continue
            if name in pairs:
                report([f"{word!r} names {name} a second time: {' '.join(words)}"])
            pairs[name] = value
        return pairs

    return PrimitiveConstructorSpec(
        nargs="*",
        metavar=f"[{form} [{form} ...]]",
        instance_from_str=from_words,
        is_instance=lambda value: isinstance(value, dict),
        str_from_instance=lambda pairs: [f"{name}={write(v)}" for name, v in pairs.items()],
    )
