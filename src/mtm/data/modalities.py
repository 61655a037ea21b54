"""Modalities: the named streams of values that a trajectory consists of.

Legend of letters, used in every file: `B` batch, `T` time (segment length), `M` modalities,
`L = T*M` tokens, `D` width, `N` steps of a data set, `E` episodes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from mtm.core.errors import ConfigError, DataError, unknown

Kind: TypeAlias = Literal["continuous", "discrete"]
Role: TypeAlias = Literal["state", "return", "action", "reward"]
BoolArray: TypeAlias = NDArray[np.bool_]
IntArray: TypeAlias = NDArray[np.int64]

ROLE_OF_NAME: dict[str, Role] = {"returns": "return", "actions": "action", "rewards": "reward"}
"""Names that carry a role by themselves; every other name is something observed, a state."""

AUTOREGRESSIVE_ORDER: tuple[Role, ...] = ("state", "return", "action", "reward")
"""Default order of the modalities within a time step: what is known before what."""

MOST_GUESSED_CLASSES = 1000
"""More integers than this are hardly classes, but time stamps or counters: each class costs a row
of weights on both ends of the network."""


@dataclass(frozen=True)
class Modality:
    """A named stream of values.

    Attributes:
        name: Any identifier; `states`, `returns`, `actions` and `rewards` imply their role.
        shape: Shape of one value; `()` for a scalar.
        kind: `continuous` (regressed) or `discrete` (one of `classes` categories).
        classes: Number of categories of a discrete modality, else 0.
        role: What the stream is to an agent; the named masks are written in roles, so that they
            work for any names.
    """

    name: str
    shape: tuple[int, ...] = ()
    kind: Kind = "continuous"
    classes: int = 0
    role: Role = "state"

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.isidentifier():
            raise DataError(f"a modality's name must be an identifier, got {self.name!r}.")
        sizes = (*self.shape, self.classes) if isinstance(self.shape, tuple) else (None,)
        if not all(type(n) is int for n in sizes) or any(n < 1 for n in self.shape):
            raise DataError(
                f"modality {self.name!r}: a shape is of whole numbers from 1 on, and classes are a "
                f"whole number, got shape {self.shape} and {self.classes!r} classes. A value has "
                "one number at least."
            )
        if self.kind not in get_args(Kind):
            kind = str(self.kind)
            raise DataError(unknown(f"kind of modality {self.name!r}:", kind, get_args(Kind)))
        if self.role not in get_args(Role):
            role = str(self.role)
            raise DataError(unknown(f"role of modality {self.name!r}:", role, get_args(Role)))
        if self.kind == "discrete" and (self.shape != () or self.classes < 1):
            raise DataError(
                f"modality {self.name!r}: a discrete value is one integer of at least 1 class, got "
                f"shape {self.shape} and {self.classes} classes. Split several integers per step "
                "into several modalities."
            )

    @property
    def size(self) -> int:
        """Numbers in one value."""
        return math.prod(self.shape)

    def to_json(self) -> dict[str, Any]:
        """Plain data, for a run's `config.json`."""
        return asdict(self) | {"shape": list(self.shape)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Modality:
        """The inverse of `to_json`."""
        return cls(**{**data, "shape": tuple(data["shape"])})


class Modalities(tuple[Modality, ...]):
    """The streams of a data set or a run, in order, found by name and by role."""

    __slots__ = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Names, in order."""
        return tuple(m.name for m in self)

    def named(self, name: str) -> Modality:
        """The modality of a name.

        Raises:
            DataError: There is none; the message lists the near ones.
        """
        return self[self.place(name)]

    def place(self, name: str) -> int:
        """The place of a modality within a time step.

        Raises:
            DataError: As `named`.
        """
        for place, modality in enumerate(self):
            if modality.name == name:
                return place
        raise DataError(unknown("modality", name, self.names))

    def of_role(self, role: Role) -> Modalities:
        """Those of a role."""
        return Modalities(m for m in self if m.role == role)

    def only(self, role: Role) -> Modality:
        """The one modality of a role.

        Raises:
            ConfigError: There is none, or there are several.
        """
        found = self.of_role(role)
        if len(found) != 1:
            raise ConfigError(
                f"this needs exactly one modality of role {role!r}, there is "
                f"{', '.join(found.names) or 'none'}. Join columns into one, or use "
                "predict(given, want), which takes any."
            )
        return found[0]


def in_autoregressive_order(modalities: Iterable[Modality]) -> Modalities:
    """Sort by role, keeping the given order among equals."""
    return Modalities(sorted(modalities, key=lambda m: AUTOREGRESSIVE_ORDER.index(m.role)))


def infer_modality(
    name: str, values: NDArray[Any], present: BoolArray | None = None, classes: int = 0
) -> Modality:
    """Guess the modality that an array of values, (N, *shape), stands for.

    Args:
        name: It may imply a role.
        values: Integers, a single one per step, are classes.
        present: Where there are values, (N,); what stands elsewhere is no class.
        classes: How many there are, if that is known; 0: as many as the values need.

    Raises:
        DataError: The integers are hardly classes, as there are too many.
    """
    role = ROLE_OF_NAME.get(name, "state")
    is_category = values.ndim == 1 and values.dtype.kind in "iu"
    if is_category and role not in ("return", "reward"):
        return Modality(name, (), "discrete", classes or _count(name, values, present), role)
    return Modality(name, tuple(values.shape[1:]), "continuous", 0, role)


def infer_modalities(
    arrays: Mapping[str, NDArray[Any]],
    present: Mapping[str, BoolArray],
    classes: Mapping[str, int] | None = None,
) -> Modalities:
    """Guess all modalities, in the order given.

    Raises:
        DataError: As `infer_modality`, of all of them.
    """
    found: list[Modality] = []
    faults: list[str] = []
    for name, values in arrays.items():
        try:
            known = (classes or {}).get(name, 0)
            found.append(infer_modality(name, values, present.get(name), known))
        except DataError as error:
            faults += error.faults
    if faults:
        raise DataError(*faults)
    return Modalities(found)


def _count(name: str, values: NDArray[Any], present: BoolArray | None) -> int:
    """How many classes integers need, if it is likely that they are classes."""
    if present is not None and present.shape == values.shape:  # a misfit is told later
        values = values[present]
    high = int(values.max(initial=0))  # those below 0 are told later, with their place
    if high < MOST_GUESSED_CLASSES:
        return high + 1
    raise DataError(
        f"modality {name!r} holds the integer {high}; single integers are taken for classes, 0 to "
        f"{MOST_GUESSED_CLASSES - 1} at most. If they are numbers, store them as floating point. "
        "To leave it out, name the columns to read (--reading.columns on the command line, "
        "Reading(columns=...) in Python). If they are classes, declare them in Python: "
        f'Modality({name!r}, (), "discrete", {high + 1}).'
    )
