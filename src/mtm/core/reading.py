"""How to read data whose names or gaps are the user's own.

This module imports neither torch nor numpy: the command line is built from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mtm.core.config_io import report
from mtm.core.errors import unknown

ROLES = ("state", "return", "action", "reward")
"""The roles of `mtm.data.modalities`."""


@dataclass(frozen=True)
class Reading:
    """How to read data whose names or gaps are the user's own; empty for all others.

    Raises:
        ConfigError: Listing every fault.
    """

    columns: dict[str, str | tuple[str, ...]] = field(default_factory=dict)
    """Modalities to read, with their column or columns; empty: all columns, under their names."""
    roles: dict[str, str] = field(default_factory=dict)
    """Modalities whose name does not tell their role, which is state, return, action or reward."""
    episode: str | None = None
    """Column that tells the episodes apart; None: a usual name, or flags that end episodes."""
    nan_is_absent: bool = False
    """Take a value with NaN in it as a gap, rather than as a fault."""

    def __post_init__(self) -> None:
        faults = self.faults()
        if not faults:
            object.__setattr__(self, "columns", self.columns_of())  # always tuples, and our own
            object.__setattr__(self, "roles", dict(self.roles))
        report(faults)

    def faults(self) -> list[str]:
        """Everything that is wrong."""
        forms = {"columns": "{'states': ('x', 'y')}", "roles": "{'torque': 'action'}"}
        faults = [
            f"reading.{name} must be a dict such as {form}, got {getattr(self, name)!r}"
            for name, form in forms.items()
            if not isinstance(getattr(self, name), Mapping)
        ]
        if faults:
            return faults
        for name, columns in self.columns_of().items():
            if not columns or not all(isinstance(c, str) and c for c in columns):
                faults.append(f"reading.columns: {name!r} needs names of columns, got {columns!r}")
        for role in self.roles.values():
            if role not in ROLES:
                faults.append(unknown("role in reading.roles:", str(role), ROLES))
        return faults

    def columns_of(self) -> dict[str, tuple[str, ...]]:
        """Modality -> the columns that it is made of."""
        return {
            name: (columns,) if isinstance(columns, str) else tuple(columns)
            for name, columns in self.columns.items()
        }


AS_IT_IS = Reading()
"""Nothing to say: names, roles and gaps are those of the data."""
