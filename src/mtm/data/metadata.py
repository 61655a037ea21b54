"""What is known of a data set besides its values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from mtm.core.plain_data import text, whole
from mtm.data.origin import Origin


@dataclass(frozen=True)
class Metadata:
    """Where a data set comes from and which environment it belongs to."""

    source: str = "memory"
    """What the data are called: a file, a directory, or `PREFIX:NAME`."""
    env_id: str | None = None
    horizon: int | None = None
    """Longest an episode can get in the environment, in steps."""
    notes: dict[str, str] = field(default_factory=dict)
    origin: Origin | None = None
    """What loads the data again; None if they were made in memory."""

    def to_json(self) -> dict[str, Any]:
        """Plain data that hold wherever the data lie: all but the origin."""
        return {key: value for key, value in asdict(self).items() if key != "origin"}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Metadata:
        """The inverse of `to_json`.

        Raises:
            TypeError: A key is foreign.
            ValueError: A value is not of its kind.
        """
        made = cls(**plain)
        table = {**made.to_json(), **made.notes}
        for key in ("source", *(("env_id",) if made.env_id is not None else ()), *made.notes):
            text(table, key)
        if made.horizon is not None:
            whole(table, "horizon", 1)
        if made.origin is not None:
            raise ValueError(f"origin cannot be told in a file, got {made.origin!r}")
        return made
