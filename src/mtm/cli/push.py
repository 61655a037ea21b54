"""`mtm push`: a run to a hub."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import tyro

from mtm.cli.pack import SharedRun, print_files


@dataclass(frozen=True, kw_only=True)
class Arguments(SharedRun):
    """Push a run to a repository of models on huggingface.co, where mtm.load_run finds it.

    The repository is made if need be, and is private unless --public is said. It gets settings,
    weights, a model card, and what mtm eval measured of these weights. You need a token: run
    `hf auth login`, or set HF_TOKEN.
    """

    place: tyro.conf.Positional[str]
    """hub:OWNER/NAME."""
    public: bool = False
    """Let everybody see it."""
    dry_run: bool = False
    """Print what would be pushed, with the model card, and push nothing."""


def main(words: Sequence[str]) -> None:
    """Print what is pushed, and push it."""
    arguments = tyro.cli(Arguments, args=list(words), prog="mtm push")
    from mtm.deploy.sharing import files_to_push
    from mtm.runs import hub
    from mtm.runs.bundle import CARD

    place = hub.Place.of(arguments.place)
    files = files_to_push(arguments.run, place, arguments.checkpoint, licence=arguments.licence)
    print_files(files)
    if arguments.dry_run:
        print(f"\n{files[CARD].decode()}\nNothing was pushed.")
        return
    seen = "public" if arguments.public else "private"
    print(f"to {place}, {seen} ...", flush=True)
    print(hub.push(place, files, public=arguments.public))
