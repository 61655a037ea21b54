"""Versions of a run's `config.json`: what an older one did without saying so.

This module imports neither torch nor numpy: the command line reads old settings with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mtm.core.config import Precision
from mtm.core.errors import RunError

FORMAT = 5
"""Version of a run's directory; raised when an old reader could not read a new run."""


def check_format(file: Path, description: Mapping[str, Any]) -> None:
    """Raise a `RunError` if a `config.json` was written by a newer version."""
    if description["format"] > FORMAT:
        raise RunError(
            f"{file} has format {description['format']}, this version of mtm reads up to {FORMAT}; "
            "upgrade mtm."
        )


def run_settings(description: Mapping[str, Any]) -> dict[str, Any]:
    """The settings in a run's `config.json`, with what older formats did without saying so."""
    written, settings = description["format"], {**description["train"]}
    if written < 2:  # networks did not predict variances yet
        settings["model"] = settings["model"] | {"spread": False}
    if written < 3:  # nor was there another optimizer, or a share by default
        settings["optimizer"] = settings["optimizer"] | {"name": "adamw"}
        settings["complete_share"] = settings.get("complete_share") or 0.0
    if written < 4:  # random masks hid a share of each modality, never all of it
        settings["whole_modalities"] = 0.0
    if written < 5 and "spread" in settings.get("model", {}):  # it has another name since
        model = {**settings["model"]}
        settings["model"] = model | {"predict_variance": model.pop("spread")}
    return settings


def run_precision(description: Mapping[str, Any]) -> Precision:
    """The precision that a run was trained with; older ones do not say, and mostly had this."""
    precision: Precision = description.get("precision", "32-true")
    return precision
