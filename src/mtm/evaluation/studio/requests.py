"""What a browser sends, checked: every number within bounds, every name known, nothing else."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from starlette.requests import ClientDisconnect, Request

from mtm.data.modalities import BoolArray
from mtm.evaluation.studio.answers import Asked, Edit
from mtm.evaluation.studio.episodes import LONGEST_WINDOW
from mtm.evaluation.studio.faults import StudioError, bad_request
from mtm.evaluation.studio.workspace import Workspace

LARGEST_BODY = 1 << 20
"""Bytes."""
SECONDS = 10.0
"""That a body may take to arrive."""
LARGEST_NUMBER = 2**53
"""Whole numbers beyond are not exact in a browser."""
LONGEST_TEXT = 64
MOST_EDITS = 4096

Fields = Mapping[str, Any]


async def read_body(request: Request, allowed: Collection[str]) -> Fields:
    """The JSON object of a POST.

    Raises:
        StudioError: It is something else, too large, or slow to come; a field is not known.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise StudioError(415, "not-json", "send JSON, with Content-Type: application/json.")
    try:
        body = await asyncio.wait_for(_read(request), SECONDS)
    except asyncio.TimeoutError as error:
        raise StudioError(408, "too-slow", "the request took too long to arrive.") from error
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise bad_request(f"the request is no JSON: {error}.") from error
    if not isinstance(fields, dict):
        raise bad_request("the request must be a JSON object.")
    strange = sorted(set(fields) - set(allowed))
    if strange:
        raise bad_request(f"unknown field {strange[0][:40]!r}; allowed: {', '.join(allowed)}.")
    return fields


def query(request: Request) -> Fields:
    """The fields of a GET, whole numbers as such."""
    return {
        name: int(text) if text.isascii() and text.isdecimal() and len(text) < 17 else text
        for name, text in request.query_params.items()
    }


def whole(
    fields: Fields, name: str, low: int = 0, high: int = LARGEST_NUMBER, default: int | None = None
) -> int:
    """A whole number within bounds; `default` if it is not there.

    Raises:
        StudioError: It is missing, no whole number, or out of bounds.
    """
    value = fields.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise bad_request(
            f"{name} must be a whole number from {low} to {high}, got {_shown(value)}."
        )
    return value


def text(fields: Fields, name: str, default: str | None = None) -> str:
    """A short text; `default` if it is not there.

    Raises:
        StudioError: It is missing, no text, or too long.
    """
    value = fields.get(name, default)
    if not isinstance(value, str) or len(value) > LONGEST_TEXT:
        raise bad_request(
            f"{name} must be text of at most {LONGEST_TEXT} characters, got {_shown(value)}."
        )
    return value


def choice(fields: Fields, name: str, allowed: Collection[str], default: str | None = None) -> str:
    """One of some words.

    Raises:
        StudioError: It is another.
    """
    value = text(fields, name, default)
    if value not in allowed:
        raise bad_request(f"{name} must be one of {', '.join(allowed)}, got {_shown(value)}.")
    return value


def window_of(fields: Fields) -> dict[str, int]:
    """Run, data, episode, start and length."""
    return {
        **{name: whole(fields, name) for name in ("run", "data", "episode", "start")},
        "length": whole(fields, "length", 1, LONGEST_WINDOW),
    }


def asked_of(workspace: Workspace, fields: Fields) -> Asked:
    """A question about a window.

    Raises:
        StudioError: Something in it is not as it should be.
    """
    window = window_of(fields)
    names = workspace.run(window["run"]).modalities.names
    rows = fields.get("visible")
    if not isinstance(rows, dict):
        raise bad_request('visible must be an object such as {"states": "1100"}.')
    visible = {
        _known(name, names): _marks(name, row, window["length"]) for name, row in rows.items()
    }
    edits = fields.get("edits", [])
    if not isinstance(edits, list) or len(edits) > MOST_EDITS:
        raise bad_request(f"edits must be a list of at most {MOST_EDITS}.")
    return Asked(**window, visible=visible, edits=tuple(_edit(e, names) for e in edits))


def _edit(plain: Any, names: Collection[str]) -> Edit:
    if not isinstance(plain, dict):
        raise bad_request("an edit is an object with modality, step, feature and value.")
    value = plain.get("value")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise bad_request(f"the value of an edit must be a number, got {_shown(value)}.")
    with np.errstate(over="ignore"):
        number = float(np.float32(value)) if abs(value) < LARGEST_FLOAT else math.inf
    if not math.isfinite(number):
        raise bad_request(f"the value of an edit must be finite, got {_shown(value)}.")
    step, feature = whole(plain, "step"), whole(plain, "feature", default=0)
    return Edit(_known(plain.get("modality"), names), step, feature, number)


LARGEST_FLOAT = float(np.finfo(np.float32).max)


def _known(name: Any, names: Collection[str]) -> str:
    if name not in names:
        raise bad_request(f"unknown modality {_shown(name)}; the run has {', '.join(names)}.")
    return str(name)


def _marks(name: str, row: Any, length: int) -> BoolArray:
    if not isinstance(row, str) or len(row) != length or set(row) - {"0", "1"}:
        raise bad_request(f"visible[{name!r}] must be {length} characters of 0 and 1.")
    return np.array([mark == "1" for mark in row])


async def _read(request: Request) -> bytes:
    parts, size = [], 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > LARGEST_BODY:
                raise StudioError(
                    413, "too-large", f"a request has {LARGEST_BODY:,} bytes at most."
                )
            parts.append(part)
    except ClientDisconnect as error:
        raise bad_request("the request broke off.") from error
    return b"".join(parts)


def _shown(value: Any) -> str:
    return repr(value)[:60]
