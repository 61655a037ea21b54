"""A fault of a data set: what is wrong, where, and what to do about it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

LEAVE_OUT = 6.0
"""An episode with a fault of this weight, or with this score, is better left out."""
CERTAIN = 60.0
"""The weight of what is wrong beyond doubt, and the greatest that there is."""


@dataclass(frozen=True)
class Fault:
    """One fault.

    Attributes:
        check: What found it, in a word or two, such as `stuck`.
        what: What is wrong, with the values.
        cure: What to do about it.
        file: Where there are several.
        episode: None if it is not about one episode.
        step: Of the episode, where it begins.
        modality: The stream.
        feature: The number within the modality's value.
        weight: What it adds to the score of its episode, at most 60; 6 or more: leave it out. 0: it
            deserves a look, no more.
    """

    check: str
    what: str
    cure: str
    file: str | None = None
    episode: int | None = None
    step: int | None = None
    modality: str | None = None
    feature: int | None = None
    weight: float = 0.0

    @property
    def place(self) -> str:
        """Where it is, in words; empty if it is everywhere."""
        column = self.modality
        if column is not None and self.feature is not None:
            column = f"{column}[{self.feature}]"
        parts = (
            self.file,
            None if self.episode is None else f"episode {self.episode}",
            None if self.step is None else f"step {self.step}",
            column,
        )
        return ", ".join(part for part in parts if part is not None)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)
