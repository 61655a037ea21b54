"""Giving a run away: as one file, or to a hub.

Both hold the same files (see `mtm.runs.bundle`), and `mtm.load_run` takes both.
"""

from __future__ import annotations

from pathlib import Path

from mtm.core.atomic_write import refuse_existing
from mtm.core.errors import ConfigError
from mtm.evaluation.report.model_card import model_card
from mtm.runs import hub
from mtm.runs.bundle import CARD, Files, gather, seal
from mtm.runs.checkpoint import Which
from mtm.runs.packed import write_packed
from mtm.runs.shared import is_shared


def bundle(run: Path, which: Which, title: str, address: str, licence: str | None) -> Files:
    """The files to share of a run directory, with card and manifest.

    Args:
        run: The run directory.
        which: Whose weights: `last` or `best`.
        title: What the card calls the model.
        address: What the card says that `mtm.load_run` takes.
        licence: An identifier such as `mit`; None: none is stated.

    Raises:
        RunError: The directory holds no readable run.
        ConfigError: The run is shared already, or the licence is no identifier.
    """
    if is_shared(run):
        raise ConfigError(f"{run} is shared already; name the run directory that it was made of.")
    files = gather(run, which)
    card = model_card(files, title, address, licence)
    return seal(files | {CARD: card.encode()})


def pack(run: Path, file: Path, which: Which = "last", *, licence: str | None = None) -> Files:
    """Write a run as one file, which is not replaced if it is there; returns what is in it.

    Raises:
        DataError: There is such a file.
        RunError: The directory holds no readable run, or the file cannot be written.
        ConfigError: As `bundle`.
    """
    refuse_existing(file)
    name = run.resolve().name  # not the file's: the same run gives the same bytes
    files = bundle(run, which, name, f"{name}.mtm", licence)
    write_packed(file, files)
    return files


def files_to_push(
    run: Path, place: hub.Place, which: Which = "last", *, licence: str | None = None
) -> Files:
    """What a push of a run to a place on a hub would put there.

    Raises:
        RunError: The directory holds no readable run.
        ConfigError: As `bundle`, and `mtm.runs.hub.push`.
    """
    hub.refuse_revision(place)
    return bundle(run, which, place.name.partition("/")[2], str(place), licence)
