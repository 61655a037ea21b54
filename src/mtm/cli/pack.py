"""`mtm pack`: a run as one file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro


@dataclass(frozen=True, kw_only=True)
class SharedRun:
    """The run to share."""

    run: tyro.conf.Positional[Path]
    """The run directory."""
    checkpoint: Literal["last", "best"] = "last"
    """The newest weights, or those with the lowest held-out loss; no others are shared."""
    licence: str | None = None
    """Of the weights, for the model card: an identifier such as mit or apache-2.0."""


@dataclass(frozen=True, kw_only=True)
class Arguments(SharedRun):
    """Write a run as one file, which every verb and mtm.load_run take in place of a directory.

    It holds settings, weights, a model card, and what mtm eval measured of these weights. It holds
    nothing that only training needs: it answers, and cannot be trained on.
    """

    file: tyro.conf.Positional[Path]
    """The file to write, such as hopper.mtm."""


def main(words: Sequence[str]) -> None:
    """Pack and print what is in the file."""
    arguments = tyro.cli(Arguments, args=list(words), prog="mtm pack")
    from mtm.deploy.sharing import pack

    files = pack(arguments.run, arguments.file, arguments.checkpoint, licence=arguments.licence)
    print_files(files)
    print(arguments.file)


def print_files(files: Mapping[str, bytes]) -> None:
    """Print names and sizes."""
    for name, content in files.items():
        print(f"{len(content):>12,}  {name}")
