"""Modalities: the named streams of values that a trajectory consists of.

Legend of letters, used in every file: `B` batch, `T` time (segment length), `M` modalities,
`L = T*M` tokens, `D` width, `N` steps of a data set, `E` episodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from mtm.errors import DataError, unknown

Kind: TypeAlias = Literal["continuous", "discrete"]
Role: TypeAlias = Literal["state", "return", "action", "reward"]
BoolArray: TypeAlias = NDArray[np.bool_]
IntArray: TypeAlias = NDArray[np.int64]

ROLE_OF_NAME: dict[str, Role] = {"returns": "return", "actions": "action", "rewards": "reward"}
"""Names that carry a role by themselves; every other name is something observed, a state."""

AUTOREGRESSIVE_ORDER: tuple[Role, ...] = ("state", "return", "action", "reward")
"""Default order of the modalities within a time step: what is known before what."""


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
        if not self.name.isidentifier():
            raise DataError(f"a modality's name must be an identifier, got {self.name!r}.")
        if self.kind not in get_args(Kind):
            raise DataError(unknown(f"kind of modality {self.name!r}:", self.kind, get_args(Kind)))
        if self.role not in get_args(Role):
            raise DataError(unknown(f"role of modality {self.name!r}:", self.role, get_args(Role)))
        if self.kind == "discrete" and (self.shape != () or self.classes < 1):
            raise DataError(
                f"modality {self.name!r}: a discrete value is one integer of at least 1 class, got "
                f"shape {self.shape} and {self.classes} classes. Split several integers per step "
                "into several modalities."
            )

    @property
    def size(self) -> int:
        """Numbers in one value."""
        return int(np.prod(self.shape, dtype=np.int64))

    def to_json(self) -> dict[str, Any]:
        """Plain data, for a run's `config.json`."""
        return asdict(self) | {"shape": list(self.shape)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Modality:
        """The inverse of `to_json`."""
        return cls(**{**data, "shape": tuple(data["shape"])})


def in_autoregressive_order(modalities: Sequence[Modality]) -> tuple[Modality, ...]:
    """Sort by role, keeping the given order among equals."""
    return tuple(sorted(modalities, key=lambda m: AUTOREGRESSIVE_ORDER.index(m.role)))


def infer_modality(name: str, values: NDArray[Any], present: BoolArray | None = None) -> Modality:
    """Guess the modality that an array of values, (N, *shape), stands for.

    Args:
        name: It may imply a role.
        values: Integers, a single one per step, are classes.
        present: Where there are values, (N,); what stands elsewhere is no class.
    """
    role = ROLE_OF_NAME.get(name, "state")
    is_category = values.ndim == 1 and values.dtype.kind in "iu"
    if is_category and role not in ("return", "reward"):
        if present is not None and present.shape == values.shape:  # a misfit is told later
            values = values[present]
        classes = int(values.max(initial=0)) + 1
        return Modality(name, (), "discrete", classes, role)
    return Modality(name, tuple(values.shape[1:]), "continuous", 0, role)


def infer_modalities(
    arrays: Mapping[str, NDArray[Any]], present: Mapping[str, BoolArray]
) -> tuple[Modality, ...]:
    """Guess all modalities, in autoregressive order."""
    return in_autoregressive_order(
        [infer_modality(name, values, present.get(name)) for name, values in arrays.items()]
    )
