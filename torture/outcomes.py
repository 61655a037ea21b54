"""What came of the cases of one kind."""

from __future__ import annotations

import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

MOST_FAULTS = 20
"""That a row keeps; it counts all."""


@dataclass
class Row:
    """The cases of one kind.

    Attributes:
        part: Of the campaign.
        what: Was tried.
        cases: How many times.
        outcomes: How the cases ended that ended as promised, by kind.
        faults: What did not end as promised, each with what makes it again.
        seconds: That all took.
        skipped: Why nothing was tried here; empty where something was.
    """

    part: str
    what: str
    cases: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    seconds: float = 0.0
    skipped: str = ""

    def held(self, outcome: str) -> None:
        """Count a case that ended as promised."""
        self.cases += 1
        self.outcomes[outcome] += 1

    def broke(self, fault: str) -> None:
        """Count a case that did not."""
        self.cases += 1
        self.faults.append(fault)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        plain = asdict(self)
        plain |= {"outcomes": dict(self.outcomes), "broke": len(self.faults)}
        plain["faults"] = self.faults[:MOST_FAULTS]
        return plain


@contextmanager
def timed(row: Row) -> Iterator[Row]:
    """Count the seconds of what is done inside."""
    began = time.perf_counter()
    try:
        yield row
    finally:
        row.seconds += time.perf_counter() - began


@contextmanager
def tried(row: Row) -> Iterator[Row]:
    """Time what is done inside; what it raises is a fault of this row, and other rows stay."""
    try:
        with timed(row):
            yield row
    except Exception:
        row.broke(f"it could not be tried: {traceback.format_exc()[-2000:]}")


def check(rows: list[Row]) -> None:
    """Raise an `AssertionError` that tells what broke; also where nothing was tried."""
    broken = [f"{row.part}, {row.what}: {fault}" for row in rows for fault in row.faults]
    idle = [f"{row.part}, {row.what}" for row in rows if not row.cases and not row.skipped]
    if broken or idle or not rows:
        raise AssertionError("\n".join([*broken, *(f"{what}: nothing was tried" for what in idle)]))
