"""Versions of a run's `config.json`: what an older one did without saying so.

This module imports neither torch nor numpy: the command line reads old settings with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_args

from mtm.core.config import Precision
from mtm.core.errors import RunError, unknown

FORMAT = 8
"""Version of a run's directory; raised when an old reader could not read a new run."""


def check_format(file: Path, description: Mapping[str, Any]) -> None:
    """Raise a `RunError` if a `config.json` was written by a newer version, or says none."""
    written = description["format"]
    if type(written) is not int or written < 1:
        raise RunError(f"{file} is damaged: its format is {written!r}, not a whole number from 1.")
    if written > FORMAT:
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
    if written < 6:  # the mean of recorded actions was learned
        settings["action_loss"] = "squared"
    if written < 7:  # the last weights counted, and the learning rate ended where it said
        optimizer = {**settings.get("optimizer", {})}
        final, highest = optimizer.pop("final_learning_rate", 0.0), optimizer.get("learning_rate")
        share = min(final / highest, 1.0) if _are_numbers(final, highest) and highest else 0.0
        settings["optimizer"] = optimizer | {"final_share": share, "averaged_share": 0.0}
    settings = _offered(settings)
    return modern_settings(settings) if written < 5 else settings


def agent_settings(description: Mapping[str, Any]) -> dict[str, Any]:
    """The settings in the `config.json` of an agent."""
    settings: dict[str, Any] = {**description["config"]}
    if isinstance(settings.get("bc10"), Mapping):
        settings["bc10"] = _offered(settings["bc10"])
    return modern_settings(settings) if description["format"] < 5 else settings


def _offered(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with an action loss that is no longer offered as the one that comes nearest."""
    is_gone = settings.get("action_loss") in ("cauchy", "likeliest")
    return {**settings} | ({"action_loss": "absolute"} if is_gone else {})


def modern_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as format 5 spells them, from those of an older one; they tell it themselves.

    `model.predict_variance` was called `model.spread`, and dicts were lists of `NAME=VALUE`.
    """
    found = {**settings}
    if isinstance(found.get("model"), dict) and "spread" in found["model"]:
        model = {**found["model"]}
        found["model"] = model | {"predict_variance": model.pop("spread")}
    _replace_pairs(found, "drop", _number)
    _replace_pairs(found, "gaps", _number)
    if isinstance(found.get("reading"), dict):
        found["reading"] = {**found["reading"]}
        _replace_pairs(found["reading"], "columns", lambda text: text.split(","))
        _replace_pairs(found["reading"], "roles", str)
    return found


def _replace_pairs(table: dict[str, Any], key: str, read: Callable[[str], Any]) -> None:
    """Make a dict of a list of `NAME=VALUE`; anything else is left to the check of settings."""
    words = table.get(key)
    if isinstance(words, list) and all(isinstance(word, str) for word in words):
        parts = (word.partition("=") for word in words)
        table[key] = {name: read(value) for name, _, value in parts}


def _are_numbers(*values: object) -> bool:
    return all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)


def _number(text: str) -> float | str:
    """A number, or the text as it is if it is none."""
    try:
        return float(text)
    except ValueError:
        return text


def run_precision(description: Mapping[str, Any]) -> Precision:
    """The precision that a run was trained with; older ones do not say, and mostly had this.

    Raises:
        RunError: There is no such precision.
    """
    precision: Precision = description.get("precision", "32-true")
    if precision not in get_args(Precision):
        raise RunError(unknown("precision", str(precision), get_args(Precision)))
    return precision
