"""What the harness knows of a data set: enough to key its runs and to find it in the paper."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from mtm.data import loading
from mtm.data.environment_ids import ADROIT, family, matching_environment

QUALITIES = {
    "medium-expert": "medium-expert",
    "medium-replay": "medium-replay",
    "expert": "expert",
    "medium": "medium",
    "mixed": "medium-replay",
}
"""What a data set's name says -> the paper's kind that comes nearest; the first that fits."""

BUILTIN_QUALITY = {"builtin:hopper": "medium-replay"}
"""The bundled recording is of a training, early episodes thinned out."""


@dataclass(frozen=True)
class DataFacts:
    """One data set.

    Attributes:
        spec: What `mtm.load_dataset` takes.
        name: For tables.
        fingerprint: Of the data themselves.
        env_id: The environment that its agents are evaluated on.
        row: The paper's (environment, kind) that comes nearest, if any does.
        is_papers: Whether the paper used these very data.
        steps: In all.
        episodes: In all.
    """

    spec: str
    name: str
    fingerprint: str
    env_id: str | None
    row: tuple[str, str] | None
    is_papers: bool
    steps: int
    episodes: int


def name_of(spec: str) -> str:
    """A data set's name for tables: `hopper-medium-v2`, `walk, FOLDER` for a task of ExORL's."""
    prefix, colon, name = spec.partition(":")
    if colon and prefix in ("d4rl", "builtin"):
        return name
    if prefix == "exorl":
        task, _, folder = name.rpartition(":")
        return ", ".join(filter(None, (task, Path(folder).name)))
    return Path(spec).stem


@cache
def facts(spec: str) -> DataFacts:
    """Load a data set, downloading it if need be, and look at it.

    Raises:
        DataError: It cannot be had.
    """
    data = loading.load(spec)
    env_id = matching_environment(data.metadata)
    key = family(env_id)
    quality = BUILTIN_QUALITY.get(spec) or _quality(spec)
    return DataFacts(
        spec,
        name_of(spec),
        data.fingerprint,
        env_id,
        (key, quality) if key and quality else None,
        # Its Adroit sets are the authors' own recordings.
        spec.startswith("d4rl:") and key not in ADROIT,
        data.num_steps,
        data.num_episodes,
    )


def _quality(spec: str) -> str | None:
    words = re.sub(r"[^a-z]+", "-", name_of(spec).lower())
    return next((kind for word, kind in QUALITIES.items() if word in words), None)
