"""LeRobot's data sets on a hub: fetched once, kept where the hub's own tools keep them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mtm.core.errors import DataError, require

EXTRA = "hub"

FETCHED = ("meta/*", "data/*")
"""All but the videos."""

_FORM = re.compile(r"(?P<name>[\w.-]+/[\w.-]+)(@(?P<revision>[\w./-]+))?")


def fetch(name: str) -> Path:
    """The folder of a data set, fetched unless it is there; without a network, as it was last.

    Args:
        name: `OWNER/NAME`, or `OWNER/NAME@REVISION` for a branch, a tag or a commit.

    Raises:
        DataError: It cannot be found or fetched.
        MissingExtraError: huggingface_hub is not installed.
    """
    found = _FORM.fullmatch(name)
    if found is None:
        raise DataError(
            f"there is no folder {name!r}, and it names no data set on a hub, which is OWNER/NAME, "
            "or OWNER/NAME@REVISION for a branch, a tag or a commit."
        )
    download = require("huggingface_hub", extra=EXTRA).snapshot_download
    with _telling(name):
        return Path(
            download(
                found["name"],
                repo_type="dataset",
                revision=found["revision"],
                allow_patterns=list(FETCHED),
            )
        )


@contextmanager
def _telling(name: str) -> Iterator[None]:
    """Say what went wrong with a hub, and what helps."""
    errors: Any = require("huggingface_hub.errors", extra=EXTRA)
    login = "Run `hf auth login`, or set HF_TOKEN, if it is private"
    try:
        yield
    except errors.RevisionNotFoundError as error:
        raise DataError(
            f"lerobot:{name}: no such revision. Name a branch, a tag or a commit after @."
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise DataError(
            f"there is neither a folder {name!r} nor a data set of that name on the hub that you "
            f"may see. Check the name. {login}."
        ) from error
    except errors.HfHubHTTPError as error:
        raise DataError(
            f"lerobot:{name}: the hub answered {error.response.status_code}. {login}; else try "
            "again later."
        ) from error
    except (OSError, ValueError, errors.HTTPError) as error:
        said = str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
        raise DataError(
            f"there is no folder {name!r}, and it cannot be fetched from a hub: {said}. Check the "
            "name and the network; what was fetched before loads without it."
        ) from error
