"""One run of an experiment as plain data: what it is decides where its result lies."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

KEY_LENGTH = 16


@dataclass(frozen=True)
class RunSpec:
    """What to run: a method, on data, with a seed and complete settings.

    Attributes:
        method: A name in `mtm.research.experiments.methods.METHODS`.
        data: What `mtm.load_dataset` takes.
        seed: Of the run; the settings may repeat it.
        settings: Plain data, complete: all that the method needs to know. `threads` says how many
            CPU threads the run computes with, and so how many cores it reserves; it is part of
            the run because sums in another order differ in the last bits.
        label: For people; no part of the key.
        needs: Runs that must be finished first; the method is handed their directories.
    """

    method: str
    data: str
    seed: int
    settings: Mapping[str, Any]
    label: str = ""
    needs: tuple[RunSpec, ...] = field(default=())

    def __post_init__(self) -> None:
        # As JSON gives them back: tuples become lists, and what is not plain fails here.
        object.__setattr__(self, "settings", json.loads(json.dumps(self.settings)))

    @property
    def threads(self) -> int:
        """CPU threads of the run."""
        return int(self.settings.get("threads", 1))

    @property
    def steps(self) -> int | None:
        """Of the training, as far as it has any."""
        return self._size("steps", "updates")

    @property
    def batch_size(self) -> int | None:
        """Of the training."""
        return self._size("batch_size")

    @property
    def episodes(self) -> int | None:
        """Of every evaluation."""
        return self._size("episodes", "evaluation_episodes")

    def _size(self, *names: str) -> int | None:
        """The first of these settings that a table of the settings holds."""
        tables = [table for table in self.settings.values() if isinstance(table, dict)]
        return next((int(t[name]) for t in tables for name in names if name in t), None)

    def key(self, fingerprint: str) -> str:
        """A hash of everything but the label, and of the data themselves."""
        what = {"spec": self._without_labels(), "fingerprint": fingerprint}
        text = json.dumps(what, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:KEY_LENGTH]

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        needs = [need.to_json() for need in self.needs]
        return {**self._own(), "label": self.label, "needs": needs}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> RunSpec:
        """What `to_json` gave."""
        needs = tuple(cls.from_json(need) for need in plain["needs"])
        return cls(**{**plain, "needs": needs})

    def _own(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "data": self.data,
            "seed": self.seed,
            "settings": dict(self.settings),
        }

    def _without_labels(self) -> dict[str, Any]:
        return {**self._own(), "needs": [need._without_labels() for need in self.needs]}
