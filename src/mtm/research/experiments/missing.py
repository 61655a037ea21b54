"""Settings for data in which most episodes lack actions; the one place that knows their names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mtm.core.config import TrainConfig


def masks_for_two_stages(train: TrainConfig) -> dict[str, Any]:
    """Add the mask of inverse dynamics, as the original does: the second stage asks for it.

    Labels are few, and inverse dynamics need fewer of them than acting does.
    """
    return {"mask": f"{train.mask}+id"}


def labelled_only(share: float) -> dict[str, Any]:
    """Train on a share of the episodes, those with actions, and on nothing else."""
    return {**_drop(share), "complete_share": 1.0}


def heteromodal(share: float) -> dict[str, Any]:
    """Train on a share of the episodes with actions and on all others without."""
    return _drop(share)


def share_of(train: Mapping[str, Any]) -> float | None:
    """The share with actions that some settings stand for; None where nothing was dropped."""
    share = train.get("drop", {}).get("actions")
    return None if share is None else round(1 - share, 6)


def is_heteromodal(train: Mapping[str, Any]) -> bool:
    """Whether some settings also train on the episodes without actions."""
    return share_of(train) is not None and train["complete_share"] < 1


def _drop(share: float) -> dict[str, Any]:
    return {"drop": {"actions": round(1 - share, 6)}}
